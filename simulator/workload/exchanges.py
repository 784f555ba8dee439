"""Which exchanges each layer of a divided network waits for.

The layers of a device run one after the other, and exchanges run beside them; a layer waits for the exchanges that
produce its inputs.
"""

from __future__ import annotations

from simulator.workload.network import Network, once
from simulator.workload.operators import Exchange


@once
def forward_needs(network: Network) -> dict[str, tuple[str, ...]]:
    """Return, by layer name, the forward-pass exchanges that produce the layer's inputs."""
    brought: dict[int, tuple[str, ...]] = {}  # by tensor
    found: dict[str, tuple[str, ...]] = {}
    for layer in network.layers:
        needs = tuple(dict.fromkeys(name for tensor in layer.inputs for name in brought.get(tensor, ())))
        if needs:
            found[layer.name] = needs
        if isinstance(layer.operator, Exchange):
            brought[layer.output] = (layer.name,) if layer.operator.forward is not None else needs
        else:
            brought.pop(layer.output, None)
    return found


def backward_needs(network: Network) -> dict[str, tuple[str, ...]]:
    """Return, by layer name, the backward-pass exchanges that produce the gradient of the layer's output."""
    return _backward(network)[0]


def added_needs(network: Network) -> dict[str, tuple[str, ...]]:
    """Return, by layer name, the backward-pass exchanges that produce parts of its inputs' gradients, to be added."""
    return _backward(network)[1]


@once
def _backward(network: Network) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    brought: dict[int, dict[str, None]] = {}
    found: dict[str, tuple[str, ...]] = {}
    added: dict[str, tuple[str, ...]] = {}
    for layer in reversed(network.layers):
        needs = tuple(brought.pop(layer.output, ()))
        if needs:
            found[layer.name] = needs
        if isinstance(layer.operator, Exchange):
            names = (layer.name,) if layer.operator.backward is not None else needs
            for tensor in layer.inputs:
                brought.setdefault(tensor, {}).update(dict.fromkeys(names))
        parts = tuple(dict.fromkeys(name for tensor in layer.inputs for name in brought.get(tensor, ())))
        if parts:
            added[layer.name] = parts
    return found, added
