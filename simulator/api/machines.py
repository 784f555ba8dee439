"""Machines by name."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import InputError
from simulator.network.circumstances import machine_of, passing
from simulator.network.machine import Machine
from simulator.plan.plan import Perturbation
from simulator.questions.where import Neighbour, SlowLink
from simulator.topology.load import load_topology

__all__ = ["load_machine", "perturbations_of", "refuse_passing"]


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


def perturbations_of(machine: Machine, slow_links: Sequence[SlowLink]) -> tuple[Perturbation, ...]:
    """Return what those of *slow_links* that come or go while something runs do to *machine*; raises InputError."""
    return tuple(Perturbation(at_s, target, factor) for at_s, target, factor in passing(machine, slow_links))


def refuse_passing(slow_links: Sequence[SlowLink], what: str) -> None:
    """Raise InputError where one of *slow_links* comes or goes, of *what* is priced before its times are known."""
    for slow in slow_links:
        if slow.is_passing:
            raise InputError(
                f"--slow-link {slow.ends}: with a time it is for exchanges and for steps of replicas or shards; {what} "
                "is put together from parts that are simulated each by itself"
            )
