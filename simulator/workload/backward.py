"""What the backward pass of a network does: which layers, in which order, and when gradients are ready.

As an automatic differentiation goes through the layers: last to first, skipping what no parameter stands before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.workload.network import Layer, Network, Parameter, once
from simulator.workload.operators import Attention, Copy, Elementwise, MatMul, Phase, Recurrent

__all__ = [
    "BackwardStep",
    "backward_phase",
    "backward_steps",
    "gradient_order",
    "needs_gradient",
    "read_elements",
    "storages",
    "training_flop",
]


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """The backward pass of layer ``index``.

    ``phase`` says which gradients it computes.  ``added_elements`` are those of gradients that are added to one that
    another layer left: a tensor that several layers read gets a gradient from each.  ``ready`` are the parameters whose
    gradients are complete then; one that several layers share is complete after the first of them, which comes last.
    """

    index: int
    layer: Layer
    phase: Phase
    added_elements: tuple[int, ...]
    ready: tuple[Parameter, ...]


@once
def needs_gradient(network: Network) -> Sequence[bool]:
    """Return of each tensor whether a gradient flows to it: a trained parameter stands before it, here or elsewhere."""
    needed = [number in network.trained_inputs for number in range(len(network.elements))]
    for layer in network.layers:
        needed[layer.output] = bool(layer.trained) or any(needed[i] for i in layer.inputs)
    return needed


@once
def storages(network: Network) -> Sequence[int]:
    """Return of each tensor the one in whose memory it lies: itself, or what was changed in place."""
    places = list(range(len(network.elements)))
    for layer in network.layers:
        if layer.in_place:
            places[layer.output] = places[layer.inputs[0]]
    return places


def read_elements(network: Network, layer: Layer, position: int) -> int:
    """Return how many elements of its input *position* the layer reads: of a view, those that it shows.

    So queries, keys and values that lie in one tensor have gradients of a third of it each.
    """
    operator, whole = layer.operator, network.elements[layer.inputs[position]]
    match operator:
        case MatMul():
            shown = operator.batch * operator.k * (operator.n if position else operator.m)
        case Attention():
            heads = (operator.kv_heads or operator.heads) if position else operator.heads
            length = operator.key_length if position else operator.query_length
            size = operator.value_size or operator.head_size if position == 2 else operator.head_size
            shown = operator.batch * heads * length * size
        case Elementwise():
            shown = operator.part_of or operator.elements
        case Copy() if len(layer.inputs) == 1:
            shown = operator.elements
        case _:
            shown = whole
    return min(shown, whole)


def backward_phase(layer: Layer, needed: Sequence[bool]) -> Phase | None:
    """Return what of the backward pass of *layer* runs: that of its data, of its parameters, both or neither."""
    data = any(needed[i] for i in layer.inputs)
    if data:
        return "bwd" if layer.trained else "bwd_data"
    return "bwd_weight" if layer.trained else None


@once
def backward_steps(network: Network) -> tuple[BackwardStep, ...]:
    """Return the backward pass of each layer that has one, last layer first."""
    needed = needs_gradient(network)
    first: dict[str, int] = {}
    for i, layer in enumerate(network.layers):
        for parameter in layer.trained:
            first.setdefault(parameter.name, i)
    there: set[int] = set()
    parameters_there: set[str] = set()
    found = []
    for i in reversed(range(len(network.layers))):
        layer = network.layers[i]
        phase = backward_phase(layer, needed)
        if phase is None:
            continue
        added = []
        for position, tensor in enumerate(layer.inputs):
            if needed[tensor]:
                if tensor in there:
                    added.append(read_elements(network, layer, position))
                there.add(tensor)
        for parameter in layer.trained:
            if parameter.name in parameters_there:
                added.append(parameter.elements)
            parameters_there.add(parameter.name)
        ready = tuple(p for p in layer.trained if first[p.name] == i)
        found.append(BackwardStep(i, layer, phase, tuple(added), ready))
    return tuple(found)


def gradient_order(network: Network) -> list[str]:
    """Return the names of the parameters in the order in which their gradients are complete."""
    return [parameter.name for step in backward_steps(network) for parameter in step.ready]


@once
def training_flop(network: Network) -> int:
    """Return FLOPs of one forward and backward pass, as FlopCounterMode counts.

    A product costs its own FLOPs again for each of its two inputs that needs a gradient;
    fused attention computes the scores anew, five products for the two of the forward pass;
    the state that a recurrent layer begins with needs no gradient.
    """
    needed = needs_gradient(network)
    total = network.flop
    for layer in network.layers:
        operator, flop = layer.operator, layer.operator.flop
        match operator:
            case MatMul():
                total += flop * sum(needed[i] for i in layer.inputs)
            case Attention():
                total += operator.backward_flop if any(needed[i] for i in layer.inputs) else 0
            case Recurrent():
                first = 2 * operator.batch * operator.gates * operator.hidden
                total += 2 * flop - first * operator.hidden
                total -= 0 if needed[layer.inputs[0]] else operator.timesteps * first * operator.inputs
            case _ if flop:  # others may read nothing
                total += flop * (bool(layer.trained) + needed[layer.inputs[0]])
    return total
