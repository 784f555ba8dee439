"""Notes on transfers that reach the network through host memory, with the reason: :func:`staging_notes`."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.network.machine import Machine
from simulator.plan.plan import Plan
from simulator.topology.parts import NicPart

STAGED = "bytes go to the NIC through host memory"


def staging_notes(machine: Machine, plans: Iterable[Plan]) -> list[str]:
    """Return a note if any of *plans* sends bytes to a NIC through host memory, otherwise an empty list."""
    staged = next((plan.staged for plan in plans if plan.staged is not None), None)
    if staged is None:
        return []
    ends = {end for index, _ in staged.links for end in (machine.links[index].src, machine.links[index].dst)}
    parts = {node.index: node.part for node in (machine.nodes[end] for end in sorted(ends))}
    if any(isinstance(part, NicPart) and not part.gpudirect for part in parts.values()):
        return [f"{STAGED}: the NIC has no GPUDirect (gpudirect: true in its part, or under devices)"]
    return [f"{STAGED}: no GPUDirect over that distance (transport.gpudirect_rdma)"]
