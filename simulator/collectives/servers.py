"""Placement of parameter servers: :func:`place_servers`."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.request import Unsuitable
from simulator.errors import nearest
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.spelling import mention

OWN, WORKERS = "own", "workers"


def worker_cpu(router: Router, gpu: int) -> int:
    """Return the CPU through which a node pushes, given its first participating *gpu*.

    Raises Unsuitable if no CPU is linked to the GPU.
    """
    cpu = router.nearest_cpu(gpu)
    if cpu is None:
        raise Unsuitable(f"no CPU is linked to {router.machine.nodes[gpu].name}")
    return cpu


def place_servers(
    machine: Machine, cpus: Sequence[int], count: int | None, places: tuple[str, ...] = ()
) -> tuple[int, ...]:
    """Return the node of each server, always a CPU.

    Parameters
    ----------
    cpus : sequence of int
        The CPU of each working node.
    count : int, optional
        The number of servers; by default one at each place.
    places : tuple of str
        ``("own",)``: the first CPU of each machine without GPUs.  ``("workers",)``: *cpus*.  Otherwise names of CPUs.
        If empty: ``own`` if there are such machines, else ``workers``.

    Raises Unsuitable if there are fewer places than servers, more named places than servers, or no such place.
    """
    own = _own(machine)
    if places == (OWN,) and not own:
        raise Unsuitable(f"every node has GPUs, so no server has a machine of its own; {mention('servers', 'workers')}")
    if not places:
        places = (OWN,) if own else (WORKERS,)
    if places == (OWN,):
        found, what = own, "machine without GPUs"
    elif places == (WORKERS,):
        found, what = list(cpus), "node"
    else:
        found, what = [_named(machine, name) for name in places], "place"
    if count is None:
        return tuple(found)
    if count < 1:
        raise Unsuitable("there must be a server; name 1 or more")
    if count > len(found):
        if what == "node":
            there = "one node takes part" if len(found) == 1 else f"{len(found)} nodes take part"
        else:
            there = "there is one" if len(found) == 1 else f"there are {len(found)}"
        raise Unsuitable(f"{count} servers need a {what} each, and {there}")
    if what == "place" and count < len(found):
        stands = "one server stands" if count == 1 else f"{count} servers stand"
        raise Unsuitable(
            f"{stands} somewhere, and {mention('servers')} names {len(found)} places; parameter-server-sharded has all"
        )
    return tuple(found[:count])


def _own(machine: Machine) -> list[int]:
    """Return the first CPU of each machine without GPUs."""
    working = {machine.nodes[gpu].host for gpu in machine.gpus}
    first: dict[int, int] = {}
    for node in machine.nodes:
        if node.kind == "cpu" and node.host not in working:
            first.setdefault(node.host, node.index)
    return list(first.values())


def _named(machine: Machine, name: str) -> int:
    node = machine.find(name)
    if node is None or node.kind != "cpu":
        known = [node.name for node in machine.nodes if node.kind == "cpu"]
        raise Unsuitable(f"no CPU is called '{name}'; {nearest(name, known) or 'there is none'}")
    return node.index
