"""Machines by name."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.network.circumstances import machine_of
from simulator.network.machine import Machine
from simulator.questions.where import Neighbour, SlowLink
from simulator.topology.load import load_topology

__all__ = ["load_machine"]


def load_machine(
    topology: str,
    *,
    n_nodes: int | None = None,
    fabric: str | None = None,
    slow_links: Sequence[SlowLink] = (),
    neighbours: Sequence[Neighbour] = (),
) -> Machine:
    """Return the machine of a topology file, a built-in name or a part, compiled for simulation.

    Raises InputError with every fault of the file; or where *fabric* is named for a single machine, or *slow_links* or
    *neighbours* for what is not there.
    """
    return machine_of(load_topology(topology, n_nodes=n_nodes, fabric=fabric), slow_links, neighbours)
