"""The NVLink graph among chosen GPUs, in units of one link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.network.machine import Link, Machine
from simulator.topology.parts import GPU_LINKS

__all__ = ["MOST_AT_ONCE", "LinkGraph", "link_graph"]

MOST_AT_ONCE = 64  # rings or trees beside each other: each is a channel, of which NCCL runs as many at most
_MOST_UNITS = 2 * MOST_AT_ONCE  # that so many can use of what a GPU has


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Direct links between GPUs: ``units[a][b]`` links of ``unit_Bps`` from node a to node b.

    Links of different speeds count as so many whole units of the slowest.  Where that would make more rings than can
    run at once, the unit is the link's speed at which those that can may carry most; slower links then count nothing.
    ``whole`` says whether nothing is left out so.
    """

    unit_Bps: float
    units: dict[int, dict[int, int]]
    whole: bool = True

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
    speeds = sorted({link.unit_Bps for link in links})
    graph = _counted(links, speeds[0])
    if _least(graph, gpus) <= _MOST_UNITS:
        return graph
    reach = {speed: speed * min(_least(_counted(links, speed), gpus), _MOST_UNITS) for speed in speeds}
    graph = _counted(links, max(speeds, key=reach.__getitem__))
    units = {a: {b: min(n, _MOST_UNITS) for b, n in row.items()} for a, row in graph.units.items()}
    return LinkGraph(graph.unit_Bps, units, whole=False)


def _counted(links: Iterable[Link], unit_Bps: float) -> LinkGraph:
    """Return the graph with each link as its whole units."""
    units: dict[int, dict[int, int]] = {}
    for link in links:
        n = int(link.bandwidth_Bps / unit_Bps * (1 + 1e-9))
        if n:
            row = units.setdefault(link.src, {})
            row[link.dst] = row.get(link.dst, 0) + n
    return LinkGraph(unit_Bps, units)


def _least(graph: LinkGraph, gpus: tuple[int, ...]) -> int:
    """Return how many units the GPU with the fewest has."""
    return min(sum(graph.units.get(gpu, {}).values()) for gpu in gpus)
