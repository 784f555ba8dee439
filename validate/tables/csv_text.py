"""CSV with positions: the records of a file as text, with the line on which each starts.

The format is RFC 4180 with commas.  Lines end in LF or CRLF (in CR where the file has no LF); a UTF-8 byte order mark
and empty lines are skipped.  A file that is too large for a table is refused before it is split.  Of other files, the
bytes and the start of each record are kept, and records are split on access, so that a table of a million rows takes
little more memory than its file.  The standard library's reader does not report the column of an error.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import overload

from simulator.errors import Fault, InputError
from simulator.records import dataclass

MAX_BYTES = 64_000_000
MAX_ROWS = 1_000_000  # of a table read row by row
MAX_HELD = 100_000  # of a table whose rows are kept with their results, some 1.6 kB each
_MAX_LINES = 2_000_000
_MAX_FIELDS = 5_000
_MAX_CELL = 1_000_000  # characters
_PIECE = 1 << 20
_WITHIN = re.compile(rb'[^"]*+(?:""[^"]*+)*+')
_MOST_BYTES = 4  # per character; a doubled quote takes two
_MARK = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record: its fields, with quotes resolved, and its first line, counted from 1."""

    line: int
    fields: tuple[str, ...]


class LazyRecords(Sequence[CsvRecord], ABC):
    """A sequence of records made on access, so that only those in use take memory."""

    @abstractmethod
    def made(self, index: int) -> CsvRecord:
        """Return the record at *index*, counted from 0."""

    @overload
    def __getitem__(self, index: int) -> CsvRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[CsvRecord]: ...
    def __getitem__(self, index: int | slice) -> CsvRecord | list[CsvRecord]:
        if isinstance(index, slice):
            return [self.made(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.made(index % len(self))


class Records(LazyRecords):
    """The records of the CSV bytes *raw*, called *name* in messages; each is split on access.

    Raises InputError where there are more than *most* records besides a header, a quote is not closed, or a row or a
    cell exceeds its limit.
    """

    def __init__(self, raw: bytes, name: str, most: int) -> None:
        self._raw = raw
        self._name = name
        self._starts = array("I")
        self._lines = array("I")
        position, line = len(_MARK) if raw.startswith(_MARK) else 0, 1
        while position < len(raw):
            fields, after, next_line = _record(raw, position, line, name)
            if len(fields) > 1 or fields[0].strip():
                if len(self._starts) > most:
                    raise InputError(Fault(f"has more than {most:,} rows; score it in parts", name, line, 1))
                self._starts.append(position)
                self._lines.append(line)
            position, line = after, next_line

    def __len__(self) -> int:
        return len(self._starts)

    def made(self, index: int) -> CsvRecord:
        """Return the record at *index*, split."""
        line = self._lines[index]
        return CsvRecord(line, _record(self._raw, self._starts[index], line, self._name)[0])


def read_records(raw: bytes, name: str, most: int = MAX_HELD) -> Records:
    """Return the records of the file content *raw*, called *name* in messages: a header and at most *most* rows.

    Raises InputError where the file is empty, too large or not text, a quote is not closed, or a row or a cell exceeds
    its limit.
    """
    if len(raw) > MAX_BYTES:
        raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB; score it in parts", name))
    if raw.count(b"\n") > _MAX_LINES:
        raise InputError(Fault(f"has more than {_MAX_LINES:,} lines; score it in parts", name))
    bad = _no_text(raw)
    if bad >= 0:
        line = raw.count(b"\n", 0, bad) + 1
        column = bad - raw.rfind(b"\n", 0, bad)
        raise InputError(Fault("is not UTF-8 text; a CSV table is needed", name, line, column))
    found = Records(raw if b"\n" in raw else raw.replace(b"\r", b"\n"), name, most)
    if not found:
        raise InputError(Fault("is empty; a table starts with a line of column names", name, 1, 1))
    return found


def _no_text(raw: bytes) -> int:
    """Return the index of the first byte of *raw* that is no valid text, or -1; decodes in pieces to save memory."""
    found = raw.find(b"\0")
    if raw.isascii():
        return found
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(raw), _PIECE):
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(raw[start : start + _PIECE], final=start + _PIECE >= len(raw))
        except UnicodeDecodeError as error:
            bad = start - pending + error.start
            return bad if found < 0 else min(bad, found)
    return found


def _column(raw: bytes, line_start: int, position: int) -> int:
    """Return the column of *position*, in characters from 1."""
    return len(raw[line_start:position].decode()) + 1


def _refuse_many(n_fields: int, name: str, line: int, column: int) -> None:
    if n_fields > _MAX_FIELDS:
        raise InputError(Fault(f"the row has more than {_MAX_FIELDS:,} fields", name, line, column))


def _record(raw: bytes, position: int, line: int, name: str) -> tuple[tuple[str, ...], int, int]:
    """Return the fields of the record at *position*, and the position and line of the next one."""
    end = raw.find(b"\n", position)
    end = len(raw) if end < 0 else end
    if raw.find(b'"', position, end) >= 0:
        return _quoted(raw, position, line, name)
    _refuse_many(raw.count(b",", position, end) + 1, name, line, 1)
    fields = raw[position:end].decode().removesuffix("\r").split(",")
    if end - position > _MAX_CELL and max(map(len, fields)) > _MAX_CELL:
        raise InputError(Fault(f"a cell has more than {_MAX_CELL:,} characters", name, line, 1))
    return tuple(fields), end + 1, line + 1


def _quoted(raw: bytes, position: int, line: int, name: str) -> tuple[tuple[str, ...], int, int]:
    """Return the same as :func:`_record` for a record with quotes on its first line."""
    line_start, line_end = position, -1
    fields: list[str] = []
    while True:
        if len(fields) > _MAX_FIELDS:
            _refuse_many(len(fields), name, line, _column(raw, line_start, position))
        if raw.startswith(b'"', position):
            place, first = (line, line_start), position
            value, position = _unquoted(raw, position, name, place)
            if "\n" in value:
                line += value.count("\n")
                line_start = raw.rfind(b"\n", first, position) + 1
            if raw.startswith(b"\r\n", position) or (position == len(raw) - 1 and raw.endswith(b"\r")):
                position += 1
            if position < len(raw) and raw[position : position + 1] not in (b",", b"\n"):
                message = "text after a closing quote; inside quotes a quote is written twice"
                raise InputError(Fault(message, name, line, _column(raw, line_start, position)))
        else:
            if line_end < position:
                line_end = raw.find(b"\n", position)
                line_end = len(raw) if line_end < 0 else line_end
            comma = raw.find(b",", position, line_end)
            end = line_end if comma < 0 else comma
            value = raw[position:end].decode()
            if len(value) > _MAX_CELL:
                raise _large(raw, position, name, (line, line_start))
            value, position = (value.removesuffix("\r") if comma < 0 else value), end
        fields.append(value)
        if position >= len(raw) or raw.startswith(b"\n", position):
            return tuple(fields), position + 1, line + 1
        position += 1


def _unquoted(raw: bytes, first: int, name: str, place: tuple[int, int]) -> tuple[str, int]:
    """Return the text within the quotes that open at *first*, and the position after the closing one."""
    found = _WITHIN.match(raw, first + 1, first + 2 + _MOST_BYTES * _MAX_CELL)
    assert found is not None
    close = found.end()
    if raw[close : close + 1] == b'"' and not raw.startswith(b'""', close):
        text = found[0].replace(b'""', b'"').decode()
        if len(text) <= _MAX_CELL:
            return text, close + 1
    elif raw.find(b'"', close + 2) < 0:
        column = _column(raw, place[1], first)
        raise InputError(Fault("the quote that opens here never closes", name, place[0], column))
    raise _large(raw, first, name, place)


def _large(raw: bytes, position: int, name: str, place: tuple[int, int]) -> InputError:
    column = _column(raw, place[1], position)
    return InputError(Fault(f"a cell has more than {_MAX_CELL:,} characters", name, place[0], column))
