"""Tables of measured operators: predicted by the cost models on a device of the data sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from validate.calibrate.rows import calibrating_rows, countable, device_rows
from validate.calibrate.sample import choose, digest
from validate.operators.devices import DeviceBook
from validate.operators.predict import predict_operator, roofline_operator
from validate.operators.query import COLUMNS_ASKED, OperatorQuery, read_query
from validate.score.kind import Cell, Kind
from validate.score.query import NotScored, number
from validate.score.table import Table

__all__ = ["CALIBRATED_ON", "OPERATORS", "OperatorScorer"]

CALIBRATED_ON = "calibrated on"

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
    """Predicts operators on the devices of *book*.

    With *calibrate*, each device is first calibrated on that many rows (at most half of its own),
    which then do not count.  Nor do rows whose question is among *seen*, the digests of what
    calibrations of the book were fitted to.
    """

    def __init__(self, book: DeviceBook, *, calibrate: int = 0, seen: frozenset[str] = frozenset()) -> None:
        self._book = book
        self._calibrate = calibrate
        self._seen = seen
        self.method = "data sheet and shared constants"
        if calibrate:
            self.method = f"calibrated on at most {calibrate} rows of each device"
        elif book.calibrated:
            self.method = f"calibration of {', '.join(sorted(book.calibrated))}"
        self.kind = OPERATORS
        if not book.needs_names:
            self.kind = replace(OPERATORS, needed=tuple(c for c in OPERATORS.needed if c != "device"))

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse names of devices that no row has."""
        self._book.check_used({table.cell(row, "device") for table in tables for row in table.rows})

    def prepare(self, table: Table, trust: Sequence[str]) -> Mapping[int, str]:
        """Calibrate the devices of *table*, and set aside the rows that ask what calibrating rows asked."""
        chosen = set(self._seen)
        if self._calibrate:
            from validate.calibrate.fit import fit_calibration

            for part, asked in device_rows(table, self._book).items():
                gpu = self._book.get(asked[0].query.device)
                rows = countable(table, asked, gpu, trust)
                taken = choose((row.digest for row in rows), self._calibrate)
                if taken:
                    points = [(row.query, time_s) for row, time_s in calibrating_rows(table, rows, taken)]
                    fitted = fit_calibration(gpu, points)
                    self._book.calibrate(part, fitted.calibration)
                    chosen |= taken
        if not chosen:
            return {}
        return {
            record.line: CALIBRATED_ON
            for record in table.rows
            if digest({column: table.cell(record, column) for column in COLUMNS_ASKED}) in chosen
        }

    def labels(self, cell: Cell) -> dict[str, str]:
        """Columns say all."""
        del cell
        return {}

    def read(self, cell: Cell) -> OperatorQuery:
        """Return what a row asks."""
        return read_query(cell)

    def predict_s(self, query: OperatorQuery) -> float:
        """Return the predicted time."""
        time_s = predict_operator(self._book.get(query.device, query.threads), query)
        if not 0 < time_s < float("inf"):
            raise NotScored("the predicted time is not positive")
        return time_s

    def baseline_s(self, query: OperatorQuery) -> float:
        """Return the roofline."""
        return roofline_operator(self._book.get(query.device, query.threads), query)

    def measured_s(self, cell: Cell) -> float:
        """Return ``time_s``."""
        return number("time_s", cell("time_s"))

    def published_s(self, cell: Cell) -> Mapping[str, float]:
        """None are known."""
        del cell
        return {}
