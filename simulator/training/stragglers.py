"""Devices that are slower than others of their part: named ones (:func:`straggler_pace`), and the slowest of many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

from simulator.constants import Constants, constants
from simulator.errors import InputError, nearest, one_line
from simulator.network.machine import Machine
from simulator.records import dataclass
from simulator.spelling import mention

_NUMBERED = re.compile(r"gpu(?:\d{1,6}|\[[^\]]*\])", re.ASCII)


def straggler_pace(machine: Machine, node: int, stragglers: Sequence[tuple[str, float]]) -> float:
    """Return the time of *node* relative to the mean of its part."""
    return next((factor for name, factor in stragglers if any(node in meant for meant in _meant(machine, name))), 1.0)


def check_stragglers(machine: Machine, ranks: Sequence[int], stragglers: Sequence[tuple[str, float]]) -> None:
    """Raise InputError if a name in *stragglers* matches none of the nodes *ranks*, or one of a range of names does.

    Also if two names have a device in common, which has one pace.
    """
    if not stragglers:
        return
    from simulator.network.named import names_several

    told: set[int] = set()
    for name, _ in stragglers:
        said, every = mention("stragglers", one_line(name, 60)), _meant(machine, name)
        idle = [meant.isdisjoint(ranks) for meant in every]
        if all(idle) if "*" in name else any(idle):
            on = [f"node{machine.nodes[rank].host}" for rank in ranks] if machine.n_hosts > 1 else []
            known = [*(machine.nodes[rank].name for rank in ranks), *dict.fromkeys(on)]
            what = "not every such device" if names_several(name) and not all(idle) else "no such device"
            raise InputError(f"{said}: {what} takes part; {nearest(name, known)}")
        devices_meant = set().union(*every)
        if twice := told & devices_meant:
            raise InputError(f"{said}: {machine.nodes[min(twice)].name} is given twice")
        told |= devices_meant


@lru_cache(maxsize=256)
def _meant(machine: Machine, name: str) -> tuple[frozenset[int], ...]:
    """Return the nodes of each name: a device's own, gpu3, a machine's (node2); raises InputError if one is unknown."""
    from simulator.network.named import devices, expanded, hosts

    said = mention("stragglers", one_line(name, 60))
    whole = hosts(said, name, machine)
    if whole is not None:
        return tuple(frozenset(node.index for node in machine.nodes_of(host)) for host in whole)
    if name == "gpu*":
        return tuple(frozenset((gpu,)) for gpu in machine.gpus)
    if _NUMBERED.fullmatch(name) is None:
        return tuple(frozenset((node.index,)) for node in devices(said, name, machine))
    return tuple(frozenset((_gpu(said, each, machine),)) for each in expanded(said, name))


def _gpu(said: str, name: str, machine: Machine) -> int:
    """Return the node of the GPU called *name* or, if none is, of that number."""
    from simulator.network.named import devices

    number = int(name.removeprefix("gpu"))
    if machine.find(name) is None and number < len(machine.gpus):
        return machine.gpus[number]
    return devices(said, name, machine)[0].index


@constants("fleet")
@dataclass(frozen=True, slots=True)
class FleetCosts:
    """Constants of a fleet of equal devices."""

    device_spread: float


def slowest_of(count: int, known: Constants) -> float:
    """Return the time of the slowest of *count* devices relative to the mean; 1 for one device.

    It is the expected maximum of *count* normal deviates by Blom's approximation ("Statistical Estimates and
    Transformed Beta-Variables", 1958), within 5 % for two or more.  GPUs of one part differ by some percent, more so
    where power limits them: Sinha et al., "Not All GPUs Are Created Equal", SC 2022.
    """
    greatest = NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
    return 1.0 + known(FleetCosts).device_spread * greatest
