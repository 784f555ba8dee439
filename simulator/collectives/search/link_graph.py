"""The NVLink graph among chosen GPUs, in units of one link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.network.machine import Link, Machine
from simulator.topology.parts import GPU_LINKS

__all__ = ["LinkGraph", "link_graph"]


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Direct links between GPUs: ``units[a][b]`` links of ``unit_Bps`` from node a to node b.

    Links of different speeds count as so many whole units of the slowest.
    """

    unit_Bps: float
    units: dict[int, dict[int, int]]

    def between(self, a: int, b: int) -> int:
        """Return how many units lead from a to b."""
        return self.units.get(a, {}).get(b, 0)


def link_graph(machine: Machine, gpus: tuple[int, ...]) -> LinkGraph | None:
    """Return the graph of direct links among *gpus* and their GPU neighbours, or None without any."""

    def leaving(nodes: Iterable[int]) -> list[Link]:
        found = (link for node in nodes for link in machine.outgoing[node] if link.kind in GPU_LINKS)
        return [link for link in found if machine.nodes[link.dst].kind == "gpu"]

    near = leaving(gpus)
    if not near:
        return None
    links = leaving(sorted({link.dst for link in near} | set(gpus)))
    unit = min(link.unit_Bps for link in links)
    units: dict[int, dict[int, int]] = {}
    for link in links:
        row = units.setdefault(link.src, {})
        row[link.dst] = row.get(link.dst, 0) + int(link.bandwidth_Bps / unit * (1 + 1e-9))
    return LinkGraph(unit, units)
