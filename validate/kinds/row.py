"""A measured row of a table with what it asks and predicts: :class:`MeasuredRow`, and the one reader of such rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from simulator.bands.composition import Band
from simulator.errors import one_line
from simulator.records import dataclass, field, replace
from simulator.topology.parts import CpuPart, GpuPart
from validate.kinds.kind import Kind, MemoryFigure, RowQuestion, memory_figures
from validate.tables.cells import NotScored, measured_time
from validate.tables.csv_text import CsvRecord
from validate.tables.names import RowNames
from validate.tables.statistics import digest, relative_error
from validate.tables.table import Table

_NOWHERE = CsvRecord(0, ())
_KEPT = 4096  # distinct rows whose questions are cached


@dataclass(slots=True)
class MeasuredRow:
    """A row: its question, its measured seconds, where it is, and its prediction once it has one.

    ``asked`` is None, and ``skipped`` the reason, if it cannot be read as a question.  ``time_s`` is NaN, and
    ``untimed`` the reason, if it has no valid time; ``set_aside`` is why it does not count though it is predicted.
    ``cells`` are the non-empty ones, with what empty ones stand for and the labels of its ``kind``; ``labels`` those as
    written, with the same labels: what rows are grouped by.  ``digest`` is that of its question.  ``place`` is a device
    or a machine, ``part`` the device's part.  ``memory`` are its figures of memory, each with its own prediction and
    reason.

    ``table``, ``name``, ``key``, ``interval`` are of rows of folders: the file, what is asked in a few words and as
    pairs of column and text, and the half-width of the measured median's 95 % interval, as a fraction of the median.

    ``skipped`` is empty where a predicted row counts in statistics, otherwise the reason why not; ``is_context`` where
    its grade is the reason.  ``published`` are the predicted seconds of other predictors.
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
        if self.band is None or self.error is None:
            return None
        return self.band.low_s <= self.time_s <= self.band.high_s

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


def every_row(table: Table, kind: Kind, names: RowNames) -> Iterator[MeasuredRow]:
    """Yield the rows of *table* in order, also those that cannot be read as questions."""

    @lru_cache(maxsize=_KEPT)
    def question(asked: tuple[str, ...]) -> RowQuestion | str:
        """Return what a row asks, which sees no other column, or why it asks nothing."""
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
            memory = not all(each.skipped for each in found.memory)
            found.asked = replace(asked, memory=True) if memory else asked
            if kind.place in kind.asked and kind.place == "device":
                found.part = names.devices.described(found.place)
        yield found
