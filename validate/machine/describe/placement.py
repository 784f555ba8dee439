"""Where GPUs and adapters are attached (:class:`Attachments`): at which PCIe switch, and at which socket."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from simulator.records import dataclass
from validate.machine.describe.driver import Adapter
from validate.machine.describe.matrix import Matrix

_APART = frozenset(("SYS", "SOC"))


@dataclass(frozen=True, slots=True)
class AttachedAdapter:
    """An adapter at PCIe switch ``switch`` or a socket; ``generation`` and ``lanes`` of its port, 0 where unknown."""

    adapter: Adapter
    switch: int | None
    socket: int
    generation: int = 0
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class Attachments:
    """Where the GPUs and adapters of a machine are attached.

    Entries of ``switches``, ``above``, ``switch_sockets`` and ``ports`` are of one PCIe switch each: the GPUs directly
    at it, the switch at which it hangs (None: at the CPU), its socket, and its upstream port as (generation, lanes),
    zeros where unknown.
    """

    socket: tuple[int, ...]  # of each GPU
    switches: tuple[tuple[int, ...], ...] = ()
    above: tuple[int | None, ...] = ()
    switch_sockets: tuple[int, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    guessed: bool = False  # whether the GPUs' sockets are guesses
    adapters: tuple[AttachedAdapter, ...] = ()

    def gpus_below(self, switch: int) -> list[int]:
        """Return the GPUs at switch number *switch* and at those below it, in order."""
        inner = [gpu for n, above in enumerate(self.above) if above == switch for gpu in self.gpus_below(n)]
        return sorted([*self.switches[switch], *inner])


def place_gpus(
    matrix: Matrix,
    sockets: int,
    socket_of: Mapping[int, int],
    adapters: Mapping[str, Adapter] | None = None,
    *,
    generation: int = 3,
) -> Attachments:
    """Return where the GPUs of *matrix* are attached; *socket_of* gives the socket of each logical processor.

    Devices that PIX joins share a switch.  PXB, several bridges but no host, joins those switches, and devices alone,
    below one more, except where all can be one chip: switches of PCIe *generation* 4 and later show two levels, but
    are none (:func:`_is_one_chip`).  *adapters* are the known adapters by their names in *matrix*; others are left out.
    """
    known = adapters or {}
    names = [f"GPU{i}" for i in range(matrix.gpus)] + [name for name in matrix.nics if name in known]
    socket, guessed = _sockets(matrix, sockets, socket_of)
    drawn: list[tuple[list[str], int | None]] = []  # devices directly at each switch, and the switch above it
    every = [*names, *(name for name in matrix.nics if name not in known)]
    for group in _joined(every, matrix, frozenset(("PIX", "PXB"))):
        within = [name for name in names if name in group]
        subs = [[name for name in within if name in sub] for sub in _joined(every, matrix, frozenset(("PIX",)))]
        lower = [] if _is_one_chip(subs, generation) else [sub for sub in subs if len(sub) > 1]
        alone = [name for name in within if not any(name in sub for sub in lower)]
        first, has_upper = len(drawn), len(lower) + bool(alone) > 1 or (not lower and len(alone) > 1)
        up = first + len(lower) if has_upper else None
        drawn += [(sub, up) for sub in lower]
        drawn += [(alone, None)] if has_upper else []
    at = {name: n for n, (members, _) in enumerate(drawn) for name in members}
    near = {name: _nearest_socket(name, matrix, socket) for name in names}
    below = [members or next(under for under, up in drawn if up == n) for n, (members, _) in enumerate(drawn)]
    return Attachments(
        socket,
        tuple(tuple(int(name[3:]) for name in members if name not in known) for members, _ in drawn),
        tuple(up for _, up in drawn),
        tuple(near[members[0]] for members in below),
        ((0, 0),) * len(drawn),
        guessed,
        tuple(AttachedAdapter(known[name], at.get(name), near[name]) for name in matrix.nics if name in known),
    )


_CHIP_PORTS = 8  # devices with 16 lanes, besides the port to the host: a PEX89144 has 144 lanes


def _is_one_chip(levels: Sequence[Sequence[str]], generation: int) -> bool:
    """Return whether PIX groups of names that PXB joins can be one switch chip, of PCIe *generation* 4 or later.

    Such chips show sub-switches, but all ports have full bandwidth: NVIDIA/nccl src/graph/topo.cc,
    ncclTopoFlattenBcmSwitches.  Several groups of GPUs are chips in a row.
    """
    boards = sum(sum(name.startswith("GPU") for name in level) > 1 for level in levels)
    return generation > 3 and boards < 2 and sum(map(len, levels)) <= _CHIP_PORTS


def _nearest_socket(name: str, matrix: Matrix, socket: Sequence[int]) -> int:
    """Return the socket of the GPU nearest to the device *name*, itself where it is one; of equals, the first."""
    order = ("X", "PIX", "PXB", "PHB", "NODE")
    words = [matrix.between.get((name, f"GPU{i}"), "") for i in range(matrix.gpus)]
    near = min(range(matrix.gpus), key=lambda i: order.index(words[i]) if words[i] in order else len(order))
    return socket[near]


def _joined(names: Sequence[str], matrix: Matrix, words: Collection[str]) -> list[frozenset[str]]:
    """Return *names* in groups connected by *words*, ordered by their first members."""
    group = {name: frozenset((name,)) for name in names}
    for a in names:
        for b in names:
            if matrix.between.get((a, b)) in words and group[a] is not group[b]:
                both = group[a] | group[b]
                group.update(dict.fromkeys(both, both))
    return list(dict.fromkeys(group[name] for name in names))


def _sockets(matrix: Matrix, sockets: int, socket_of: Mapping[int, int]) -> tuple[tuple[int, ...], bool]:
    """Return the socket of each GPU, and whether it is a guess: by CPU affinity, else by which pairs are far apart."""
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
    """Return the socket of each member of groups ranked *ranks*, the groups spread evenly over *sockets* in order."""
    count = max(ranks) + 1
    return tuple(rank * sockets // count if count >= sockets else rank for rank in ranks)
