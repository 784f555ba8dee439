"""An exchange as plain data, and the part of each stand in each round.

The simulator writes exchanges; running one needs no simulator.  An exchange consists of rounds of moves between
stands: each move sends a range of a buffer, which is added or stored where it arrives.  The first stands are the
ranks, each with its own buffer.  The others (a CPU that gathers, parameter servers) are helpers and start empty.
Moves of one round are simultaneous: all are read before any is written.  A stand starts a round when its own part in
earlier rounds has ended, independently of other stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch


@dataclass(frozen=True, slots=True)
class Move:
    """``count`` elements from ``first`` on, sent from stand ``src`` to ``dst``; added there (``reduce``) or stored."""

    src: int
    dst: int
    first: int
    count: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class StandPlace:
    """The place of a buffer: its name, ``gpu`` or ``cpu``, the machine, and the index of the GPU or CPU in it."""

    name: str
    kind: str
    host: int
    index: int


@dataclass(frozen=True, slots=True)
class BufferExchange:
    """Rounds of moves between stands, on buffers of ``n_elements`` elements each."""

    strategy: str
    collective: str
    n_ranks: int
    root: int
    n_elements: int
    stands: tuple[StandPlace, ...]
    rounds: tuple[tuple[Move, ...], ...]


class Receive(NamedTuple):
    """An arriving move, and its offset in the stand's staging buffer; None if it goes directly to its destination."""

    move: Move
    tag: int
    staged: int | None


@dataclass(frozen=True, slots=True)
class StandPart:
    """The part of a stand in a round: its sends, each with its tag, and its receives."""

    number: int
    sends: tuple[tuple[Move, int], ...]
    receives: tuple[Receive, ...]


def read_exchange(data: Mapping[str, Any]) -> BufferExchange:
    """Return the exchange in *data*; raises ValueError where a move leaves the buffer or lacks two distinct stands."""
    stands = tuple(StandPlace(**stand) for stand in data["stands"])
    n = int(data["n_elements"])
    rounds: list[tuple[Move, ...]] = []
    for step in data["rounds"]:
        moves = tuple(Move(src, dst, first, count, bool(reduce)) for src, dst, first, count, reduce in step)
        for move in moves:
            inside = 0 <= move.first < move.first + move.count <= n
            if not inside or move.src == move.dst or not all(0 <= end < len(stands) for end in (move.src, move.dst)):
                raise ValueError(f"round {len(rounds)}: no move between stands of the exchange: {move}")
        rounds.append(moves)
    return BufferExchange(
        data["strategy"], data["collective"], int(data["n_ranks"]), int(data["root"]), n, stands, tuple(rounds)
    )


def stand_parts(exchange: BufferExchange, stand: int) -> tuple[StandPart, ...]:
    """Return the part of *stand* in each round; rounds without one are left out.

    A received range is staged if it is to be added, or if the stand also sends or receives it in that round.
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
        parts.append(StandPart(number, sends, tuple(receives)))
    return tuple(parts)


def staging_count(parts: Sequence[StandPart]) -> int:
    """Return the size of a stand's staging buffer, in elements."""
    return max((sum(r.move.count for r in part.receives if r.staged is not None) for part in parts), default=0)


def _touch(one: Move, other: Move) -> bool:
    return one.first < other.first + other.count and other.first < one.first + one.count


def processes_of(exchange: BufferExchange) -> list[tuple[int, ...]]:
    """Return the stands of each process that runs *exchange*: one process for each rank.

    A helper belongs to the first rank on its machine, whose memory it uses.  Helpers on a machine without ranks get one
    more process.
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


_PERIOD = 251  # prime, so that the pattern does not align with blocks of a buffer
# All integers up to this one are exact in the format: 2 to the number of significand bits.
_MOST = {torch.float16: 1 << 11, torch.bfloat16: 1 << 8, torch.float32: 1 << 24}


class Contribution:
    """The input of stand *stand* in *exchange*, as elements of *dtype*, and a check of its result.

    A rank's values depend on the rank and the position in the buffer.  A helper starts with -1, which must not reach
    any result.

    Raises ValueError for a collective whose result is not known here.
    """

    def __init__(self, exchange: BufferExchange, stand: int, dtype: Any) -> None:
        n, count, collective = exchange.n_ranks, exchange.n_elements, exchange.collective
        is_rank = stand < n
        self._brought = _numbers(exchange, stand, dtype) if is_rank else None
        self._blocks: list[tuple[int, int, Any]] = []  # first and last position, and the expected values
        blocks = [(count * i // n, count * (i + 1) // n) for i in range(n)]
        if not is_rank or (collective == "reduce" and stand != exchange.root):
            return
        if collective == "broadcast":
            self._blocks = [(0, count, _numbers(exchange, exchange.root, dtype))]
        elif collective == "all-gather":
            self._blocks = [(a, b, _numbers(exchange, rank, dtype)[a:b]) for rank, (a, b) in enumerate(blocks)]
        elif collective in ("all-reduce", "reduce", "reduce-scatter"):
            a, b = blocks[stand] if collective == "reduce-scatter" else (0, count)
            total = torch.zeros(b - a, dtype=dtype)
            for rank in range(n):
                total += _numbers(exchange, rank, dtype)[a:b]
            self._blocks = [(a, b, total)]
        else:
            raise ValueError(f"{collective} is not run rank by rank")

    def fill(self, buffer: Any) -> None:
        """Write the stand's input into *buffer*."""
        if self._brought is None:
            buffer.fill_(-1)
        else:
            buffer.copy_(self._brought)

    def is_right(self, buffer: Any) -> bool:
        """Return whether *buffer* holds the expected result, bit for bit, after one exchange."""
        found = buffer.cpu()
        return all(torch.equal(found[a:b], wanted) for a, b, wanted in self._blocks)


def _numbers(exchange: BufferExchange, rank: int, dtype: Any) -> Any:
    most = min(_PERIOD, _MOST.get(dtype, 1 << 24) // exchange.n_ranks - 1)
    return (torch.arange(exchange.n_elements) * (rank + 1) % most + rank % 2).to(dtype)
