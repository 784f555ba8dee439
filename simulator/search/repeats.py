"""A network with fewer of its equal blocks, enough to find the cost and memory of one (:func:`shortened`)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.records import dataclass, replace
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.split.stages import units_of

KEPT = 3  # equal blocks that are kept: the middle one has an equal block on either side


@dataclass(frozen=True, eq=False)
class ShortNetwork:
    """``network`` without ``left_out`` of its equal blocks; ``unit_count`` is the number of units of the whole.

    A unit is a block with the layers that follow it outside any block, or a single layer where nothing repeats.
    """

    network: Network
    unit_count: int
    left_out: int

    def like(self, unit: int) -> int:
        """Return the unit of ``network`` that stands for *unit* of the whole: the middle one for repeated blocks."""
        if not self.left_out or unit == 0:
            return unit
        return KEPT + 1 if unit == self.unit_count - 1 else 2


@once
def shortened(network: Network) -> ShortNetwork:
    """Return *network* with three of the blocks between its first and its last, where all of those are alike."""
    units = units_of(network)
    middle = units[1:-1]
    if len(middle) <= KEPT or any(_shape(unit) != _shape(middle[0]) for unit in middle):
        return ShortNetwork(network, len(units), 0)
    stands_for: dict[int, int] = {}  # outputs of omitted blocks, with the kept outputs that replace them
    for unit in middle[KEPT:]:
        for layer, other in zip(unit, middle[KEPT - 1], strict=True):
            stands_for[layer.output] = other.output
    last = [replace(layer, inputs=tuple(stands_for.get(t, t) for t in layer.inputs)) for layer in units[-1]]
    layers = [layer for unit in (units[0], *middle[:KEPT], last) for layer in unit]
    return ShortNetwork(replace(network, layers=tuple(layers)), len(units), len(middle) - KEPT)


def _shape(unit: Sequence[Layer]) -> object:
    return [(layer.operator, [p.elements for p in layer.parameters], bool(block_name(layer.name))) for layer in unit]


def partial_network(network: Network, layers: Sequence[Layer]) -> Network:
    """Return some *layers* of *network* as a network of their own, whose inputs other layers may have written."""
    written = {layer.output for layer in layers}
    before = {layer.output for layer in network.layers} - written
    read = {tensor for layer in layers for tensor in layer.inputs}
    return replace(network, layers=tuple(layers), trained_inputs=frozenset(read & before))
