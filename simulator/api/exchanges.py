"""A strategy's plan as each rank's sends and adds, and whether NCCL could do it with a faster algorithm."""

from collections.abc import Sequence
from contextlib import suppress
from math import floor
from typing import Any

from simulator.api.session import Session
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.questions.collective import ALGORITHMS, CollectiveQuestion
from simulator.records import dataclass, replace
from simulator.results import taken
from simulator.results.result import Result
from simulator.units import format_duration

_OWN_BUFFERS = ("all-to-all", "send-recv")  # one buffer per rank; other collectives have one in all
_MOST_MOVES = 2_000_000
_ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """The place of a buffer: its device's name and kind (``gpu`` or ``cpu``), its node, and its number on that node."""

    name: str
    kind: str
    host: int
    index: int


@dataclass(frozen=True, slots=True)
class ElementMove:
    """``count`` elements from ``first`` on, sent from one stand to another, and there added or stored."""

    src: int
    dst: int
    first: int
    count: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class ExchangeProgram:
    """Rounds of moves, of which each reads before it writes, between ranks and helpers, whose buffers start empty."""

    strategy: str
    collective: str
    n_ranks: int
    root: int
    n_elements: int
    stands: tuple[BufferPlace, ...]
    rounds: tuple[tuple[ElementMove, ...], ...]

    def data(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON; each move is a list of its fields in order."""
        rounds = [[[m.src, m.dst, m.first, m.count, int(m.reduce)] for m in step] for step in self.rounds]
        return {**taken(self, "strategy collective n_ranks root n_elements stands"), "rounds": rounds}


def exchange_of(session: Session, question: CollectiveQuestion) -> ExchangeProgram:
    """Return each rank's moves; raises InputError if no schedule runs rank by rank."""
    strategy, requests = session.planned(question)
    name, request = question.strategy, requests[0]
    if len(requests) > 1:
        raise InputError("several groups at once are predicted, not run rank by rank")
    try:
        plan = strategy.plan(request)
    except Unsuitable as error:
        raise InputError(f"{name} does not fit {request.machine.name}: {error.why}") from None
    size_bytes = request.size_bytes * (request.n_ranks if request.collective in _OWN_BUFFERS else 1)
    n_elements = floor(size_bytes / _ELEMENT_BYTES)
    numbers = {node: rank for rank, node in enumerate(request.ranks)}
    rounds: dict[int, list[ElementMove]] = {}
    ends: list[int] = []  # per activity, the number of the round after its last
    streams: dict[str, int] = {}
    for task in plan.tasks:
        level = max([streams.get(task.stream, 0), *(ends[i] for i in task.after)])
        if task.flows:
            if task.carries is None:
                raise InputError(f"{name} is predicted, not run rank by rank: its plan does not say who sends what")
            for repetition in range(task.repeat):
                into = rounds.setdefault(level, [])
                for flow, carried in zip(task.flows, task.carries(repetition), strict=True):
                    src, dst = (numbers.setdefault(n, len(numbers)) for n in (flow.route.src, flow.route.dst))
                    for start, stop in carried.region if src != dst else ():  # a device's own data are already there
                        first, last = floor(start * n_elements), floor(stop * n_elements)
                        move = ElementMove(src, dst, first, last - first, carried.reduce)
                        into += [move] if last > first else []
                level += 1
        ends.append(level)
        streams[task.stream] = level
    if sum(map(len, rounds.values())) > _MOST_MOVES:
        raise InputError(f"{name} has more than {_MOST_MOVES:,} messages; take fewer ranks or another strategy")
    ordered = [tuple(rounds[level]) for level in sorted(rounds) if rounds[level]]
    asked = name, request.collective, request.n_ranks, request.root, n_elements
    stands = tuple(_stand(request.machine, node) for node in numbers)
    return ExchangeProgram(*asked, stands, tuple(_first_stored(ordered, request.n_ranks)))


def stands_of(session: Session, question: CollectiveQuestion) -> tuple[BufferPlace, ...]:
    """Return the stand of each rank of *question*, in rank order; raises InputError."""
    _, requests = session.planned(question)
    return tuple(_stand(request.machine, node) for request in requests for node in request.ranks)


def _first_stored(rounds: Sequence[tuple[ElementMove, ...]], n_ranks: int) -> list[tuple[ElementMove, ...]]:
    """Return *rounds* with the first write to each part of a helper's buffer as a store, as nothing is there yet."""
    held: dict[int, list[tuple[int, int]]] = {}
    found = []
    for step in rounds:
        written: list[ElementMove] = []
        for move in step:
            if move.dst < n_ranks:
                written.append(move)
                continue
            there = held.setdefault(move.dst, [])
            for start, stop, is_held in _split(move.first, move.first + move.count, there):
                written.append(ElementMove(move.src, move.dst, start, stop - start, move.reduce and is_held))
                if not is_held:
                    there.append((start, stop))
        found.append(tuple(written))
    return found


def _split(start: int, stop: int, held: Sequence[tuple[int, int]]) -> list[tuple[int, int, bool]]:
    found = []
    for first, last in sorted(held):
        if first < stop and last > start:
            if start < first:
                found.append((start, first, False))
            found.append((max(start, first), min(stop, last), True))
            start = last
    if start < stop:
        found.append((start, stop, False))
    return found


def _stand(machine: Machine, node: int) -> BufferPlace:
    found = machine.nodes[node]
    alike = [other.index for other in machine.nodes_of(found.host) if other.kind == found.kind]
    return BufferPlace(found.name, found.kind, found.host, alike.index(node))


_TOLD_BELOW = 0.9  # of the time with NCCL's choice
_MOST_EVENTS = 5_000  # of an answer that is worth simulating with each other algorithm, some 0.1 s each
_IN_NCCL_ALGO = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT"}


def with_faster_algorithm(session: Session, result: Result) -> Result:
    """Note the fastest other algorithm between machines, if a tenth faster and of few events, in *result*."""
    question, chosen = result.asked, result.facts.get("algorithm")
    if question is None or question.strategy != "nccl" or question.algorithm is not None or chosen is None:
        return result
    machine = result.timeline.machine
    hosts = {machine.nodes[machine.gpus[gpu]].host for gpu in result.gpus}
    if len(hosts) < 2 or result.simulation_events > _MOST_EVENTS:
        return result
    times = {}
    for algorithm in ALGORITHMS:
        with suppress(InputError, Unsuitable):
            if algorithm != chosen:
                times[algorithm] = session.time_s(replace(question, algorithm=algorithm))
    best = min(times, key=lambda algorithm: times[algorithm], default=None)
    if best is None or times[best] >= _TOLD_BELOW * result.sync_time_s:
        return result
    words = f"NCCL chooses {str(chosen).replace('_', ' ')} by its own tables; NCCL_ALGO={_IN_NCCL_ALGO[best]}"
    note = f"{words} would take {format_duration(times[best])} in place of {format_duration(result.sync_time_s)}"
    return replace(result, notes=(*result.notes, note))
