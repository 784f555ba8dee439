"""A scorer made of functions: how a row is read, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import one_line
from validate.score.kind import Cell, Kind
from validate.score.query import NotScored
from validate.score.table import Table

__all__ = ["FunctionScorer"]


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """Predicts rows of *kind* with *predict*; *check_names* refuses names given by the user that no row has."""

    kind: Kind
    method: str
    reader: Callable[[Cell], Any]
    predict: Callable[[Any], float]
    baseline: Callable[[Any], float]
    measured: Callable[[Cell], float]
    check_names: Callable[[set[str]], None]
    labelled: Callable[[Cell], dict[str, str]] | None = None

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse names of machines or devices that no row has."""
        self.check_names({table.cell(row, self.kind.place) for table in tables for row in table.rows})

    def prepare(self, table: Table, trust: Sequence[str]) -> Mapping[int, str]:
        """All rows may count."""
        del table, trust
        return {}

    def labels(self, cell: Cell) -> dict[str, str]:
        """Return what the kind groups by beside columns."""
        return self.labelled(cell) if self.labelled is not None else {}

    def read(self, cell: Cell) -> Any:
        """Return what a row asks."""
        return self.reader(cell)

    def predict_s(self, query: Any) -> float:
        """Return the predicted time."""
        return _positive(self.predict(query), "predicted time")

    def baseline_s(self, query: Any) -> float:
        """Return the time at the rates of the data sheet."""
        return _positive(self.baseline(query), "baseline")

    def measured_s(self, cell: Cell) -> float:
        """Return what was measured, as a time."""
        return self.measured(cell)

    def published_s(self, cell: Cell) -> Mapping[str, float]:
        """None are known."""
        del cell
        return {}


def _positive(time_s: float, what: str) -> float:
    if not 0 < time_s < float("inf"):
        raise NotScored(f"the {one_line(what)} is not positive")
    return time_s
