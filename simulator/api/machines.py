"""Machines by name."""

from __future__ import annotations

from simulator.network.machine import Machine, compile_machine
from simulator.topology.load import load_topology

__all__ = ["load_machine"]


def load_machine(topology: str, *, n_nodes: int | None = None, fabric: str | None = None) -> Machine:
    """Return the machine of a topology file, a built-in name or a part, compiled for simulation.

    Raises InputError with every fault of the file; or where *fabric* is named for a single machine.
    """
    return compile_machine(load_topology(topology, n_nodes=n_nodes, fabric=fabric))
