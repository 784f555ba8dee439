"""The graph of direct GPU links (NVLink, xGMI) among chosen GPUs, in units of one link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.network.machine import Link, Machine
from simulator.topology.parts import GPU_LINKS

MOST_AT_ONCE = 64  # rings or trees; each is a channel, and NCCL runs at most 64 channels
_MOST_UNITS = 2 * MOST_AT_ONCE  # units per GPU that this many rings can use


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Direct links between GPUs: ``units[a][b]`` links of ``unit_Bps`` from node a to node b.

    Faster links count as whole multiples of the slowest.  If that would give more rings than can run at once, the unit
    is the link speed that maximises the total rate of the rings that can run; slower links are then ignored.  ``whole``
    is False in that case.
    """

    unit_Bps: float
    units: dict[int, dict[int, int]]
    whole: bool = True

    def between(self, a: int, b: int) -> int:
        """Return the number of units from node *a* to node *b*."""
        return self.units.get(a, {}).get(b, 0)


def link_graph(machine: Machine, gpus: tuple[int, ...]) -> LinkGraph | None:
    """Return the graph of direct links among *gpus* and their GPU neighbours, or None if there are none."""

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
    """Return the graph in which each link counts as its whole multiples of *unit_Bps*."""
    units: dict[int, dict[int, int]] = {}
    for link in links:
        n = int(link.bandwidth_Bps / unit_Bps * (1 + 1e-9))
        if n:
            row = units.setdefault(link.src, {})
            row[link.dst] = row.get(link.dst, 0) + n
    return LinkGraph(unit_Bps, units)


def _least(graph: LinkGraph, gpus: tuple[int, ...]) -> int:
    """Return the number of outgoing units of the GPU with the fewest."""
    return min(sum(graph.units.get(gpu, {}).values()) for gpu in gpus)
