"""Predictions of rows, one after the other or in several processes; the results are equal."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import islice

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands.composition import Band
from simulator.console.run import collect_rarely
from simulator.errors import SimulationError
from simulator.questions.calibration import Calibration
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field
from validate.kinds.kind import RowQuestion
from validate.tables.cells import NotScored

_KEPT = 4096  # distinct rows whose predictions are cached
_AHEAD = 8192  # rows that are read ahead of the one whose prediction is due
_AT_ONCE = 8  # questions in a task


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction of a row with its band, its baseline, and the reason where it has none.

    ``memory_bytes`` are the predicted bytes by figure where the row asks for them, ``no_memory`` why there are none.
    """

    predicted_s: float | None = None
    band: Band | None = None
    baseline_s: float | None = None
    skipped: str = ""
    memory_bytes: Mapping[str, float] = field(default_factory=dict)
    no_memory: str = ""


Predict = Callable[[Iterable[RowQuestion]], Iterator[Predicted]]
"""Yields a prediction for each row that asks something, in order."""


def predicted(asked: RowQuestion, session: Session) -> Predicted:
    """Return the prediction of what a row asks."""
    try:
        predicted_s = asked.time_s(session)
        band = asked.band(session, predicted_s)
    except NotScored as reason:
        return Predicted(skipped=str(reason))
    baseline_s: float | None = None
    with contextlib.suppress(NotScored):
        baseline_s = asked.bound_s(session)
    try:
        memory_bytes = asked.memory_bytes(session) if asked.memory else {}
    except NotScored as reason:
        return Predicted(predicted_s, band, baseline_s, no_memory=str(reason))
    return Predicted(predicted_s, band, baseline_s, memory_bytes=memory_bytes)


def in_turn(session: Session) -> Predict:
    """Return the predictions of rows in this process."""
    known = lru_cache(maxsize=_KEPT)(lambda asked: predicted(asked, session))
    return lambda rows: map(known, rows)


# -- in several processes --------------------------------------------------------------


def in_processes(session: Session, jobs: int) -> Predict:
    """Return the predictions of rows in *jobs* processes; each question is asked once."""

    def predict(rows: Iterable[RowQuestion]) -> Iterator[Predicted]:
        context = multiprocessing.get_context("spawn")  # others would copy a process with threads
        before = set(multiprocessing.active_children())
        with ProcessPoolExecutor(jobs, context, _begin, (session.calibrations,)) as pool:
            try:
                yield from _in_order(pool, rows)
            except BrokenProcessPool:
                reason = "a process ended before it had answered, as for want of memory; fewer --jobs need less"
                raise SimulationError(reason) from None
            except BaseException:
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()  # and the pool waits for their end: two threads that wait may miss it
                raise

    return predict


def _in_order(pool: ProcessPoolExecutor, rows: Iterable[RowQuestion]) -> Iterator[Predicted]:
    """Yield the prediction of each row in turn, with some rows in work ahead of it."""
    rest = iter(rows)
    while ahead := list(islice(rest, _AHEAD)):
        together: dict[Hashable, list[RowQuestion]] = {}
        for asked in dict.fromkeys(ahead):
            together.setdefault(_work(asked.question), []).append(asked)
        done: dict[RowQuestion, tuple[Future[list[Predicted]], int]] = {}
        for alike in together.values():
            for task in (alike[i : i + _AT_ONCE] for i in range(0, len(alike), _AT_ONCE)):
                future = pool.submit(_task, task)
                done.update((asked, (future, place)) for place, asked in enumerate(task))
        for asked in ahead:
            future, place = done[asked]
            yield future.result()[place]


def _work(question: Question) -> Hashable:
    """Return what questions have in common that share most of their work: the network, on devices of one machine."""
    if isinstance(question, StepQuestion):
        return question.workload, question.sizes, question.batch, question.options, question.where.topology
    return question.where.topology


_sessions: list[Session] = []  # of another process: the one that it answers with


def _begin(calibrations: Mapping[str, Calibration]) -> None:
    """Make this process ready to answer; an interrupt ends it without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    collect_rarely()
    _sessions.append(Session(calibrations))


def _task(asked: Sequence[RowQuestion]) -> list[Predicted]:
    return [predicted(each, _sessions[0]) for each in asked]
