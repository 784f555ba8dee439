"""What the backward pass of a network does: which layers, in which order, and when gradients are ready.

As an automatic differentiation goes through the layers: last to first, skipping what no
parameter stands before.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operators import Attention, Copy, Elementwise, MatMul, Phase, Recurrent

__all__ = ["backward_layers", "backward_phase", "needs_gradient", "read_elements", "storages", "training_flop"]


def needs_gradient(network: Network) -> list[bool]:
    """Return of each tensor whether a gradient flows to it: whether a parameter stands before it."""
    needed = [False] * len(network.elements)
    for layer in network.layers:
        needed[layer.output] = bool(layer.parameters) or any(needed[i] for i in layer.inputs)
    return needed


def storages(network: Network) -> list[int]:
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
            shown = operator.batch * heads * length * operator.head_size
        case Elementwise():
            shown = operator.elements
        case Copy() if len(layer.inputs) == 1:
            shown = operator.elements
        case _:
            shown = whole
    return min(shown, whole)


def backward_phase(layer: Layer, needed: list[bool]) -> Phase | None:
    """Return what of the backward pass of *layer* runs: that of its data, of its parameters, both or neither."""
    data = any(needed[i] for i in layer.inputs)
    if data:
        return "bwd" if layer.parameters else "bwd_data"
    return "bwd_weight" if layer.parameters else None


def backward_layers(network: Network) -> Iterator[tuple[int, Phase, tuple[Parameter, ...]]]:
    """Yield the layers of the backward pass in its order.

    Yields
    ------
    index : int
        Of the layer.
    phase : str
        What of it runs.
    ready : tuple of Parameter
        Those whose gradients are complete after it: a parameter that several layers share is
        complete after the first of them, which comes last.

    """
    needed = needs_gradient(network)
    first: dict[Parameter, int] = {}
    for i, layer in enumerate(network.layers):
        for parameter in layer.parameters:
            first.setdefault(parameter, i)
    for i in reversed(range(len(network.layers))):
        layer = network.layers[i]
        phase = backward_phase(layer, needed)
        if phase is not None:
            yield i, phase, tuple(p for p in layer.parameters if first[p] == i)


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
                total += flop * 5 // 2 if any(needed[i] for i in layer.inputs) else 0
            case Recurrent():
                first = 2 * operator.batch * operator.gates * operator.hidden
                total += 2 * flop - first * operator.hidden
                total -= 0 if needed[layer.inputs[0]] else operator.timesteps * first * operator.inputs
            case _ if flop:  # others may read nothing
                total += flop * (bool(layer.parameters) + needed[layer.inputs[0]])
    return total
