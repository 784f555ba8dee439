"""Devices that are slower than others of their part: :func:`pace_of`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from simulator.errors import InputError, nearest
from simulator.network.machine import Machine
from simulator.network.named import devices, expanded, hosts, names_several

__all__ = ["check_stragglers", "pace_of"]

_NUMBERED = re.compile(r"gpu(?:\d{1,6}|\[[^\]]*\])", re.ASCII)


def pace_of(machine: Machine, node: int, stragglers: Sequence[tuple[str, float]]) -> float:
    """Return the time of *node* relative to the mean of its part."""
    pace = 1.0
    for name, factor in stragglers:
        if any(node in meant for meant in _meant(machine, name)):
            pace *= factor
    return pace


def check_stragglers(machine: Machine, ranks: Sequence[int], stragglers: Sequence[tuple[str, float]]) -> None:
    """Raise InputError if a name in *stragglers* matches none of the nodes *ranks*, or one of a range of names does."""
    for name, _ in stragglers:
        idle = [meant.isdisjoint(ranks) for meant in _meant(machine, name)]
        if all(idle) if "*" in name else any(idle):
            on = [f"node{machine.nodes[rank].host}" for rank in ranks] if machine.n_hosts > 1 else []
            known = [*(machine.nodes[rank].name for rank in ranks), *dict.fromkeys(on)]
            what = "not every such device" if names_several(name) and not all(idle) else "no such device"
            raise InputError(f"--straggler {name}: {what} takes part; {nearest(name, known)}")


@lru_cache(maxsize=256)
def _meant(machine: Machine, name: str) -> tuple[frozenset[int], ...]:
    """Return the nodes that each name in *name* means: a device's own, a GPU's number (gpu3), a machine's (node2).

    Raises InputError if a range or star names something that does not exist.
    """
    said = f"--straggler {name}"
    whole = hosts(said, name, machine) if names_several(name) else [*_host(machine, name)]
    if whole:
        return tuple(frozenset(node.index for node in machine.nodes_of(host)) for host in whole)
    if name == "gpu*":
        return tuple(frozenset((gpu,)) for gpu in machine.gpus)
    if _NUMBERED.fullmatch(name):
        names = expanded(said, name) if names_several(name) else [name]
        return tuple(frozenset(_gpu(machine, each)) for each in names)
    if not names_several(name):
        found = machine.find(name)
        return (frozenset(() if found is None else (found.index,)),)
    return tuple(frozenset((node.index,)) for node in devices(said, name, machine))


def _host(machine: Machine, name: str) -> Sequence[int]:
    """Return the number of the machine *name*, if it is one."""
    number = re.fullmatch(r"node(\d{1,7})", name, re.ASCII)
    return [int(number[1])] if number and machine.n_hosts > max(1, int(number[1])) else []


def _gpu(machine: Machine, name: str) -> Sequence[int]:
    """Return the node of the GPU called *name*, or of that number."""
    node, number = machine.find(name), int(name.removeprefix("gpu"))
    return (node.index,) if node is not None else machine.gpus[number : number + 1]
