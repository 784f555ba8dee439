"""Fusion by compilers: element-wise operators share one pass over memory.

A group is a run of layers, each of which reads a result of an earlier layer in the group; at most one of them reduces
over rows (a normalisation, a softmax).  The group's kernel reads only external inputs and writes only results that are
read outside the group.  In the backward pass, the group is recomputed from its inputs, so nothing else is saved. (As
in TorchInductor; Ansel et al., "PyTorch 2", ASPLOS 2024, sections 4 and 5.)
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import BatchNorm, Copy, Elementwise, LayerNorm, Softmax

__all__ = ["Group", "groups_of"]

_ELEMENTWISE = (Elementwise, Copy)
_REDUCING = (BatchNorm, LayerNorm, Softmax)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that run as one kernel; a group of one layer runs that layer's own kernels.

    ``reads`` and ``writes`` are the tensors read from and written to memory.
    """

    layers: tuple[Layer, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def reduction(self) -> Layer | None:
        """The layer that reduces over rows, or None."""
        return next((layer for layer in self.layers if isinstance(layer.operator, _REDUCING)), None)


@once
def groups_of(network: Network) -> tuple[Group, ...]:
    """Return the layers of *network* in order, in fused groups."""
    last_reader: dict[int, int] = {}
    for place, layer in enumerate(network.layers):
        for tensor in layer.inputs:
            last_reader[tensor] = place
    groups = []
    start = 0
    while start < len(network.layers):
        end = _end(network.layers, start)
        groups.append(_made(network, network.layers[start:end], end, last_reader))
        start = end
    return tuple(groups)


def _end(layers: tuple[Layer, ...], start: int) -> int:
    """Return the end (exclusive) of the group that starts at index *start*."""
    first = layers[start]
    if not isinstance(first.operator, _ELEMENTWISE + _REDUCING):
        return start + 1
    written = {first.output}
    reduces = isinstance(first.operator, _REDUCING)
    end = start + 1
    while end < len(layers):
        layer = layers[end]
        if not written.intersection(layer.inputs):
            break
        if isinstance(layer.operator, _REDUCING):
            if reduces:
                break
            reduces = True
        elif not isinstance(layer.operator, _ELEMENTWISE):
            break
        written.add(layer.output)
        end += 1
    return end


def _made(network: Network, layers: tuple[Layer, ...], end: int, last_reader: dict[int, int]) -> Group:
    written = {layer.output for layer in layers}
    reads = dict.fromkeys(tensor for layer in layers for tensor in layer.inputs if tensor not in written)
    last = len(network.layers)
    writes = [
        layer.output
        for layer in layers
        if last_reader.get(layer.output, last) >= end  # read outside, or a result of the network
    ]
    return Group(layers, tuple(reads), tuple(dict.fromkeys(writes)))
