"""Predictions published by others for the same measurements, by ``row_id`` of the table of measurements."""

from __future__ import annotations

from simulator.errors import Fault, InputError
from validate.tables.cells import NotScored, number
from validate.tables.files import read_bytes, shown_as
from validate.tables.table import read_table

_NEEDED = ("row_id", "predictor", "predicted_s")


def read_published(file: str) -> dict[str, dict[str, float]]:
    """Return the predicted seconds in the table *file*, by row and predictor.

    Raises InputError where it cannot be read, lacks a column, or has a prediction that is not a positive number.
    """
    table = read_table(read_bytes(file), shown_as(file), _NEEDED, _NEEDED, "published predictions")
    found: dict[str, dict[str, float]] = {}
    for record in table.rows:
        try:
            predicted_s = number("predicted_s", table.cell(record, "predicted_s"))
        except NotScored as reason:
            raise InputError(Fault(str(reason), shown_as(file), record.line, 1)) from None
        found.setdefault(table.cell(record, "row_id"), {})[table.cell(record, "predictor")] = predicted_s
    return found
