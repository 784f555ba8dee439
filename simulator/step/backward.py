"""The backward pass of each layer, and where gradients add up.

A tensor that several layers read gets a gradient from each; from the second on, automatic
differentiation adds it to what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.workload.backward import backward_layers, needs_gradient, read_elements
from simulator.workload.network import Layer, Network
from simulator.workload.operators import Phase

__all__ = ["BackwardStep", "backward_steps", "gradient_order"]


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """The backward pass of one layer.

    ``phase`` says which gradients it computes.  ``added_elements`` are those of gradients that are
    added to one that another layer left.  ``ready`` names the parameters whose gradients are complete then.
    """

    layer: Layer
    phase: Phase
    added_elements: tuple[int, ...]
    ready: tuple[str, ...]


def backward_steps(network: Network) -> Iterator[BackwardStep]:
    """Yield the backward pass of each layer that has one, last layer first."""
    needed = needs_gradient(network)
    there: set[int] = set()
    parameters_there: set[str] = set()
    for index, phase, ready in backward_layers(network):
        layer = network.layers[index]
        added = []
        for position, tensor in enumerate(layer.inputs):
            if needed[tensor]:
                if tensor in there:
                    added.append(read_elements(network, layer, position))
                there.add(tensor)
        for parameter in layer.parameters:
            if parameter.name in parameters_there:
                added.append(parameter.elements)
            parameters_there.add(parameter.name)
        yield BackwardStep(layer, phase, tuple(added), tuple(parameter.name for parameter in ready))


def gradient_order(network: Network) -> list[str]:
    """Return the names of the parameters in the order in which their gradients are complete."""
    return [parameter.name for _, _, ready in backward_layers(network) for parameter in ready]
