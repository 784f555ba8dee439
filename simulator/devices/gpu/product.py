"""What a product of matrices takes, and how it is cut: what the models of products have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.devices.cost import Bound, bound_of

__all__ = ["ProductTime", "Tile", "parts_of_k", "sides_of_wave"]

_WAVES = (1, 2, 4)  # that k may be split to fill
_MOST_PARTS = 64
_LEAST_K = 64  # of a part


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile on a device: its sides, what an SM computes of it, and what it costs to have one."""

    columns: int
    rows: int
    sm_flops_per_s: float
    alone: float  # tiles an SM needs to be fully busy; fewer take as long as so many
    edge_s: float  # start and end of a tile


@dataclass(frozen=True, slots=True)
class ProductTime:
    """What a product takes, and how: its tile, the parts of k, and what each resource alone would take."""

    time_s: float
    tile: Tile
    parts: int
    compute_s: float
    memory_s: float
    l2_s: float
    walk_s: float  # translating addresses
    latency_s: float = 0.0  # of memory, one stage after the other
    piece_bytes: int = 16  # that operands come in, where that depends on how rows are aligned

    @property
    def bound(self) -> Bound:
        """What takes longest."""
        return bound_of(self.time_s, self.compute_s, max(self.memory_s, self.l2_s, self.walk_s))


def parts_of_k(k: int, sm_count: int, tiles: int) -> set[int]:
    """Return into how many parts *k* may be split: so that all SMs have one, two, four of *tiles* times parts."""
    most = min(_MOST_PARTS, -(-k // _LEAST_K))
    return {1, *(max(1, min(most, waves * sm_count // tiles)) for waves in _WAVES)}


def sides_of_wave(rows: int, columns: int, tile: Tile, tiles_at_once: float) -> tuple[float, float]:
    """Return how many of *rows* and of *columns* of tiles a wave covers: about as many rows as columns of C.

    Each of them is read once for the wave.
    """
    tall = min(max(math.sqrt(tiles_at_once * tile.columns / tile.rows), 1.0), rows)
    wide = min(max(tiles_at_once / tall, 1.0), columns)
    return min(max(tiles_at_once / wide, 1.0), rows), wide
