"""The backward pass of a network: its layers, their order, and when each gradient is ready.

The order is that of automatic differentiation: from the last layer to the first, skipping layers with no trained
parameter at or before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.records import dataclass
from simulator.workload.network import Layer, Network, Parameter, once
from simulator.workload.operators import Phase


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """The backward pass of layer ``index``.

    ``phase`` names the gradients that it computes.  ``added_elements`` are the sizes of the gradients that it adds to
    an existing one: a tensor or parameter that several layers read gets a gradient from each of them.  ``ready`` lists
    the parameters whose gradients are then complete; a shared parameter's gradient is complete after its first layer
    in forward order, whose backward pass runs last.
    """

    index: int
    layer: Layer
    phase: Phase
    added_elements: tuple[int, ...]
    ready: tuple[Parameter, ...]


@once
def needs_gradient(network: Network) -> Sequence[bool]:
    """Return for each tensor whether a gradient flows to it, because a trained parameter precedes it.

    The parameter may be in this network or, for ``trained_inputs``, on another device.
    """
    needed = [number in network.trained_inputs for number in range(len(network.elements))]
    for layer in network.layers:
        needed[layer.output] = bool(layer.trained) or any(needed[i] for i in layer.inputs)
    return needed


@once
def storages(network: Network) -> Sequence[int]:
    """Return for each tensor the number of the tensor whose memory it uses: its own, or its in-place source's."""
    places = list(range(len(network.elements)))
    for layer in network.layers:
        if layer.in_place:
            places[layer.output] = places[layer.inputs[0]]
    return places


def read_elements(network: Network, layer: Layer, position: int) -> int:
    """Return how many elements of input *position* the layer reads; of a view, only the elements in the view.

    For example, if queries, keys and values are views of one tensor, the gradient of each is a third of its size.
    """
    return layer.operator.read_elements(position, len(layer.inputs), network.elements[layer.inputs[position]])


@once
def backward_steps(network: Network) -> tuple[BackwardStep, ...]:
    """Return the backward passes of all layers that have one, last layer first."""
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
        of_inputs, of_weights = any(needed[tensor] for tensor in layer.inputs), bool(layer.trained)
        if not of_inputs and not of_weights:
            continue
        phase: Phase = "bwd" if of_inputs and of_weights else "bwd_data" if of_inputs else "bwd_weight"
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
    """Return the names of the parameters in the order in which their gradients become complete."""
    return [parameter.name for step in backward_steps(network) for parameter in step.ready]


@once
def training_flop(network: Network) -> int:
    """Return the FLOPs of one forward and backward pass, as FlopCounterMode counts them."""
    needed = needs_gradient(network)
    return network.flop + sum(
        layer.operator.backward_flop(bool(layer.trained), [needed[tensor] for tensor in layer.inputs])
        for layer in network.layers
    )
