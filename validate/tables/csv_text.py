"""CSV with places: the records of a file as text, and the line where each starts.

RFC 4180 with commas; lines end in LF or CRLF (in CR where the file has no LF); a UTF-8
byte order mark is passed over, and so are empty lines.  What is too large to be a table is refused before it is split:
memory grows with the rows that are kept.  The standard library's reader does
not say in which column it stumbles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.errors import Fault, InputError

__all__ = ["MAX_BYTES", "MAX_ROWS", "Record", "read_records"]

MAX_BYTES = 64_000_000
MAX_ROWS = 100_000  # some 1.6 kB each where they are scored: 200 MB
_MAX_LINES = 1_000_000
_MAX_FIELDS = 5_000
_MAX_CELL = 1_000_000  # characters


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its fields as written (quotes resolved), and its first line, from 1."""

    line: int
    fields: tuple[str, ...]


def read_records(raw: bytes, name: str, most: int = MAX_ROWS) -> list[Record]:
    """Return the records of the file *raw*, which messages call *name*: a header and at most so many rows.

    Raises InputError where the file is empty, too large, no text, or a quote does not close; where a row or a cell is
    larger than any table has.
    """
    if len(raw) > MAX_BYTES:
        raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB; score it in parts", name))
    if raw.count(b"\n") > _MAX_LINES:
        raise InputError(Fault(f"has more than {_MAX_LINES:,} lines; score it in parts", name))
    bad = raw.find(b"\0")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = error.start if bad < 0 else min(bad, error.start)
    if bad >= 0:
        line = raw.count(b"\n", 0, bad) + 1
        column = bad - raw.rfind(b"\n", 0, bad)
        raise InputError(Fault("is no text (UTF-8); a CSV table is needed", name, line, column))
    if not text or text.isspace():
        raise InputError(Fault("is empty; a table starts with a line of column names", name, 1, 1))
    if "\n" not in text:
        text = text.replace("\r", "\n")
    found: list[Record] = []
    for record in _split(text, name):
        if len(record.fields) > 1 or record.fields[0].strip():
            if len(found) > most:
                raise InputError(Fault(f"has more than {most:,} rows; score it in parts", name, record.line, 1))
            found.append(record)
    return found


def _refuse_wide(n_fields: int, longest: int, name: str, line: int, column: int) -> None:
    if n_fields > _MAX_FIELDS:
        raise InputError(Fault(f"the row has more than {_MAX_FIELDS:,} fields", name, line, column))
    if longest > _MAX_CELL:
        raise InputError(Fault(f"a cell has more than {_MAX_CELL:,} characters", name, line, column))


def _split(text: str, name: str) -> Iterator[Record]:
    position, line = 0, 1
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        if text.find('"', position, end) < 0:
            n_fields = text.count(",", position, end) + 1
            _refuse_wide(n_fields, (end - position) // n_fields, name, line, 1)
            yield Record(line, tuple(text[position:end].removesuffix("\r").split(",")))
            position, line = end + 1, line + 1
            continue
        first = line
        fields, position, line = _quoted(text, position, line, name)
        yield Record(first, fields)


def _quoted(text: str, position: int, line: int, name: str) -> tuple[tuple[str, ...], int, int]:
    """Return the fields of the record at *position*, and where the next one starts."""
    line_start = position
    fields: list[str] = []
    while True:
        if text.startswith('"', position):
            place = (line, position - line_start + 1)
            pieces: list[str] = []
            position += 1
            while True:
                close = text.find('"', position)
                if close < 0:
                    raise InputError(Fault("the quote that opens here never closes", name, *place))
                pieces.append(text[position:close])
                position = close + 1
                if not text.startswith('"', position):
                    break
                pieces.append('"')
                position += 1
            _refuse_wide(len(fields), sum(map(len, pieces)), name, *place)
            value = "".join(pieces)
            if "\n" in value:
                line += value.count("\n")
                line_start = text.rfind("\n", 0, position) + 1
            if text.startswith("\r\n", position) or text[position:] == "\r":
                position += 1
            if position < len(text) and text[position] not in ",\n":
                column = position - line_start + 1
                message = "text after a closing quote; inside quotes a quote is written twice"
                raise InputError(Fault(message, name, line, column))
        else:
            ends = [e for e in (text.find(",", position), text.find("\n", position)) if e >= 0]
            end = min(ends, default=len(text))
            _refuse_wide(len(fields), end - position, name, line, position - line_start + 1)
            value = text[position:end]
            position = end
            if not text.startswith(",", end):
                value = value.removesuffix("\r")
        fields.append(value)
        if position >= len(text) or text[position] == "\n":
            return tuple(fields), position + 1, line + 1
        position += 1
