"""Measured operators, read for the fits: what each row asks, of which device, and how long it took."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from simulator.devices.gpu.gpu import Gpu
from simulator.errors import Fault, InputError
from validate.operators.devices import find_gpu
from validate.operators.query import COLUMNS_ASKED, OperatorQuery, read_query
from validate.score.csv_text import MAX_BYTES
from validate.score.query import NotScored, number
from validate.score.table import read_table

__all__ = ["Measured", "read_measured"]

_NEEDED = ("device", "op", "dtype", "time_s")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a row asks, of which device (uncalibrated), the seconds that were measured, and who measured."""

    query: OperatorQuery
    gpu: Gpu
    time_s: float
    dataset: str


def read_measured(
    file: str | Path, *, grades: Collection[str] = ("A",), ops: Collection[str] | None = None
) -> list[Measured]:
    """Return the rows of the table *file* with one of *grades*, or without any, that can be asked of a built-in GPU.

    *ops* names the operators (column ``op``) to read, None for all.

    Raises
    ------
    InputError
        Where the table cannot be read, or lacks a column.

    """
    try:
        with Path(file).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(Fault(f"cannot be read: {error.strerror or error}", str(file))) from None
    table = read_table(raw, str(file), _NEEDED, (*COLUMNS_ASKED, "time_s", "trust", "dataset"))
    found = []
    for record in table.rows:
        grade = table.cell(record, "trust").strip().upper()
        if (grade and grade not in grades) or (ops is not None and table.cell(record, "op") not in ops):
            continue
        asked = {column: table.cell(record, column) for column in COLUMNS_ASKED}
        gpu = find_gpu(asked["device"])
        if gpu is None:
            continue
        try:
            query = read_query(asked.__getitem__)
            time_s = number("time_s", table.cell(record, "time_s"))
        except NotScored:
            continue  # validate score names such rows
        found.append(Measured(query, gpu, time_s, table.cell(record, "dataset")))
    return found
