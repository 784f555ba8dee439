"""What a product of matrices takes, and how it is cut: what the models of products have in common."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.devices.cost import Bound, bound_of

__all__ = ["ProductTime", "Tile"]


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

    @property
    def bound(self) -> Bound:
        """What takes longest."""
        return bound_of(self.time_s, self.compute_s, max(self.memory_s, self.l2_s, self.walk_s))
