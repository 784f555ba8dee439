"""Which gradients a network needs, and where they add up.

A tensor needs a gradient where a parameter stands before it.  A tensor that several layers
read gets a gradient from each; from the second on, automatic differentiation adds it to what
is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.workload.network import Layer, Network
from simulator.workload.operators import Attention, MatMul, Phase

__all__ = ["BackwardStep", "backward_flop", "backward_steps", "gradient_order"]


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """The backward pass of one layer.

    ``phase`` says which gradients it computes, None for those that only hand theirs on.
    ``added_elements`` are those of gradients that are added to one that another layer left.
    ``ready`` names the parameters whose gradients are complete then.
    """

    layer: Layer
    phase: Phase | None
    added_elements: tuple[int, ...]
    ready: tuple[str, ...]


def backward_steps(network: Network) -> Iterator[BackwardStep]:
    """Yield the backward pass of each layer that has one, last layer first."""
    needs = _needing_gradients(network)
    uses_left: dict[str, int] = {}
    for layer in network.layers:
        for parameter in layer.parameters:
            uses_left[parameter.name] = uses_left.get(parameter.name, 0) + 1
    shared = {name for name, uses in uses_left.items() if uses > 1}
    has_gradient: set[int] = set()
    parameter_gradients: set[str] = set()
    for layer in reversed(network.layers):
        if layer.output not in needs:
            continue
        inputs = [tensor for tensor in layer.inputs if tensor in needs]
        added = [network.elements[tensor] for tensor in inputs if tensor in has_gradient]
        has_gradient.update(inputs)
        ready = []
        for parameter in layer.parameters:
            if parameter.name in shared and parameter.name in parameter_gradients:
                added.append(parameter.elements)
            parameter_gradients.add(parameter.name)
            uses_left[parameter.name] -= 1
            if not uses_left[parameter.name]:
                ready.append(parameter.name)
        yield BackwardStep(layer, _phase(bool(inputs), bool(layer.parameters)), tuple(added), tuple(ready))


def gradient_order(network: Network) -> list[str]:
    """Return the names of the parameters in the order in which their gradients are complete."""
    return [name for step in backward_steps(network) for name in step.ready]


def backward_flop(network: Network) -> int:
    """Return the FLOPs of the backward pass: one product for each gradient of a product's factors."""
    flop = 0
    for step in backward_steps(network):
        both = step.phase == "bwd" or isinstance(step.layer.operator, MatMul | Attention)
        flop += step.layer.operator.flop * (0 if step.phase is None else 2 if both else 1)
    return flop


def _needing_gradients(network: Network) -> set[int]:
    needs: set[int] = set()
    for layer in network.layers:
        if layer.parameters or any(tensor in needs for tensor in layer.inputs):
            needs.add(layer.output)
    return needs


def _phase(data: bool, weight: bool) -> Phase | None:
    if data and weight:
        return "bwd"
    if weight:
        return "bwd_weight"
    return "bwd_data" if data else None
