r"""Scored tables as CSV, with the prediction of each row.

Cells are inert: characters that a terminal would obey or hide are written as ``\x1b``, and a text that a spreadsheet
would compute (``=...``) starts with an apostrophe.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from validate.kinds.kind import ALL_COLUMNS, MEMORY_COLUMNS
from validate.kinds.row import MeasuredRow
from validate.tables.cells import figure
from validate.tables.table import Table

ADDED = ("predicted_s", "low_s", "high_s", "error", "skipped")
_MEMORY = {name: f"predicted_{name}_bytes" for name in MEMORY_COLUMNS}  # where a table has such columns


class Predictions:
    """Writes all rows of *tables* as CSV to *write* as they come: their own columns, then those of ``ADDED``.

    Tables with measured memory have the predicted bytes of each figure that a row holds too.
    Columns of several tables are joined by name, and a column ``table`` names each row's table.  Columns of the input
    with such a name are dropped.  Fields beyond the header are joined to the last column as text.
    """

    def __init__(self, tables: Sequence[Table], write: Callable[[bytes], None]) -> None:
        columns: dict[str, str] = {}
        for table in tables:
            for index, name in enumerate(_names(table)):
                columns.setdefault(name, table.header[index])
        self._write = write
        self._kept = [name for name in columns if name not in (*ADDED, *_MEMORY.values())]
        self._memory = list(_MEMORY) if not columns.keys().isdisjoint(ALL_COLUMNS) else []
        self._several = len(tables) > 1
        added = [*ADDED, *(_MEMORY[name] for name in self._memory)]
        self._line([*(columns[name] for name in self._kept), *(["table"] if self._several else []), *added])

    def begin(self, table: Table) -> Callable[[MeasuredRow], None]:
        """Return the function that writes a row of *table*."""
        names = _names(table)
        own = [table.file] if self._several else []

        def write(row: MeasuredRow) -> None:
            cells = dict(zip(names, _fitted(row.record.fields, len(names)), strict=True))
            self._line([*[cells.get(name, "") for name in self._kept], *own, *_added(row), *self._memory_of(row)])

        return write

    def _memory_of(self, row: MeasuredRow) -> list[str]:
        found = {each.name: repr(each.predicted_bytes) for each in row.memory if each.predicted_bytes is not None}
        return [found.get(name, "") for name in self._memory]

    def _line(self, cells: Sequence[str]) -> None:
        self._write((",".join(_quoted(_inert(cell)) for cell in cells) + "\n").encode())


_OBEYED = ("Cc", "Cf", "Zl", "Zp")  # control and format characters, separators of lines


def _inert(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        text = "".join(
            c.encode("unicode_escape").decode() if unicodedata.category(c) in _OBEYED and c not in "\t\r\n" else c
            for c in text
        )
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and figure(text) is None else text


def _quoted(text: str) -> str:
    # The standard library's writer does not quote a lone CR, at which readers end the line.
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _names(table: Table) -> list[str]:
    """Return a unique name for each column."""
    names: list[str] = []
    for index, text in enumerate(table.header):
        name = text.strip().lower()
        names.append(name if name and name not in names else f"\0{index}")
    return names


def _fitted(fields: Sequence[str], n: int) -> list[str]:
    if len(fields) > n:
        return [*fields[: n - 1], ",".join(fields[n - 1 :])]
    return [*fields, *[""] * (n - len(fields))]


def _added(row: MeasuredRow) -> list[str]:
    predicted = "" if row.predicted_s is None else repr(row.predicted_s)
    error = "" if row.error is None else repr(row.error)
    band = ["", ""] if row.band is None else [repr(row.band.low_s), repr(row.band.high_s)]
    return [predicted, *band, error, row.skipped]
