"""A kind of tables: its columns, how a row becomes a question, how it was timed, and its rows with answers."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands.composition import Band, SharedNetwork
from simulator.errors import InputError, nearest, one_line
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field, own_data, own_patterns, replace
from simulator.results.confidence import OF_A_BOUND, Confidence, confidence_of
from simulator.topology.parts import CpuPart, GpuPart
from validate.tables.cells import MAX_HELD, CsvRecord, NotScored, measured_time, read_records, size_bytes, unscored
from validate.tables.names import RowNames
from validate.tables.statistics import digest, relative_error
from validate.tables.table import Table, read_bytes, shown_as, tabulate

WORDS: Mapping[str, Any] = own_data("validate.kinds", "words.yaml")
MEMORY_COLUMNS: Mapping[str, Sequence[str]] = WORDS["memory"]  # by figure; of several the first with a value counts
CELLS = own_patterns("validate.kinds", "words.yaml", "cells")  # what cells say

ALL_COLUMNS = tuple(column for columns in MEMORY_COLUMNS.values() for column in columns)


@dataclass(slots=True)
class MemoryFigure:
    """The bytes that a row holds of one figure of ``MEMORY_COLUMNS``, NaN where at fault, and their prediction."""

    name: str
    measured_bytes: float
    skipped: str = ""
    predicted_bytes: float | None = None

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None without a prediction or a valid measurement."""
        if self.predicted_bytes is None or math.isnan(self.measured_bytes):
            return None
        return relative_error(self.predicted_bytes, self.measured_bytes)


def memory_figures(cell: Callable[[str], str]) -> tuple[MemoryFigure, ...]:
    """Return the figures that a row holds."""
    found = []
    for name, columns in MEMORY_COLUMNS.items():
        if column := next(filter(cell, columns), ""):
            try:
                found.append(MemoryFigure(name, size_bytes(cell, column)))
            except NotScored as reason:
                found.append(MemoryFigure(name, math.nan, str(reason)))
    return tuple(found)


Cell = Callable[[str], str]  # returns the text of a row's cell by column name; empty if the row has none


@dataclass(frozen=True, slots=True)
class Timed:
    """A timing: *function* of *arguments*, which make timings alike, the asked time, and the session."""

    function: Callable[..., float]
    arguments: tuple[Any, ...]

    def __call__(self, asked_s: float, session: Session) -> float:
        """Return the seconds on the measurement's clock of work predicted to take *asked_s*."""
        return self.function(*self.arguments, asked_s, session)


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """A row's question, those timed along (``besides``), how they were timed, and whether ``memory`` is asked too."""

    question: Question
    besides: tuple[Question, ...] = ()
    timing: Timed | None = None
    memory: bool = False

    def time_s(self, session: Session) -> float:
        """Return the predicted time on the clock, in seconds; raises NotScored if there is no prediction."""
        with unscored():
            asked_s = sum(session.time_s(each) for each in (self.question, *self.besides))
        return _positive(asked_s if self.timing is None else self.timing(asked_s, session), "predicted time")

    def confidence(self, session: Session, shown_s: float) -> Confidence:
        """Return the uncertainty of *shown_s*, the result of :meth:`time_s`, by class; without a band if unmeasured."""
        try:
            return confidence_of(shown_s, session.composed(self.question), shared=session.shared(self.question))
        except InputError:
            return OF_A_BOUND

    def bound_s(self, session: Session) -> float:
        """Return the time by the data sheet alone, in seconds; raises NotScored if there is none."""
        with unscored():
            return _positive(sum(session.bound_s(each) for each in (self.question, *self.besides)), "baseline")

    def memory_bytes(self, session: Session) -> Mapping[str, float]:
        """Return the predicted bytes by the names in ``MEMORY_COLUMNS``; raises NotScored if there are none."""
        assert isinstance(self.question, StepQuestion)
        with unscored():
            need = session.memory(self.question)
        return {name: _positive(getattr(need, f"{name}_bytes"), "predicted memory") for name in MEMORY_COLUMNS}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tables: columns, grouping, and functions that read its rows."""

    name: str  # the measured things: collectives, operators, training, ...
    method: str  # how they are predicted, in a few words
    needed: tuple[str, ...]  # columns that a table must have
    asked: tuple[str, ...]  # columns that a prediction sees; it sees no other
    measured: tuple[str, ...]  # columns of measured values
    place: str  # the column of the place of measurement: machine or device
    # axes, shown: columns and labels by which documents, and by which texts, group rows
    axes: tuple[tuple[str, ...], ...]
    shown: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]  # labels that ``labelled`` gives, for grouping
    legend: str  # explanation of the figures for readers
    read: Callable[[Cell, RowNames], RowQuestion]  # from the columns ``asked``; raises NotScored
    measured_s: Callable[[Cell, RowNames], float]  # returns the measured seconds, from all columns; raises NotScored
    baseline: str = "data sheet"  # its name in documents, and in column heads where there is no ``baseline_label``
    baseline_label: str = ""
    is_simulated: bool = False  # each answer is a simulation, some 0.1 s
    holds_memory: bool = False  # rows may hold figures of memory
    set_aside: str = ""  # the column that says why a row does not count, though it is predicted
    # returns the labels of a row
    labelled: Callable[[Cell, RowNames], Mapping[str, str]] = lambda _cell, _names: {}

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        memory = ALL_COLUMNS if self.holds_memory else ()
        return tuple(dict.fromkeys((*self.asked, *self.measured, *memory, *filter(None, [self.set_aside]), "trust")))

    def needed_in(self, header: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that a table with *header* must have: no times where it has memory."""
        if not self.holds_memory or {name.strip().lower() for name in header}.isdisjoint(ALL_COLUMNS):
            return self.needed
        return tuple(column for column in self.needed if column not in self.measured)

    def question(self, cell: Cell, names: RowNames) -> RowQuestion:
        """Return what a row asks; raises NotScored, also where the question is refused."""
        with unscored():
            return self.read(cell, names)

    def with_names(self, names: RowNames) -> "Kind":
        """Return the kind for tables read with *names*: without a place column if the user names the place."""
        place = "machine" if "machine" in self.needed else "device"
        book = names.machines if place == "machine" else names.devices
        return self if book.are_needed else replace(self, needed=tuple(c for c in self.needed if c != place))


def kind_of(name: str, **functions: Any) -> Kind:
    """Return the kind *name* of ``kinds.yaml``, with the *functions* that read its rows."""
    said = {key: _frozen(value) for key, value in own_data("validate.kinds", "kinds.yaml")[name].items()}
    return Kind(name=name, **said, **functions)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def read_measurements(
    file: str, kinds: Sequence[Kind], most: int = MAX_HELD, raw: bytes | None = None
) -> tuple[Table, Kind]:
    """Return the table *file*, of at most *most* rows, and its kind; *raw*: its content, if it is not read again.

    Raises InputError as its readers do.
    """
    records = read_records(read_bytes(file) if raw is None else raw, shown_as(file), most)
    kind = recognise(records[0].fields, kinds)
    return tabulate(records, shown_as(file), kind.needed_in(records[0].fields), kind.columns, kind.name), kind


def _positive(value: float, what: str) -> float:
    if not 0 < value < float("inf"):
        raise NotScored(f"the {what} is not positive")
    return value


def recognise(header: Sequence[str], kinds: Sequence[Kind]) -> Kind:
    """Return the kind whose needed columns are most completely in *header*; the first of equals."""
    found = {name.strip().lower() for name in header}
    likeness = [sum(name in found for name in kind.needed) / len(kind.needed) for kind in kinds]
    if max(likeness) > 0:
        return kinds[likeness.index(max(likeness))]
    # A misspelt column also identifies the kind; without any, the first kind is assumed.
    close = (kind for kind in kinds if any(nearest(name, kind.needed).startswith("did") for name in found))
    return next(close, kinds[0])


_NOWHERE = CsvRecord(0, ())
_KEPT = 4096  # distinct rows whose questions are cached


@dataclass(slots=True)
class MeasuredRow:
    """A row: its question, its measured seconds, where it is, and its prediction once it has one.

    ``asked`` is None if it cannot be read as a question, and ``time_s`` NaN, for the reason ``untimed``, if it has no
    valid time; ``set_aside`` is why it does not count though it is predicted.  ``skipped`` is why it does not count,
    empty if it does; ``is_context`` where its grade is the reason.  ``cells`` are the non-empty ones, with what empty
    ones stand for and the labels of its ``kind``; ``labels`` those as written: what rows are grouped by.  ``digest`` is
    that of its question.  ``place`` is a device or a machine, ``part`` the device's part.  ``memory`` are its figures
    of memory, each with its own prediction.  ``table``, ``name``, ``key``, ``interval`` are of rows of folders: the
    file, what is asked in words and as pairs, half the measured median's 95 % interval as a fraction, and
    ``deviations`` the distance from the median of their class, 0 unless it is large.
    ``published`` are others' predictions.
    """

    asked: RowQuestion | None
    time_s: float
    cells: Mapping[str, str]
    kind: str = ""
    file: str = ""
    record: CsvRecord = _NOWHERE
    digest: str = ""
    place: str = ""
    part: GpuPart | CpuPart | None = None
    untimed: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    predicted_s: float | None = None
    band: Band | None = None
    shared: SharedNetwork | None = None
    baseline_s: float | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    is_context: bool = False
    set_aside: str = ""
    memory: tuple[MemoryFigure, ...] = ()
    table: str = ""
    name: str = ""
    key: tuple[tuple[str, str], ...] = ()
    interval: float | None = None
    deviations: float = 0.0

    @property
    def line(self) -> int:
        """The line of the table."""
        return self.record.line

    @property
    def asks(self) -> RowQuestion:
        """What it asks; only for rows that ask something."""
        assert self.asked is not None
        return self.asked

    @property
    def op(self) -> str:
        """The operator or collective."""
        return self.cells.get("op") or self.cells.get("collective", "")

    @property
    def grade(self) -> str:
        """The trust grade, in upper case; empty if it has none."""
        return self.cells.get("trust", "").upper()

    @property
    def weight(self) -> float:
        """The table's ``fit_weight``."""
        return float(self.cells.get("fit_weight") or 1.0)

    @property
    def counts(self) -> bool:
        """Whether the row counts in statistics."""
        return not self.skipped and self.error is not None

    @property
    def measured_s(self) -> float | None:
        """The measured seconds of a predicted row; None for others, and where it has no valid time."""
        return None if self.error is None else self.time_s

    @property
    def in_band(self) -> bool | None:
        """Whether the measured time lies in the band of the prediction; None if there is no band or no time."""
        return None if self.band is None or self.error is None else self.band.low_s <= self.time_s <= self.band.high_s

    @property
    def log_ratio(self) -> float:
        """log(predicted / measured), which weighs half and twice the time alike; only for rows that count."""
        assert self.error is not None
        return math.log1p(self.error)

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None without a prediction or a valid time."""
        return self.error_of(self.predicted_s)

    def error_of(self, time_s: float | None) -> float | None:
        """Return the relative error of a predicted *time_s*, in seconds; None where the row is not predicted."""
        known = time_s is not None and self.predicted_s is not None and not self.untimed
        return relative_error(time_s, self.time_s) if known and time_s is not None else None


Rows = Sequence[MeasuredRow]


def every_row(table: Table, kind: Kind, names: RowNames) -> Iterator[MeasuredRow]:
    """Yield the rows of *table* in order, also those that cannot be read as questions."""

    @lru_cache(maxsize=_KEPT)
    def question(asked: tuple[str, ...]) -> RowQuestion | str:
        try:
            return kind.question(dict(zip(kind.asked, asked, strict=True)).__getitem__, names)
        except NotScored as reason:
            return str(reason)

    columns = dict.fromkeys((*table.position, *table.conventions))
    for record in table.rows:
        cells = {name: text for name in columns if (text := table.cell(record, name))}

        def cell(column: str, cells: Mapping[str, str] = cells) -> str:
            return cells.get(column, "")

        asked: RowQuestion | str = f"{len(record.fields)} fields where the header has {len(table.header)}"
        if len(record.fields) == len(table.header):
            asked = question(tuple(map(cell, kind.asked)))
        own: Mapping[str, str] = {}
        with suppress(NotScored):
            own = kind.labelled(cell, names)
        written = {name: text for name in table.position if (text := table.written(record, name))}
        found = MeasuredRow(None, math.nan, {**own, **cells}, kind.name, table.file, record, place=cell(kind.place))
        found.digest = digest({column: cell(column) for column in kind.asked})
        found.labels = {name: text for name, text in {**written, **own}.items() if text}
        found.set_aside = one_line(cell(kind.set_aside), 200) if kind.set_aside else ""
        try:
            found.time_s = measured_time(kind.measured_s(cell, names))
        except NotScored as reason:
            found.untimed = str(reason)
        found.memory = memory_figures(cell) if kind.holds_memory else ()
        if isinstance(asked, str):
            found.skipped = asked
        else:
            found.asked = asked if all(each.skipped for each in found.memory) else replace(asked, memory=True)
            if kind.place in kind.asked and kind.place == "device":
                found.part = names.devices.described(found.place)
        yield found
