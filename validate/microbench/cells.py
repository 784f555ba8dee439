"""Cells of tables of small measurements, read."""

from __future__ import annotations

from collections.abc import Callable

from simulator.errors import one_line
from validate.score.query import NotScored, number

__all__ = ["NOMINAL_BYTES", "Cell", "measured_s", "size_bytes", "threads_of"]

Cell = Callable[[str], str]

NOMINAL_BYTES = 256 << 20
"""Stands for a size that a table does not tell: so large that nothing but bandwidth counts."""

_MOST_BYTES = 1e15
_MOST_THREADS = 4096


def size_bytes(cell: Cell, column: str = "bytes") -> float:
    """Return the size under *column*, a large one where there is none; raises NotScored."""
    text = cell(column)
    if not text:
        return float(NOMINAL_BYTES)
    value = number(column, text)
    if value > _MOST_BYTES:
        raise NotScored(f"{column} is more than {_MOST_BYTES:g}")
    return value


def threads_of(cell: Cell, column: str = "threads") -> int | None:
    """Return the number of threads under *column*, None where it is empty; raises NotScored."""
    text = cell(column)
    if not text:
        return None
    value = number(column, text)
    if value != int(value) or value > _MOST_THREADS:
        raise NotScored(f"{one_line(column, 20)} is no whole number up to {_MOST_THREADS}")
    return int(value)


def measured_s(cell: Cell, counted_bytes: float | None) -> float:
    """Return the seconds of a row: those of its rate, where *counted_bytes* are what it counts, else its time."""
    if cell("gbps") and counted_bytes is not None:
        return counted_bytes / (number("GBps", cell("gbps")) * 1e9)
    if cell("time_s"):
        return number("time_s", cell("time_s"))
    return number("latency_s", cell("latency_s"))
