"""An exchange as plain data, the part of each stand in each round, and how it is run (docs/measure.md).

It consists of rounds of moves between stands: each sends a range of a buffer, which is added or stored where it
arrives. The first stands are the ranks; others (a CPU that gathers, parameter servers) are helpers and start empty.
Moves of one round are simultaneous: all are read before any is written.  From one process it is copies and adds on
streams with events between rounds; rank by rank, each process holds the buffers of one or more stands.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


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


class BufferExchange(NamedTuple):
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


class StandPart(NamedTuple):
    """The part of a stand in a round: its sends, each with its tag, and its receives."""

    sends: list[tuple[Move, int]]
    receives: list[Receive]


def read_exchange(data: Mapping[str, Any]) -> BufferExchange:
    """Return the exchange in *data*; raises ValueError where a move leaves the buffer or lacks two distinct stands."""
    stands = tuple(StandPlace(**stand) for stand in data["stands"])
    n_ranks, root, n = (int(data[name]) for name in ("n_ranks", "root", "n_elements"))
    rounds = tuple(tuple(Move(a, b, c, d, bool(reduce)) for a, b, c, d, reduce in step) for step in data["rounds"])
    for number, moves in enumerate(rounds):
        for move in moves:
            inside = 0 <= move.first < move.first + move.count <= n
            if not inside or move.src == move.dst or not all(0 <= end < len(stands) for end in (move.src, move.dst)):
                raise ValueError(f"round {number}: no move between stands of the exchange: {move}")
    return BufferExchange(data["strategy"], data["collective"], n_ranks, root, n, stands, rounds)


def stand_parts(exchange: BufferExchange, stand: int) -> list[StandPart]:
    """Return the part of *stand* in each round; what is added, or sent or received too, is staged."""
    parts = []
    for step in exchange.rounds:
        sends = [(move, tag) for tag, move in enumerate(step) if move.src == stand]
        incoming = [(move, tag) for tag, move in enumerate(step) if move.dst == stand]
        receives, staged = [], 0
        for move, tag in incoming:
            others = [other for other, at in (*sends, *incoming) if at != tag]
            stays = not move.reduce and not any(
                move.first < other.first + other.count and other.first < move.first + move.count for other in others
            )
            receives.append(Receive(move, tag, None if stays else staged))
            staged += 0 if stays else move.count
        parts.append(StandPart(sends, receives))
    return parts


def staging_count(parts: Sequence[StandPart]) -> int:
    """Return the size of a stand's staging buffer, in elements."""
    return max((sum(r.move.count for r in part.receives if r.staged is not None) for part in parts), default=0)


def processes_of(exchange: BufferExchange) -> list[tuple[int, ...]]:
    """Return the stands of each process of *exchange*, one per rank: a helper is its machine's first's, or apart."""
    found: list[list[int]] = []
    homes: dict[int, list[int]] = {}
    for number, stand in enumerate(exchange.stands):
        if number < exchange.n_ranks or stand.host not in homes:
            found.append([number])
            homes.setdefault(stand.host, found[-1])
        else:
            homes[stand.host].append(number)
    return [tuple(stands) for stands in found]


_PERIOD = 251  # prime, so that the pattern does not align with blocks of a buffer
_EXACT = 1 << 24  # all integers up to this one are exact in fp32


def _expected(exchange: BufferExchange, stand: int) -> tuple[Any, list[tuple[int, int, Any]]]:
    n, count, collective = exchange.n_ranks, exchange.n_elements, exchange.collective
    most = min(_PERIOD, _EXACT // n - 1)

    def numbers(rank: int) -> Any:
        return (torch.arange(count) * (rank + 1) % most + rank % 2).to(torch.float32)

    if stand >= n:
        return torch.full((count,), -1.0), []
    blocks = [(count * i // n, count * (i + 1) // n) for i in range(n)]
    if collective == "reduce" and stand != exchange.root:
        found: list[tuple[int, int, Any]] = []
    elif collective == "broadcast":
        found = [(0, count, numbers(exchange.root))]
    elif collective == "all-gather":
        found = [(a, b, numbers(rank)[a:b]) for rank, (a, b) in enumerate(blocks)]
    elif collective in ("all-reduce", "reduce", "reduce-scatter"):
        a, b = blocks[stand] if collective == "reduce-scatter" else (0, count)
        total = torch.zeros(b - a)
        for rank in range(n):
            total += numbers(rank)[a:b]
        found = [(a, b, total)]
    else:
        raise ValueError(f"{collective} is not run rank by rank")
    return numbers(stand), found


class _Stands:
    """The buffers of *stands* in *exchange*, and their parts of its rounds; *memory* allocates elements for a stand."""

    def __init__(self, exchange: BufferExchange, stands: Iterable[int], memory: Callable[[int, int], Any]) -> None:
        parts = {stand: stand_parts(exchange, stand) for stand in stands}
        by_round = ({stand: own[n] for stand, own in parts.items()} for n in range(len(exchange.rounds)))
        self._rounds = [{stand: part for stand, part in each.items() if any(part)} for each in by_round]
        self._expected = {stand: _expected(exchange, stand) for stand in parts}
        self.buffers = {stand: memory(exchange.n_elements, stand) for stand in parts}
        self._staging = {stand: memory(staging_count(own), stand) for stand, own in parts.items()}

    def fill(self) -> None:
        """Write each stand's input into its buffer, and wait for it."""
        for stand, (brought, _) in self._expected.items():
            self.buffers[stand].copy_(brought)
        self._settle()

    def _settle(self) -> None:
        """Wait for all devices."""

    def is_right(self) -> bool:
        """Return whether all buffers hold the expected result, bit for bit, once an exchange has ended."""
        self._settle()
        found = ((self.buffers[stand].cpu(), blocks) for stand, (_, blocks) in self._expected.items())
        return all(torch.equal(buffer[a:b], wanted) for buffer, blocks in found for a, b, wanted in blocks)

    def _sent(self, stand: int, move: Move) -> Any:
        return self.buffers[stand][move.first : move.first + move.count]

    def _arrived(self, receive: Receive) -> Any:
        move = receive.move
        if receive.staged is None:
            return self._sent(move.dst, move)
        return self._staging[move.dst][receive.staged : receive.staged + move.count]

    def _keep(self, receive: Receive) -> None:
        target = self._sent(receive.move.dst, receive.move)
        if receive.move.reduce:
            target.add_(self._arrived(receive))
        elif receive.staged is not None:
            target.copy_(self._arrived(receive), non_blocking=True)


class OverDevices(_Stands):
    """*exchange* with stand i on GPU ``devices[i]``; None is the host's memory."""

    def __init__(self, exchange: BufferExchange, devices: Sequence[int | None]) -> None:
        def memory(count: int, stand: int) -> Any:
            if (device := devices[stand]) is None:
                return torch.empty(count, pin_memory=True)
            return torch.empty(count, device=torch.device("cuda", device))

        super().__init__(exchange, range(len(exchange.stands)), memory)
        self.needs_host = any(device is None for device in devices)
        self._devices = devices
        self._first = next(device for device in devices if device is not None)
        self._adding = [torch.cuda.Stream(self._first if d is None else d) for d in devices]
        # torch puts a copy on the current stream of its source GPU, or of its target GPU where the source is the host.
        self._copying: dict[tuple[int, int], tuple[Any, ...]] = {}
        for ends in dict.fromkeys((move.src, move.dst) for step in exchange.rounds for move in step):
            used = [devices[end] for end in ends if devices[end] is not None]
            self._copying[ends] = tuple(torch.cuda.Stream(device) for device in used)

    def run(self) -> None:
        """Issue all rounds; the first device's current stream continues when all stands have finished."""
        main = torch.cuda.current_stream(self._first)
        done = [_recorded(main)] * len(self._devices)
        for step in self._rounds:
            done = self._round(step, done)
        for event in done:
            main.wait_event(event)

    def _round(self, step: dict[int, StandPart], done: list[Any]) -> list[Any]:
        """Issue one round; return for each stand the event at which its rounds so far have ended."""
        for stand, part in step.items():
            for receive in part.receives:
                arrived = self._copy(receive, done)
                self._adding[stand].wait_event(arrived)
                self._adding[receive.move.src].wait_event(arrived)
        for stand, part in step.items():
            if all(receive.staged is None for receive in part.receives):
                continue
            with ExitStack() as stack:  # adds in the order of the moves, so that floating-point sums are reproducible
                if self._devices[stand] is None:
                    self._adding[stand].synchronize()  # the host adds once everything has arrived
                else:
                    stack.enter_context(torch.cuda.stream(self._adding[stand]))
                for receive in part.receives:
                    self._keep(receive)
        return [_recorded(self._adding[stand]) if stand in step else event for stand, event in enumerate(done)]

    def _copy(self, receive: Receive, done: list[Any]) -> Any:
        move = receive.move
        streams = self._copying[move.src, move.dst]
        sent = self._sent(move.src, move)
        if not streams:  # both ends are in host memory, so the host copies
            done[move.src].synchronize()
            done[move.dst].synchronize()
            self._arrived(receive).copy_(sent)
            return _recorded(self._adding[move.src])
        streams[0].wait_event(done[move.src])
        streams[0].wait_event(done[move.dst])
        with ExitStack() as stack:
            for stream in reversed(streams):  # the first stream, the source's, carries the copy
                stack.enter_context(torch.cuda.stream(stream))
            self._arrived(receive).copy_(sent, non_blocking=True)
        return _recorded(streams[0])

    def _settle(self) -> None:
        for device in {device for device in self._devices if device is not None}:
            torch.cuda.synchronize(device)


def _recorded(stream: Any) -> Any:
    event = torch.cuda.Event()
    event.record(stream)
    return event


class OverRanks(_Stands):
    """The part of process *process* in *exchange*, with the division of stands by :func:`processes_of`.

    A round's sends and receives are posted at once, to NCCL as one group, which has no tags and pairs them by order,
    and to gloo move by move.  What arrives is added in the order of moves, so that sums are reproducible.
    """

    def __init__(self, exchange: BufferExchange, process: int, device: Any = "cpu") -> None:
        processes = processes_of(exchange)
        self._at = {stand: number for number, stands in enumerate(processes) for stand in stands}
        self._process, self._n = process, len(processes)
        self._grouped = torch.device(device).type == "cuda"
        stands = processes[process] if process < len(processes) else ()
        super().__init__(exchange, stands, lambda count, _: torch.empty(count, device=device))

    def run(self) -> None:
        """Run this process's part of all rounds."""
        for step in filter(None, self._rounds):
            self._round(step)

    def _round(self, step: dict[int, StandPart]) -> None:
        at = self._at
        receives = [receive for part in step.values() for receive in part.receives]
        sends = [send for part in step.values() for send in part.sends]
        receiving = [(each.tag, dist.irecv, self._arrived(each), at[each.move.src]) for each in receives]
        sending = [(tag, dist.isend, self._sent(move.src, move), at[move.dst]) for move, tag in sends]
        # Each process starts with its neighbours, so that no rank is sent to by all at once: connections are served in
        # the order of posting.  For moves in one direction between two ranks, both sides agree on the order, that of
        # the tags.
        receiving.sort(key=lambda way: ((self._process - way[3]) % self._n, way[0]))
        sending.sort(key=lambda way: ((way[3] - self._process) % self._n, way[0]))
        ways = [way for way in (*receiving, *sending) if way[3] != self._process]
        if self._grouped:
            works = dist.batch_isend_irecv([dist.P2POp(act, x, peer) for _, act, x, peer in ways]) if ways else []
        else:
            works = [act(x, peer, tag=tag) for tag, act, x, peer in ways]
        for receive in receives:
            if at[receive.move.src] == self._process:
                self._arrived(receive).copy_(self._sent(receive.move.src, receive.move))
        for work in works:  # a buffer must not change before its send is complete
            work.wait()
        for receive in receives:
            self._keep(receive)
