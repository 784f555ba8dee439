"""An exchange as plain data, and what one of its stands does in each round.

A simulator wrote it, and nothing of a simulator is needed to run it: rounds of moves between stands, each a stretch of
a buffer that is sent, and added or stored where it arrives.  The first stands are the ranks, each with a buffer of its
own; the others (a CPU that gathers, servers) begin with nothing.  Moves of one round are simultaneous: all are read
before any is written.  A stand begins a round when its own part in those before has ended, and waits for no other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Exchange", "Move", "Part", "Receive", "Stand", "parts_of", "processes_of", "read_exchange", "staging_count"]


@dataclass(frozen=True, slots=True)
class Move:
    """``count`` elements from ``first`` on go from stand ``src`` to ``dst``, added there (``reduce``) or stored."""

    src: int
    dst: int
    first: int
    count: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a buffer is: its name, ``gpu`` or ``cpu``, its machine, and which of the machine's GPUs or CPUs."""

    name: str
    kind: str
    host: int
    index: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rounds of moves between stands, about buffers of so many elements."""

    strategy: str
    collective: str
    n_ranks: int
    n_elements: int
    stands: tuple[Stand, ...]
    rounds: tuple[tuple[Move, ...], ...]


class Receive(NamedTuple):
    """What arrives: the move, and where it waits in the stand's staging buffer; None: it goes where it belongs."""

    move: Move
    tag: int
    staged: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """What a stand does in a round: sends, each with its tag, and receives."""

    number: int
    sends: tuple[tuple[Move, int], ...]
    receives: tuple[Receive, ...]


def read_exchange(data: Mapping[str, Any]) -> Exchange:
    """Return the exchange that *data* is, as JSON gives it.

    Raises ValueError where a move leaves the buffer, or names a stand that is not there.
    """
    stands = tuple(Stand(**stand) for stand in data["stands"])
    n = int(data["n_elements"])
    rounds: list[tuple[Move, ...]] = []
    for step in data["rounds"]:
        moves = tuple(Move(src, dst, first, count, bool(reduce)) for src, dst, first, count, reduce in step)
        for move in moves:
            inside = 0 <= move.first < move.first + move.count <= n
            if not inside or move.src == move.dst or not all(0 <= end < len(stands) for end in (move.src, move.dst)):
                raise ValueError(f"round {len(rounds)}: no move between stands of the exchange: {move}")
        rounds.append(moves)
    return Exchange(data["strategy"], data["collective"], int(data["n_ranks"]), n, stands, tuple(rounds))


def parts_of(exchange: Exchange, stand: int) -> tuple[Part, ...]:
    """Return what *stand* does, round by round; rounds without it are left out.

    What is added, and what arrives where the stand still reads or something else arrives, is staged.
    """
    parts = []
    for number, step in enumerate(exchange.rounds):
        sends = tuple((move, tag) for tag, move in enumerate(step) if move.src == stand)
        incoming = [(move, tag) for tag, move in enumerate(step) if move.dst == stand]
        if not sends and not incoming:
            continue
        receives, staged = [], 0
        for move, tag in incoming:
            others = [other for other, _ in sends] + [other for other, at in incoming if at != tag]
            if move.reduce or any(_touch(move, other) for other in others):
                receives.append(Receive(move, tag, staged))
                staged += move.count
            else:
                receives.append(Receive(move, tag, None))
        parts.append(Part(number, sends, tuple(receives)))
    return tuple(parts)


def staging_count(parts: Sequence[Part]) -> int:
    """Return how many elements a stand's staging buffer has."""
    return max((sum(r.move.count for r in part.receives if r.staged is not None) for part in parts), default=0)


def _touch(one: Move, other: Move) -> bool:
    return one.first < other.first + other.count and other.first < one.first + one.count


def processes_of(exchange: Exchange) -> list[tuple[int, ...]]:
    """Return the stands of each process that runs *exchange*: one for each rank.

    A helper belongs to the first rank of its machine, whose memory it uses; where its machine has none, it is one more.
    """
    found = [[rank] for rank in range(exchange.n_ranks)]
    homes: dict[int, list[int]] = {}
    for stands in found:
        homes.setdefault(exchange.stands[stands[0]].host, stands)
    for helper in range(exchange.n_ranks, len(exchange.stands)):
        host = exchange.stands[helper].host
        if host not in homes:
            homes[host] = []
            found.append(homes[host])
        homes[host].append(helper)
    return [tuple(stands) for stands in found]
