"""Tables of measured operators: predicted by the cost models on a device of the data sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from validate.operators.devices import DeviceBook
from validate.operators.predict import predict_operator, roofline_operator
from validate.operators.query import COLUMNS_ASKED, OperatorQuery, read_query
from validate.score.kind import Cell, Kind
from validate.score.query import NotScored, number
from validate.score.table import Table

__all__ = ["OPERATORS", "OperatorScorer"]

OPERATORS = Kind(
    name="operators",
    needed=("device", "op", "dtype", "time_s"),
    asked=COLUMNS_ASKED,
    measured=("time_s",),
    place="device",
    axes=(
        ("op",),
        ("device",),
        ("dataset",),
        ("device", "op"),
        ("dataset", "op"),
        ("dataset", "device"),
        ("op", "phase"),
        ("op", "dtype"),
    ),
    shown=(("op",), ("device",), ("dataset",)),
    labels=("device", "op"),
    baseline="roofline",
    baseline_label="roofline",
    legend="roofline: the longer of FLOPs and bytes at data sheet rates",
)


class OperatorScorer:
    """Predicts operators on the devices of *book*."""

    def __init__(self, book: DeviceBook) -> None:
        self._book = book
        self.method = "data sheet and shared constants"
        self.kind = OPERATORS
        if not book.needs_names:
            self.kind = replace(OPERATORS, needed=tuple(c for c in OPERATORS.needed if c != "device"))

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse names of devices that no row has."""
        self._book.check_used({table.cell(row, "device") for table in tables for row in table.rows})

    def prepare(self, table: Table, trust: Sequence[str]) -> Mapping[int, str]:
        """All rows may count."""
        del table, trust
        return {}

    def labels(self, cell: Cell) -> dict[str, str]:
        """Columns say all."""
        del cell
        return {}

    def read(self, cell: Cell) -> OperatorQuery:
        """Return what a row asks."""
        return read_query(cell)

    def predict_s(self, query: OperatorQuery) -> float:
        """Return the predicted time."""
        time_s = predict_operator(self._book.get(query.device), query)
        if not 0 < time_s < float("inf"):
            raise NotScored("the predicted time is not positive")
        return time_s

    def baseline_s(self, query: OperatorQuery) -> float:
        """Return the roofline."""
        return roofline_operator(self._book.get(query.device), query)

    def measured_s(self, cell: Cell) -> float:
        """Return ``time_s``."""
        return number("time_s", cell("time_s"))

    def published_s(self, cell: Cell) -> Mapping[str, float]:
        """None are known."""
        del cell
        return {}
