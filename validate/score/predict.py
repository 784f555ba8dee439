"""Predictions of rows, one after the other or in several processes; the results are equal."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from simulator.bands.band import Band
from simulator.console.collector import collect_rarely
from validate.kinds import KINDS
from validate.kinds.kind import Asked, Kind
from validate.tables.cells import NotScored
from validate.tables.names import Names

__all__ = ["Cells", "Predict", "Predicted", "in_processes", "in_turn", "predicted"]

Cells = tuple[str, ...]
"""What a row says under the columns that its kind asks: a prediction sees nothing else."""

_KEPT = 4096  # distinct rows whose predictions are cached
_AHEAD = 8192  # rows that are read ahead of the one whose prediction is due
_AT_ONCE = 8  # rows of one machine and one network in a task
_ALIKE = ("machine", "device", "model", "network", "op", "collective")  # rows with these in common share work


@dataclass(frozen=True, slots=True)
class Predicted:
    """The question of a row, its prediction with its band, its baseline, and the reason where it has none."""

    asked: Asked | None = None
    predicted_s: float | None = None
    band: Band | None = None
    baseline_s: float | None = None
    skipped: str = ""


Predict = Callable[[Iterable[Cells]], Iterator[Predicted]]
"""Yields a prediction for each row, in order."""


def predicted(cells: Cells, kind: Kind, names: Names) -> Predicted:
    """Return the prediction for a row of *kind* with *cells*."""
    asked: Asked | None = None
    try:
        asked = kind.read(dict(zip(kind.asked, cells, strict=True)).__getitem__, names)
        predicted_s = asked.time_s(names.session)
        band = asked.band(names.session, predicted_s)
    except NotScored as reason:
        return Predicted(asked, skipped=str(reason))
    try:
        return Predicted(asked, predicted_s, band, asked.bound_s(names.session))
    except NotScored:
        return Predicted(asked, predicted_s, band)


def in_turn(kind: Kind, names: Names) -> Predict:
    """Return the predictions of rows of *kind* in this process."""
    known = lru_cache(maxsize=_KEPT)(lambda cells: predicted(cells, kind, names))
    return lambda rows: map(known, rows)


# -- in several processes --------------------------------------------------------------


def in_processes(kind: Kind, make: Callable[[], Names], jobs: int) -> Predict:
    """Return the predictions of rows of *kind* in *jobs* processes, each of which calls *make* for its own names."""

    def predict(rows: Iterable[Cells]) -> Iterator[Predicted]:
        context = multiprocessing.get_context("spawn")  # others would copy a process with threads
        before = set(multiprocessing.active_children())
        with ProcessPoolExecutor(jobs, context, _begin, (kind.name, make)) as pool:
            try:
                yield from _in_order(pool, rows, [kind.asked.index(name) for name in _ALIKE if name in kind.asked])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()
                    child.join()
                raise

    return predict


def _in_order(pool: ProcessPoolExecutor, rows: Iterable[Cells], alike: Sequence[int]) -> Iterator[Predicted]:
    """Yield the prediction of each row in turn, with some rows in work ahead of it."""
    rest = iter(rows)
    while ahead := list(islice(rest, _AHEAD)):
        together: dict[Hashable, list[Cells]] = {}
        for cells in dict.fromkeys(ahead):
            together.setdefault(tuple([cells[index] for index in alike]), []).append(cells)
        tasks = [of[first : first + _AT_ONCE] for of in together.values() for first in range(0, len(of), _AT_ONCE)]
        done: dict[Cells, tuple[Future[list[Predicted]], int]] = {}
        for task in tasks:
            future = pool.submit(_task, task)
            done.update((cells, (future, place)) for place, cells in enumerate(task))
        due = deque(ahead)
        while due:
            future, place = done[due.popleft()]
            yield future.result()[place]


_own: dict[str, Callable[[Cells], Predicted]] = {}  # of another process: how it predicts a row


def _begin(kind: str, make: Callable[[], Names]) -> None:
    """Make this process ready for rows of *kind*; an interrupt ends it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    collect_rarely()
    names = make()
    found = next(each for each in KINDS if each.name == kind)
    _own["row"] = lru_cache(maxsize=_KEPT)(lambda cells: predicted(cells, found, names))


def _task(rows: Sequence[Cells]) -> list[Predicted]:
    return [_own["row"](cells) for cells in rows]
