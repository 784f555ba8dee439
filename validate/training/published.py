"""Predictions that others published of the same measurements, by the ``row_id`` of the table of measurements."""

from __future__ import annotations

from pathlib import Path

from simulator.errors import Fault, InputError, one_line
from validate.score.csv_text import MAX_BYTES
from validate.score.query import NotScored, number
from validate.score.table import read_table

__all__ = ["read_published"]

_NEEDED = ("row_id", "predictor", "predicted_s")


def read_published(file: str) -> dict[str, dict[str, float]]:
    """Return predicted seconds by row and by predictor of the table *file*.

    Raises
    ------
    InputError
        Where it cannot be read, lacks a column, or holds a prediction that is no positive number.

    """
    try:
        if Path(file).is_dir():
            raise InputError(Fault("is a folder; a CSV table is needed", one_line(file)))
        with Path(file).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or one_line(error)
        raise InputError(Fault(f"cannot be read: {words}", one_line(file))) from None
    name = one_line(file, 1000)
    table = read_table(raw, name, _NEEDED, _NEEDED, "published predictions")
    found: dict[str, dict[str, float]] = {}
    for record in table.rows:
        try:
            predicted_s = number("predicted_s", table.cell(record, "predicted_s"))
        except NotScored as reason:
            raise InputError(Fault(str(reason), name, record.line, 1)) from None
        found.setdefault(table.cell(record, "row_id"), {})[table.cell(record, "predictor")] = predicted_s
    return found
