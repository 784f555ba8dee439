"""Errors of predicted memory, one group for each figure that tables of steps hold: :class:`MemoryErrors`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from simulator.cli.table import table_of
from simulator.console.style import Style
from simulator.records import asdict, dataclass, field
from validate.kinds.kind import MEMORY_COLUMNS
from validate.kinds.row import MeasuredRow
from validate.score.scoring import MOST_DIFFERENT, OTHER_REASON
from validate.tables.lines import by_frequency, percent_text, skipped_table
from validate.tables.statistics import Errors, summarise


@dataclass(slots=True)
class _Figure:
    errors: array[float] = field(default_factory=lambda: array("d"))
    lines: array[int] = field(default_factory=lambda: array("I"))  # of the errors
    skipped: dict[str, array[int]] = field(default_factory=dict)  # lines by reason


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The errors of the figure ``name`` over ``rows`` rows that hold it.

    ``worst`` is the error of the largest absolute value, at ``worst_line``; ``skipped`` has lines by reason.
    """

    name: str
    rows: int
    errors: Errors
    worst: float | None
    worst_line: int | None
    skipped: dict[str, Sequence[int]]


class MemoryErrors:
    """The errors of rows' figures of memory; ``scored`` rows have one that counts."""

    def __init__(self) -> None:
        self.scored = 0
        self._figures = {name: _Figure() for name in MEMORY_COLUMNS}

    def add(self, row: MeasuredRow) -> None:
        """Add the figures of *row*."""
        for figure in row.memory:
            found, error = self._figures[figure.name], figure.error
            if figure.skipped or error is None:
                reason = figure.skipped
                if reason not in found.skipped and len(found.skipped) >= MOST_DIFFERENT:
                    reason = OTHER_REASON
                found.skipped.setdefault(reason, array("I")).append(row.line)
            else:
                found.errors.append(error)
                found.lines.append(row.line)
        self.scored += not all(figure.skipped for figure in row.memory)

    def groups(self) -> Iterator[MemoryGroup]:
        """Yield the groups of the figures that rows hold."""
        for name, found in self._figures.items():
            rows = len(found.errors) + sum(map(len, found.skipped.values()))
            if rows:
                at = max(range(len(found.errors)), key=lambda i: abs(found.errors[i]), default=None)
                worst, line = (None, None) if at is None else (found.errors[at], found.lines[at])
                yield MemoryGroup(name, rows, summarise(found.errors), worst, line, by_frequency(found.skipped))


def memory_document(found: MemoryErrors) -> dict[str, Any]:
    """Return the errors of *found* as plain data, by figure."""
    return {
        group.name: {
            **asdict(group.errors),
            "rows": group.rows,
            "worst": group.worst,
            "worst_line": group.worst_line,
            "skipped": {reason: len(lines) for reason, lines in group.skipped.items()},
            "skipped_lines": {reason: list(lines) for reason, lines in group.skipped.items()},
        }
        for group in found.groups()
    }


def memory_lines(found: MemoryErrors, style: Style) -> list[str]:
    """Return *found* as a text table, and the figures that are not scored; nothing where rows hold no memory."""
    groups = list(found.groups())
    if not groups:
        return []
    table = [["", "rows", "scored", "median", "p90", "bias", "worst", "in line"]]
    for group in groups:
        errors = group.errors
        shown = [percent_text(errors.median_ape), percent_text(errors.p90_ape)]
        shown += [percent_text(errors.bias, "+"), percent_text(group.worst, "+")]
        line = "-" if group.worst_line is None else str(group.worst_line)
        table.append([f"memory, {group.name}", str(group.rows), str(errors.n), *shown, line])
    skipped = {f"{group.name}: {reason}": lines for group in groups for reason, lines in group.skipped.items()}
    why = skipped_table("memory not scored", skipped, style)
    return ["", *table_of(table, [False] + [True] * 7, style), *([""] if why else []), *why]
