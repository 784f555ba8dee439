"""The NVLink graph among chosen GPUs, in units of one link."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.network.machine import Machine
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
    found = [
        link
        for gpu in gpus
        for link in machine.outgoing[gpu]
        if link.kind in GPU_LINKS and machine.nodes[link.dst].kind == "gpu"
    ]
    if not found:
        return None
    around = sorted({link.dst for link in found} | set(gpus))
    links = [
        link
        for gpu in around
        for link in machine.outgoing[gpu]
        if link.kind in GPU_LINKS and machine.nodes[link.dst].kind == "gpu"
    ]
    unit = min(link.unit_Bps for link in links)
    units: dict[int, dict[int, int]] = {}
    for link in links:
        row = units.setdefault(link.src, {})
        row[link.dst] = row.get(link.dst, 0) + int(link.bandwidth_Bps / unit * (1 + 1e-9))
    return LinkGraph(unit, units)
