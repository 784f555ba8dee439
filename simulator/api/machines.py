"""Machines by name."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import refused
from simulator.network.circumstances import machine_of, passing
from simulator.network.machine import Machine
from simulator.plan.plan import Perturbation
from simulator.questions.where import Neighbour, SlowLink
from simulator.topology.load import load_topology


def load_machine(
    topology: str,
    *,
    n_nodes: int | None = None,
    fabric: str | None = None,
    slow_links: Sequence[SlowLink] = (),
    neighbours: Sequence[Neighbour] = (),
) -> Machine:
    """Return the compiled machine of a topology file, a built-in name or a part.

    Raises InputError with every fault of the file, if *fabric* is given for a single machine, or if *slow_links* or
    *neighbours* name something that does not exist.
    """
    return machine_of(load_topology(topology, n_nodes=n_nodes, fabric=fabric), slow_links, neighbours)


def perturbations_of(machine: Machine, slow_links: Sequence[SlowLink]) -> tuple[Perturbation, ...]:
    """Return the perturbations of *machine* by *slow_links* that start or end during a run; raises InputError."""
    return tuple(Perturbation(at_s, target, factor) for at_s, target, factor in passing(machine, slow_links))


def refuse_passing(slow_links: Sequence[SlowLink], what: str) -> None:
    """Raise InputError if one of *slow_links* starts or ends during a run, as *what* is priced without one timeline."""
    for slow in slow_links:
        if slow.is_passing:
            raise refused(
                "slow_links",
                f"with a time it applies to exchanges and to steps of replicas or shards, not to {what}",
                slow.ends,
            )
