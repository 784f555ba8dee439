"""Which links the words of ``nvidia-smi topo -m`` amount to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from validate.machine.describe.topo import Matrix

__all__ = ["Placement", "nvlink_parts", "place_gpus"]

_APART = frozenset(("SYS", "SOC"))
_BY_GENERATION = {"Pascal": "nvlink1", "Volta": "nvlink2", "Ampere": "nvlink3", "Hopper": "nvlink4",
                  "Blackwell": "nvlink5"}  # fmt: skip
_SWITCHES = {"Volta": "nvswitch1", "Ampere": "nvswitch2", "Hopper": "nvswitch3", "Blackwell": "nvswitch4"}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the GPUs of a machine hang."""

    socket: tuple[int, ...]  # of each GPU
    switches: tuple[tuple[int, ...], ...] = ()  # GPUs that share a PCIe switch
    upper: tuple[tuple[int, ...], ...] = ()  # numbers of those switches that hang at one more switch together
    guessed: bool = False  # whether nothing says which socket a GPU hangs at


def place_gpus(matrix: Matrix, sockets: int, socket_of: Mapping[int, int]) -> Placement:
    """Return where the GPUs of *matrix* hang, on a machine of *sockets*; *socket_of* is of its processors."""
    gpus = range(matrix.gpus)
    names = [f"GPU{i}" for i in gpus] + list(matrix.nics)
    switches = [tuple(i for i in gpus if f"GPU{i}" in group) for group in _joined(names, matrix, frozenset(("PIX",)))]
    switches = [group for group in switches if len(group) > 1]
    upper = []
    for group in _joined(names, matrix, frozenset(("PIX", "PXB"))):
        below = tuple(n for n, members in enumerate(switches) if f"GPU{members[0]}" in group)
        if len(below) > 1:
            upper.append(below)
    socket, guessed = _sockets(matrix, sockets, socket_of)
    return Placement(socket, tuple(switches), tuple(upper), guessed)


def _joined(names: Sequence[str], matrix: Matrix, words: Collection[str]) -> list[frozenset[str]]:
    """Return *names* in groups that *words* join, in the order of their first members."""
    group = {name: frozenset((name,)) for name in names}
    for a in names:
        for b in names:
            if matrix.between.get((a, b)) in words and group[a] is not group[b]:
                both = group[a] | group[b]
                group.update(dict.fromkeys(both, both))
    return list(dict.fromkeys(group[name] for name in names))


def _sockets(matrix: Matrix, sockets: int, socket_of: Mapping[int, int]) -> tuple[tuple[int, ...], bool]:
    """Return the socket of each GPU: of the processor named beside it, else by which pairs are far apart."""
    n = matrix.gpus
    if sockets == 1:
        return (0,) * n, False
    if len(matrix.affinity) == n:
        beside = [matrix.affinity[i] for i in range(n)]
        known = [socket_of.get(processor, -1) for processor in beside]
        if all(0 <= socket < sockets for socket in known) and len(set(known)) == min(sockets, len(set(beside))):
            return tuple(known), False
        return _shared_out([sorted(set(beside)).index(processor) for processor in beside], sockets), False
    near = frozenset(("PIX", "PXB", "PHB", "NODE"))
    groups = _joined([f"GPU{i}" for i in range(n)], matrix, near)
    apart = any(word in _APART for word in matrix.between.values())
    if apart and 1 < len(groups) < n:
        rank = [next(k for k, group in enumerate(groups) if f"GPU{i}" in group) for i in range(n)]
        return _shared_out(rank, sockets), False
    return _shared_out(list(range(n)), sockets), True


def _shared_out(ranks: Sequence[int], sockets: int) -> tuple[int, ...]:
    """Return sockets for groups of those *ranks*, each with as many groups in order."""
    count = max(ranks) + 1
    return tuple(rank * sockets // count if count >= sockets else rank for rank in ranks)


def nvlink_parts(name: str) -> tuple[str, str]:
    """Return the link part of the NVLinks of the GPU *name*, and that of its switches, empty where neither is known."""
    part = load_part(name)
    if not isinstance(part, GpuPart):
        return "", ""
    generation = part.architecture.partition(" ")[0]
    chip = part.architecture.rpartition(" ")[2]
    if chip == "GA102":
        return "nvlink3-bridge-ga102", ""
    if generation == "Turing":
        return "nvlink2-bridge", ""
    if "pcie" in name and generation == "Ampere":
        return "nvlink3-bridge", ""
    return _BY_GENERATION.get(generation, ""), _SWITCHES.get(generation, "")
