"""Measured memory of steps: the figures that a row may hold, each with its prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from simulator.records import dataclass
from validate.tables.cells import NotScored, size_bytes
from validate.tables.statistics import relative_error

MEMORY_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "allocated": ("max_allocated_bytes", "peak_bytes"),
    "reserved": ("max_reserved_bytes",),
    "process": ("smi_bytes",),
}
"""Columns by figure; of several the first with a value counts."""

ALL_COLUMNS = tuple(column for columns in MEMORY_COLUMNS.values() for column in columns)


@dataclass(slots=True)
class MemoryFigure:
    """The bytes that a row holds of one figure, by the ``name`` in ``MEMORY_COLUMNS``, and their prediction.

    ``skipped``: why it does not count.  ``measured_bytes`` is NaN where the cell is at fault.
    """

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
        column = next(filter(cell, columns), None)
        if column is not None:
            try:
                found.append(MemoryFigure(name, size_bytes(cell, column)))
            except NotScored as reason:
                found.append(MemoryFigure(name, math.nan, str(reason)))
    return tuple(found)
