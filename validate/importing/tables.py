"""Output of imports: rows of the project's tables, their trust grades, and counts of skipped rows."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from validate.tables.cells import figure

OPERATORS = (
    *("device", "op", "variant", "phase", "dtype", "batch", "m", "n", "k", "heads", "kv_heads", "time_s"),
    *("includes_dispatch", "cache", "issue", "software", "trust", "note", "dataset"),
)
COLLECTIVES = (
    *("machine", "n_nodes", "n_gpus", "collective", "bytes", "dtype", "placement", "time_s"),
    *("software", "trust", "note", "dataset"),
)
DATASET = "aiconfigurator"
Row = Mapping[str, object]
Shape = tuple[int, ...]
Times = dict[Shape, list[float]]  # seconds, one for each measurement of a shape
LeftOut = Counter[str]

_APART = 1.5  # a larger ratio means that frameworks did not run the same work
_FLOOR_S = 2e-6  # shorter times are mostly the gap between kernels


def csv_of(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    """Return *rows* as CSV, without columns that are empty in all rows."""
    listed = list(rows)
    used = [column for column in columns if any(row.get(column, "") != "" for row in listed)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(used)
    writer.writerows([row.get(column, "") for column in used] for row in listed)
    return stream.getvalue().encode()


def latency_s(text: str) -> float | None:
    """Return the time *text*, given in milliseconds, in seconds; None if it is not a positive number."""
    value = figure(text)
    return value * 1e-3 if value is not None and value > 0 else None


def seconds(value_s: float) -> str:
    """Return a time as text in seconds, with five significant digits, more than the measurement's precision."""
    return f"{value_s:.5g}"


def graded(times: Mapping[str, Times]) -> dict[str, dict[Shape, tuple[float, str, str]]]:
    """Return by framework and shape the median time in seconds, the trust grade and a note.

    The grade is A if frameworks agree, B if they differ by more than a factor of 1.5, and C for times below 2 us.
    """
    medians = {framework: {shape: median(found) for shape, found in of.items()} for framework, of in times.items()}
    ends: dict[Shape, tuple[float, float]] = {}
    for of in medians.values():
        for shape, time_s in of.items():
            low_s, high_s = ends.get(shape, (time_s, time_s))
            ends[shape] = min(low_s, time_s), max(high_s, time_s)
    result: dict[str, dict[Shape, tuple[float, str, str]]] = {}
    for framework, of in medians.items():
        result[framework] = {}
        for shape in sorted(of):
            low_s, high_s = ends[shape]
            grade, note = "A", ""
            if high_s > _APART * low_s:
                grade, note = "B", f"frameworks differ x{high_s / low_s:.2g}"
            if of[shape] < _FLOOR_S:
                grade = "C"
            result[framework][shape] = of[shape], grade, note
    return result
