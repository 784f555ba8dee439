"""A strategy's plan as each rank's sends and adds, and whether NCCL could do it with a faster algorithm."""

from collections.abc import Sequence
from contextlib import suppress
from math import floor
from typing import Any, NamedTuple

from simulator.api.session import Session
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.questions.collective import ALGORITHMS, CollectiveQuestion
from simulator.records import replace
from simulator.results import taken
from simulator.results.result import Result
from simulator.units import format_duration

_OWN_BUFFERS = ("all-to-all", "send-recv")  # one buffer per rank; other collectives have one in all
_MOST_MOVES = 2_000_000
_ELEMENT_BYTES = 4


class ElementMove(NamedTuple):
    """``elements`` from ``first`` on, sent from one stand to another, and there added (1) or stored (0)."""

    src: int
    dst: int
    first: int
    elements: int
    reduce: int


def exchange_of(session: Session, question: CollectiveQuestion) -> dict[str, Any]:
    """Return each rank's moves as plain data; raises InputError if no schedule runs rank by rank.

    ``rounds`` are of moves, each of which reads before it writes, between the ``stands`` of ranks and of helpers, whose
    buffers start empty (:func:`stands_of`).
    """
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
                        move = ElementMove(src, dst, first, last - first, int(carried.reduce))
                        into += [move] if last > first else []
                level += 1
        ends.append(level)
        streams[task.stream] = level
    if sum(map(len, rounds.values())) > _MOST_MOVES:
        raise InputError(f"{name} has more than {_MOST_MOVES:,} messages; take fewer ranks or another strategy")
    ordered = [tuple(rounds[level]) for level in sorted(rounds) if rounds[level]]
    return {
        "strategy": name,
        **taken(request, "collective n_ranks root"),
        "n_elements": n_elements,
        "stands": [_stand(request.machine, node) for node in numbers],
        "rounds": _first_stored(ordered, request.n_ranks),
    }


def stands_of(session: Session, question: CollectiveQuestion) -> list[dict[str, Any]]:
    """Return the place of each rank's buffer: its device, ``gpu`` or ``cpu``, its node, its number on that node."""
    _, requests = session.planned(question)
    return [_stand(request.machine, node) for request in requests for node in request.ranks]


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
            for start, stop, is_held in _split(move.first, move.first + move.elements, there):
                written.append(ElementMove(move.src, move.dst, start, stop - start, int(move.reduce and is_held)))
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


def _stand(machine: Machine, node: int) -> dict[str, Any]:
    found = machine.nodes[node]
    alike = [other.index for other in machine.nodes_of(found.host) if other.kind == found.kind]
    return {**taken(found, "name kind host"), "index": alike.index(node)}


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
