"""CSV with positions: the records of a file as text, with the line on which each starts.

The format is RFC 4180 with commas; lines end in LF or CRLF (in CR where the file has no LF); a UTF-8 byte order mark
and empty lines are skipped.  The standard library's reader does not report the column of an error.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterable, Sequence
from copy import copy
from typing import overload

from simulator.errors import Fault, InputError
from simulator.records import dataclass

MAX_BYTES = 64_000_000
MAX_ROWS = 1_000_000  # of a table read row by row
MAX_HELD = 100_000  # of a table whose rows are kept with their results, some 1.6 kB each
_MAX_LINES = 2_000_000
_MAX_FIELDS = 5_000
_MAX_CELL = 1_000_000  # characters
_WITHIN_QUOTES = re.compile(r'[^"]*+(?:""[^"]*+)*+')
_WITHOUT_QUOTES = re.compile(r"[^,\n]*+")


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record: its fields, with quotes resolved, and its first line, counted from 1."""

    line: int
    fields: tuple[str, ...]


class Records(Sequence[CsvRecord]):
    """The records of the CSV *text*, called *name*, at most *most* and a header; split on access: only text is kept."""

    def __init__(self, text: str, name: str, most: int) -> None:
        self._text = text
        self._name = name
        self._starts = array("I")
        self._lines = array("I")
        self._below = 0
        position, line = 0, 1
        while position < len(text):
            fields, after, next_line = self._split(position, line)
            if len(fields) > 1 or fields[0].strip():
                if len(self._starts) > most:
                    raise self._fault(f"has more than {most:,} rows; score it in parts", line)
                self._starts.append(position)
                self._lines.append(line)
            position, line = after, next_line
        self._columns = len(self[0].fields) if self else 0

    def rows(self) -> Records:
        """Return the records below the header, with unquoted commas of prose rejoined."""
        found = copy(self)
        found._below = 1
        return found

    def __len__(self) -> int:
        return len(self._starts) - self._below

    @overload
    def __getitem__(self, index: int) -> CsvRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[CsvRecord]: ...
    def __getitem__(self, index: int | slice) -> CsvRecord | list[CsvRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index] + self._below
        fields = self._split(self._starts[at], self._lines[at])[0]
        if self._below and len(fields) > self._columns:
            joined: list[str] = []  # a field that begins with a blank is the rest of the one before
            for text in fields:
                if joined and text.startswith(" "):
                    joined[-1] += "," + text
                else:
                    joined.append(text)
            fields = tuple(joined) if len(joined) == self._columns else fields
        return CsvRecord(self._lines[at], fields)

    def _fault(self, message: str, line: int, column: int = 1) -> InputError:
        return InputError(Fault(message, self._name, line, column))

    def _split(self, position: int, line: int) -> tuple[tuple[str, ...], int, int]:
        """Return the fields of the record at *position*, and the position and line of the next one."""
        text = self._text
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        if text.find('"', position, end) >= 0:
            return self._split_quoted(position, line)
        if text.count(",", position, end) >= _MAX_FIELDS:
            raise self._fault(f"the row has more than {_MAX_FIELDS:,} fields", line)
        fields = text[position:end].removesuffix("\r").split(",")
        if end - position > _MAX_CELL and max(map(len, fields)) > _MAX_CELL:
            raise self._fault(f"a cell has more than {_MAX_CELL:,} characters", line)
        return tuple(fields), end + 1, line + 1

    def _split_quoted(self, position: int, line: int) -> tuple[tuple[str, ...], int, int]:
        """Return the same as :meth:`_split` for a record with quotes on its first line."""
        text, line_start = self._text, position
        fields: list[str] = []
        while True:
            first, column = position, position - line_start + 1
            if len(fields) > _MAX_FIELDS:
                raise self._fault(f"the row has more than {_MAX_FIELDS:,} fields", line, column)
            is_quoted = text.startswith('"', first)
            found = (_WITHIN_QUOTES if is_quoted else _WITHOUT_QUOTES).match(text, first + is_quoted)
            assert found is not None
            value, position = found[0], found.end() + is_quoted
            if position > len(text):
                raise self._fault("the quote that opens here never closes", line, column)
            value = value.replace('""', '"') if is_quoted else value
            if len(value) > _MAX_CELL:
                raise self._fault(f"a cell has more than {_MAX_CELL:,} characters", line, column)
            if is_quoted:
                line += value.count("\n")
                line_start = max(line_start, text.rfind("\n", first, position) + 1)
                if text.startswith("\r\n", position) or (position == len(text) - 1 and text.endswith("\r")):
                    position += 1
                if position < len(text) and text[position] not in ",\n":
                    message = "text after a closing quote; inside quotes a quote is written twice"
                    raise self._fault(message, line, position - line_start + 1)
            ends = position >= len(text) or text[position] == "\n"
            fields.append(value.removesuffix("\r") if ends and not is_quoted else value)
            if ends:
                return tuple(fields), position + 1, line + 1
            position += 1


def read_records(raw: bytes, name: str, most: int = MAX_HELD) -> Records:
    """Return the records of the file content *raw*, called *name*: a header and at most *most* rows."""
    if len(raw) > MAX_BYTES:
        raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB; score it in parts", name))
    if raw.count(b"\n") > _MAX_LINES:
        raise InputError(Fault(f"has more than {_MAX_LINES:,} lines; score it in parts", name))
    bad = raw.find(b"\0")
    try:
        text = raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        bad = min(filter(lambda place: place >= 0, (bad, error.start)))
    if bad >= 0:
        column = bad - raw.rfind(b"\n", 0, bad)
        raise InputError(Fault("is not UTF-8 text; a CSV table is needed", name, raw.count(b"\n", 0, bad) + 1, column))
    found = Records(text if "\n" in text else text.replace("\r", "\n"), name, most)
    if not found:
        raise InputError(Fault("is empty; a table starts with a line of column names", name, 1, 1))
    return found


def csv_bytes(rows: Iterable[Sequence[object]]) -> bytes:
    """Return *rows*, the header first, as the content of a file."""
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerows(rows)
    return output.getvalue().encode()
