"""What is scored beside times: predicted memory, and the scaling efficiency with more GPUs.

There is a group of errors for each figure of memory that tables of steps hold.  Efficiency is the throughput per GPU
with n GPUs over that with the fewest GPUs in the same configuration: the same network, batch per GPU, layout (except
for replicas), framework and version, on the same machine or on more of them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from simulator.cli.table import table_of
from simulator.console.style import Style
from simulator.errors import InputError
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import asdict, dataclass, field, replace
from validate.kinds.kind import MEMORY_COLUMNS
from validate.kinds.row import MeasuredRow
from validate.score.scoring import MOST_DIFFERENT, OTHER_REASON
from validate.tables.lines import by_frequency, percent_text, skipped_table
from validate.tables.statistics import Errors, percentile, summarise


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


_SAME = ("framework", "software", "model", "data")


@dataclass(frozen=True, slots=True)
class Scaling:
    """Differences of efficiencies, predicted minus measured, as fractions, over ``pairs`` rows.

    ``measured`` and ``predicted`` are the medians of the efficiencies themselves.
    """

    dataset: str
    pairs: int
    measured: float
    predicted: float
    median: float
    p90: float
    bias: float


class Efficiencies:
    """Measured and predicted step times, by configuration and number of GPUs."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Hashable], dict[int, tuple[array[float], array[float]]]] = {}

    def add(self, row: MeasuredRow) -> None:
        """Add *row* if it is a scored row of a step; raises InputError where configurations are too many."""
        question = row.asked.question if row.asked is not None else None
        if row.skipped or row.error is None or row.predicted_s is None or not isinstance(question, StepQuestion):
            return
        same = _without_count(question), *(row.labels.get(name, "") for name in _SAME)
        key = row.labels.get("dataset", ""), same
        measured, predicted = self._found.setdefault(key, {}).setdefault(
            len(question.gpus or (0,)), (array("d"), array("d"))
        )
        measured.append(row.predicted_s / (1.0 + row.error))
        predicted.append(row.predicted_s)
        if len(self._found) > MOST_DIFFERENT:
            raise InputError(f"--scaling: more than {MOST_DIFFERENT:,} different steps; score the table in parts")

    def scaling(self) -> list[Scaling]:
        """Return the differences of efficiencies by dataset; empty where no configuration has two numbers of GPUs."""
        pairs: dict[str, list[tuple[float, float]]] = {}
        for (dataset, _), by_count in self._found.items():
            fewest = min(by_count)
            first = [_median(times) for times in by_count[fewest]]
            for count in sorted(by_count.keys() - {fewest}):
                times = zip(*by_count[count], strict=True)
                pairs.setdefault(dataset, []).extend((first[0] / m, first[1] / p) for m, p in times)
        found = []
        for dataset, each in sorted(pairs.items()):
            measured, predicted = zip(*each, strict=True)
            off = [p - m for m, p in each]
            absolute = sorted(map(abs, off))
            median, p90 = percentile(absolute, 0.5), percentile(absolute, 0.9)
            bias = math.fsum(off) / len(off)
            found.append(Scaling(dataset, len(each), _median(measured), _median(predicted), median, p90, bias))
        return found


def _without_count(question: StepQuestion) -> StepQuestion:
    """Return *question* without the number of GPUs and the exchange options that may change with it."""
    where = replace(question.where, nodes=None)
    layout = replace(question.layout, dp=None)
    return replace(
        question, where=where, gpus=None, layout=layout, strategy="nccl", bucket_bytes=BUCKET_BYTES, servers=()
    )


def _median(values: Sequence[float]) -> float:
    return percentile(sorted(values), 0.5)


def scaling_lines(efficiencies: Efficiencies, style: Style) -> list[str]:
    """Return *efficiencies* as a text table, in percentage points; one line where nothing scales."""
    found = efficiencies.scaling()
    if not found:
        return ["scaling efficiency: no two scored rows differ in their number of GPUs alone"]
    table = [["scaling efficiency, in points", "pairs", "measured", "predicted", "median", "p90", "bias"]]
    for each in found:
        figures = [f"{100 * value:.1f}" for value in (each.measured, each.predicted, each.median, each.p90)]
        table.append([each.dataset or "(no dataset)", str(each.pairs), *figures, f"{100 * each.bias:+.1f}"])
    return table_of(table, [False] + [True] * 6, style)
