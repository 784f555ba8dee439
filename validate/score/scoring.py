"""Scoring: each row of a table is predicted, in this process or several, then compared with what was measured."""

import contextlib
import gc
import multiprocessing
import signal
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from itertools import islice, tee
from pathlib import Path

from simulator.api import Session
from simulator.api.calibrations import read_calibration
from simulator.bands.composition import Band, SharedNetwork
from simulator.console.run import collect_rarely
from simulator.errors import Fault, InputError, SimulationError, one_line
from simulator.questions.calibration import Calibration
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field, replace
from simulator.topology.yaml_source import uncollected
from validate.kinds import KINDS, OPERATORS
from validate.kinds.kind import WORDS, Kind, MeasuredRow, RowQuestion, every_row
from validate.kinds.steps import configuration
from validate.tables.cells import CsvRecord, NotScored, measured_time, number
from validate.tables.names import DeviceNames, MachineNames, RowNames, check_used, machines_named
from validate.tables.table import Table, read_bytes, read_table, shown_as

_KEPT = 4096  # distinct rows whose predictions are cached
_AHEAD = 8192  # rows that are read ahead of the one whose prediction is due
_AT_ONCE = 16  # questions in a task


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction of a row with band, also of a ``shared`` network, and baseline, or why not; and of its memory."""

    predicted_s: float | None = None
    band: Band | None = None
    shared: SharedNetwork | None = None
    baseline_s: float | None = None
    skipped: str = ""
    memory_bytes: Mapping[str, float] = field(default_factory=dict)
    no_memory: str = ""


@contextlib.contextmanager
def _collected_after() -> Iterator[None]:
    """Look for cycles once at the end, when little is left of what was made."""
    with uncollected():
        yield
        gc.collect(0)


@_collected_after()
def predicted(asked: RowQuestion, session: Session) -> Predicted:
    """Return the prediction of what a row asks."""
    baseline_s: float | None = None
    try:
        predicted_s = asked.time_s(session)
        sure = asked.confidence(session, predicted_s)
    except NotScored as reason:
        return Predicted(skipped=str(reason))
    with contextlib.suppress(NotScored):
        baseline_s = asked.bound_s(session)
    try:
        memory_bytes = asked.memory_bytes(session) if asked.memory else {}
        return Predicted(predicted_s, sure.band, sure.shared, baseline_s, "", memory_bytes)
    except NotScored as reason:
        return Predicted(predicted_s, sure.band, sure.shared, baseline_s, no_memory=str(reason))


def in_processes(session: Session, jobs: int, rows: Iterable[RowQuestion]) -> Iterator[Predicted]:
    """Yield the predictions of *rows*, found in *jobs* processes; each question is asked once."""
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


def _in_order(pool: ProcessPoolExecutor, rows: Iterable[RowQuestion]) -> Iterator[Predicted]:
    """Yield the prediction of each row in turn, with some rows in work ahead of it."""
    rest = iter(rows)
    while ahead := list(islice(rest, _AHEAD)):
        together: dict[Hashable, list[RowQuestion]] = {}
        for asked in dict.fromkeys(ahead):
            # what questions have in common that share most of their work: the network, or the machine
            question = asked.question
            work: Hashable = question.where.topology
            if isinstance(question, StepQuestion):
                work = question.workload, question.sizes, question.batch, question.options
            together.setdefault(work, []).append(asked)
        done: dict[RowQuestion, tuple[Future[list[Predicted]], int]] = {}
        for alike in together.values():
            for task in (alike[i : i + _AT_ONCE] for i in range(0, len(alike), _AT_ONCE)):
                future = pool.submit(_task, task)
                done.update((asked, (future, place)) for place, asked in enumerate(task))
        for asked in ahead:
            future, place = done[asked]
            yield future.result()[place]


def _task(asked: Sequence[RowQuestion]) -> list[Predicted]:
    return [predicted(each, _sessions[0]) for each in asked]


_sessions: list[Session] = []  # of another process: the one that it answers with


def _begin(calibrations: Mapping[str, Calibration]) -> None:
    """Make this process ready to answer; an interrupt ends it without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    collect_rarely()
    _sessions.append(Session(calibrations))


MOST_DIFFERENT = 100_000
"""Most distinct labels, reasons and configurations of a table; each takes some 100 bytes or more."""

OTHER_REASON = f"another of more than {MOST_DIFFERENT:,} reasons"  # stands for the reasons beyond these


def _judge(row: MeasuredRow, answer: Predicted, trust: Sequence[str]) -> None:
    is_outside = bool(row.grade) and row.grade not in trust
    context = f"context: trust {one_line(row.grade, 20)}" if is_outside else ""
    row.predicted_s, row.baseline_s = answer.predicted_s, answer.baseline_s
    row.band, row.shared = answer.band, answer.shared
    row.skipped = answer.skipped
    for figure in row.memory:
        figure.predicted_bytes = answer.memory_bytes.get(figure.name)
        figure.skipped = figure.skipped or row.skipped or answer.no_memory or context
    if row.predicted_s is not None:
        row.is_context = is_outside and not row.untimed
        row.skipped = context if row.is_context else row.untimed or row.set_aside


def ranked(rows: Iterable[MeasuredRow], table: Table, kind: Kind, names: RowNames) -> Iterator[MeasuredRow]:
    """Yield *rows*, labelled ``framework_rank`` where their *kind* ranks; raises InputError for too many."""

    def timed(record: CsvRecord) -> tuple[tuple[str, ...], float]:
        cell = partial(table.cell, record)
        return configuration(cell), kind.measured_s(cell, names)

    best: dict[tuple[str, ...], float] = {}  # the least time of each configuration over all frameworks
    for record in table.rows if "framework_rank" in kind.labels else ():
        with contextlib.suppress(NotScored):
            key, time_s = timed(record)
            best[key] = min(time_s, best.get(key, time_s))
            if len(best) > MOST_DIFFERENT:
                message = f"has more than {MOST_DIFFERENT:,} different configurations; score it in parts"
                raise InputError(Fault(message, table.file))
    for row in rows:
        if best and row.labels.get("ranks") == "one":
            with contextlib.suppress(NotScored):
                key, time_s = timed(row.record)
                row.labels = {**row.labels, "framework_rank": "best" if time_s <= best.get(key, 0.0) else "other"}
        yield row


def _written(row: MeasuredRow) -> Predicted:
    text = row.cells.get("predicted_s", "")
    try:
        if not text:
            raise NotScored(row.cells.get("skipped") or "no prediction")
        return Predicted(measured_time(number("predicted_s", text)), no_memory="no prediction")
    except NotScored as reason:
        return Predicted(skipped=str(reason))


def read_published(file: str) -> dict[str, dict[str, float]]:
    """Return the predicted seconds in the table *file*, by row and predictor; raises InputError for faults."""
    needed = ("row_id", "predictor", "predicted_s")
    table = read_table(read_bytes(file), shown_as(file), needed, needed, "published predictions")
    found: dict[str, dict[str, float]] = {}
    for record in table.rows:
        row, predictor, text = (table.cell(record, column) for column in needed)
        try:
            found.setdefault(row, {})[predictor] = number("predicted_s", text)
        except NotScored as reason:
            raise InputError(Fault(str(reason), shown_as(file), record.line, 1)) from None
    return found


CALIBRATED_ON = "calibrated on"
_MANY = 100  # rows that are worth the start of more processes
_MOST_JOBS = 8  # each holds its own machines and networks, some hundred MB


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """The options of the command line that affect predictions, with their defaults."""

    topology: str | None = None
    machines: tuple[str, ...] = ()
    strategy: str | None = None
    devices: tuple[str, ...] = ()
    calibration: str | None = None
    baselines: str | None = None
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)  # by part, used where no file is given


class Scoring:
    """Scores tables with names and calibrations of *options*, ``kinds`` needing columns by them; raises InputError."""

    def __init__(self, options: ScoringOptions) -> None:
        self.options = options
        machines = MachineNames(options.topology, machines_named(options.machines))
        devices = DeviceNames(options.devices, options.topology)
        calibrations: dict[str, Calibration] = dict(options.calibrations)
        self._seen: frozenset[str] = frozenset()
        if options.calibration is not None:
            known = DeviceNames(topology=options.topology).names
            read = read_calibration(options.calibration, known).devices
            calibrations = {known[name]: device.calibration for name, device in read.items()}
            self._seen = frozenset(key for device in read.values() for key in device.points.asked)
        self.names = RowNames(machines, devices, Session(calibrations), options.strategy or "nccl")
        self._published = read_published(options.baselines) if options.baselines is not None else {}
        self.kinds = tuple(kind.with_names(self.names) for kind in KINDS)

    def calibrated(self, calibrations: Mapping[str, Calibration]) -> RowNames:
        """Return the names with *calibrations*, by part, in place of the current ones."""
        return replace(self.names, session=self.names.session.calibrated(calibrations))

    def method(self, kind: Kind) -> str:
        """Return a short description of how rows of *kind* are predicted."""
        if kind.name == "collectives":
            return f"strategy {self.names.strategy}"
        known = self.names.session.calibrations
        if known and kind.method == OPERATORS.method:
            return f"calibration of {', '.join(sorted(known))}"
        return kind.method

    def score(
        self,
        table: Table,
        kind: Kind,
        trust: Sequence[str],
        *,
        names: RowNames | None = None,
        seen: frozenset[str] = frozenset(),
        as_written: bool = False,
        jobs: int = 1,
        advance: Callable[[], None] = lambda: None,
    ) -> Iterator[MeasuredRow]:
        """Yield the rows of *table* with their predictions, in order; *advance* is called after each.

        Rows with a grade outside *trust* are context and do not count, nor do operators whose question is among *seen*,
        the digests to which calibrations were fitted.  *as_written*: predictions are the table's, of ``validate score
        --out``.  *jobs*: most processes that predict.
        """
        fitted_to = (seen | self._seen) if kind.name == OPERATORS.name else frozenset()
        names = replace(names or self.names, folder=str(Path(table.file).parent))
        rows, ahead = tee(ranked(every_row(table, kind, names), table, kind, names))
        asking = (row for row in ahead if row.asked is not None)
        questions = (row.asks for row in asking)
        answers: Iterator[Predicted]
        if as_written:
            answers = map(_written, asking)
        elif kind.is_simulated and jobs > 1 and len(table.rows) >= _MANY:
            answers = in_processes(names.session, min(jobs, _MOST_JOBS), questions)
        else:
            answers = map(lru_cache(maxsize=_KEPT)(partial(predicted, session=names.session)), questions)
        for row in rows:
            _judge(row, next(answers) if row.asked is not None else Predicted(skipped=row.skipped), trust)
            row.published = self._published.get(row.cells.get("row_id", ""), {}) if row.predicted_s is not None else {}
            row.skipped = row.skipped or row.set_aside or (CALIBRATED_ON if row.digest in fitted_to else "")
            yield row
            advance()
        next(answers, None)  # ends other processes in peace

    def check(self, tables: Sequence[tuple[Table, Kind]], calibrate: int = 0) -> None:
        """Raise InputError for options that apply to none of *tables*, and for names that no row has."""
        kinds = {kind.name for _, kind in tables}
        for option, (field_name, *read) in WORDS["options"].items():
            value = calibrate if option == "--calibrate" else getattr(self.options, field_name)
            if value and not kinds.intersection(read):
                known = " and ".join(filter(None, (", ".join(read[:-1]), read[-1])))
                raise InputError(f"{option} is for tables of {known}; these are of {' and '.join(sorted(kinds))}")
        # A name that the user assigns may occur in any of several tables.
        for place, book in (("machine", self.names.machines), ("device", self.names.devices)):
            if mine := [table for table, kind in tables if place in kind.asked]:
                check_used(place, book.named, (table.cell(row, place) for table in mine for row in table.rows))
