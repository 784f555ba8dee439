"""Devices that are slower than others of their part: :func:`pace_of`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import InputError, nearest
from simulator.network.machine import Machine, Node

__all__ = ["check_stragglers", "pace_of"]


def pace_of(machine: Machine, node: int, stragglers: Sequence[tuple[str, float]]) -> float:
    """Return the time of *node* relative to the mean of its part."""
    pace = 1.0
    for name, factor in stragglers:
        if _is_of(machine, machine.nodes[node], name):
            pace *= factor
    return pace


def check_stragglers(machine: Machine, ranks: Sequence[int], stragglers: Sequence[tuple[str, float]]) -> None:
    """Raise InputError if a name in *stragglers* matches none of the nodes *ranks*."""
    for name, _ in stragglers:
        if not any(_is_of(machine, machine.nodes[rank], name) for rank in ranks):
            hosts = [f"node{machine.nodes[rank].host}" for rank in ranks] if machine.n_hosts > 1 else []
            known = [*(machine.nodes[rank].name for rank in ranks), *dict.fromkeys(hosts)]
            raise InputError(f"--straggler {name}: no such device takes part; {nearest(name, known)}")


def _is_of(machine: Machine, node: Node, name: str) -> bool:
    """Return whether *name* means *node*: its own name, its GPU number (gpu3), or its machine (node2)."""
    if name == node.name or (machine.n_hosts > 1 and name == f"node{node.host}"):
        return True
    number = re.fullmatch(r"gpu(\d{1,6})", name, re.ASCII)
    if number is None or machine.find(name) is not None:
        return False
    return int(number[1]) < len(machine.gpus) and machine.gpus[int(number[1])] == node.index
