"""The time of a matrix product and the way it is cut: what the product models share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.devices.cost import Bound, bound_of

_WAVES = (1, 2, 4)  # numbers of waves that splitting k may fill
_MOST_PARTS = 64
_LEAST_K = 64  # smallest k of a part


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile on a device: its sides, the rate of an SM that computes it, and its overheads."""

    columns: int
    rows: int
    sm_flops_per_s: float
    alone: float  # tiles that keep an SM fully busy; fewer take as long as this many
    edge_s: float  # start and end of a tile, in seconds


@dataclass(frozen=True, slots=True)
class ProductTime:
    """The time of a product, its tile and number of parts of k, and the time that each resource alone would take."""

    time_s: float
    tile: Tile
    parts: int
    compute_s: float
    memory_s: float
    l2_s: float
    walk_s: float  # address translation
    latency_s: float = 0.0  # memory latency of the stages, one after the other
    piece_bytes: int = 16  # size of operand transfers, where it depends on the alignment of rows

    @property
    def bound(self) -> Bound:
        """The resource that takes most of the time."""
        return bound_of(self.time_s, self.compute_s, max(self.memory_s, self.l2_s, self.walk_s))


def parts_of_k(k: int, sm_count: int, tiles: int) -> set[int]:
    """Return the numbers of parts into which k may be split, so that parts times *tiles* fill 1, 2 or 4 waves."""
    most = min(_MOST_PARTS, -(-k // _LEAST_K))
    return {1, *(max(1, min(most, waves * sm_count // tiles)) for waves in _WAVES)}


def sides_of_wave(rows: int, columns: int, tile: Tile, tiles_at_once: float) -> tuple[float, float]:
    """Return the rows and columns of tiles that a wave covers: about as many rows as columns of C.

    Each of these rows and columns is read once for the wave.
    """
    tall = min(max(math.sqrt(tiles_at_once * tile.columns / tile.rows), 1.0), rows)
    wide = min(max(tiles_at_once / tall, 1.0), columns)
    return min(max(tiles_at_once / wide, 1.0), rows), wide
