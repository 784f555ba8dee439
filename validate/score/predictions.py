"""The table once more, with each row's prediction beside it."""

from __future__ import annotations

from collections.abc import Sequence

from validate.score.document import ScoredTable
from validate.score.score import ScoredRow
from validate.tables.table import Table

__all__ = ["ADDED", "predictions_csv"]

ADDED = ("predicted_s", "low_s", "high_s", "error", "skipped")


def predictions_csv(tables: Sequence[tuple[Table, ScoredTable]]) -> bytes:
    """Return all rows of *tables* as CSV: the columns as written, then ``ADDED``.

    The columns of several tables are joined by name, and a column ``table`` says where a row
    is from.  Columns of the input that are called as one of ``ADDED`` give way.  Fields
    beyond the header stay as text in the last column.
    """
    columns: dict[str, str] = {}
    for table, _ in tables:
        for index, name in enumerate(_names(table)):
            columns.setdefault(name, table.header[index])
    kept = [name for name in columns if name not in ADDED]
    several = len(tables) > 1
    lines = [[*(columns[name] for name in kept), *(["table"] if several else []), *ADDED]]
    for table, scored in tables:
        names = _names(table)
        for row in scored.rows:
            cells = dict(zip(names, _fitted(row.record.fields, len(names)), strict=True))
            text = [cells.get(name, "") for name in kept]
            lines.append([*text, *([scored.file] if several else []), *_added(row)])
    return "".join(",".join(map(_quoted, line)) + "\n" for line in lines).encode()


def _quoted(text: str) -> str:
    # The standard library's writer leaves a lone CR bare, at which readers end the line.
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _names(table: Table) -> list[str]:
    """Return one name a column, none twice."""
    names: list[str] = []
    for index, text in enumerate(table.header):
        name = text.strip().lower()
        names.append(name if name and name not in names else f"\0{index}")
    return names


def _fitted(fields: Sequence[str], n: int) -> list[str]:
    if len(fields) > n:
        return [*fields[: n - 1], ",".join(fields[n - 1 :])]
    return [*fields, *[""] * (n - len(fields))]


def _added(row: ScoredRow) -> list[str]:
    predicted = "" if row.predicted_s is None else repr(row.predicted_s)
    error = "" if row.error is None else repr(row.error)
    band = ["", ""] if row.band is None else [repr(row.band.low_s), repr(row.band.high_s)]
    return [predicted, *band, error, row.skipped]
