"""Text of tables: the records of a CSV file with their lines, and what a cell says, or why its row is not scored.

CSV is RFC 4180's with commas; lines end in LF or CRLF (in CR where the file has no LF); a UTF-8 byte order mark and
empty lines are skipped.  The standard library's reader does not report the column of an error.
"""

import csv
import io
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from decimal import Decimal
from typing import Any, TypeVar, overload

from simulator.errors import Fault, InputError, one_line
from simulator.questions.where import FEATURES, NCCL_TODAY, OLDEST_RULES, Feature, Version, chip_since
from simulator.records import dataclass, own_data, own_patterns
from simulator.units import parse_quantity

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

    def rows(self) -> "Records":
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


NOMINAL_BYTES = 256 << 20  # stands in for a size that a table does not give: so large that only bandwidth counts

T = TypeVar("T", bound=str)
_MOST_BYTES = 1e15
MOST_THREADS = 4096

_MEASURABLE_S = (1e-9, 1e9)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


class NotScored(Exception):  # noqa: N818  a row that is not scored is no fault
    """The row cannot be scored; the message gives a reason in words that many rows can share."""


@contextmanager
def unscored() -> Iterator[None]:
    """Raise NotScored with the words of an InputError that is raised within."""
    try:
        yield
    except InputError as error:
        raise NotScored(one_line(error)) from None


def figure(text: str) -> float | None:
    """Return the finite number that *text* is in plain decimal notation, the only one that tables use; else None."""
    value = float(text) if len(text) <= 60 and _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def number(column: str, text: str) -> float:
    """Return the number *text* of *column*; raises NotScored where it is empty, no number, or not positive."""
    value = figure(text)
    if value is None:
        raise NotScored(f"{column} is not a number" if text else f"{column} missing")
    if value <= 0:
        raise NotScored(f"{column} not positive")
    return value


def whole_cell(column: str, text: str, most: float = math.inf) -> int:
    """Return the positive whole number *text* of *column*; raises NotScored as :func:`number`, or above *most*."""
    value = number(column, text)
    if value != int(value):
        raise NotScored(f"{column} is not a whole number")
    if value > most:
        raise NotScored(f"{column} is more than {most:g}")
    return int(value)


def whole_or_none(cell: Callable[[str], str], column: str, most: float = math.inf) -> int | None:
    """Return the positive whole number in *column*, None if it is empty; raises NotScored as :func:`whole_cell`."""
    return whole_cell(column, cell(column), most) if cell(column) else None


def one_of(text: str, known: Sequence[T], refusal: str) -> T:
    """Return which of *known* the *text* is; raises NotScored, with the *refusal*, where it is none."""
    found = next((each for each in known if each == text), None)
    if found is None:
        raise NotScored(refusal)
    return found


def quantity(column: str, text: str, kind: str) -> float:
    """Return the positive quantity *text* of *column*, in SI units; raises NotScored where it is none."""
    try:
        return parse_quantity(text, kind, positive=True)
    except ValueError as error:
        raise NotScored(f"{column} '{one_line(text, 20)}': {one_line(error)}") from None


def measured_time(seconds: float) -> float:
    """Return *seconds*; raises NotScored where they are too few or too many for any measurement."""
    if not _MEASURABLE_S[0] <= seconds <= _MEASURABLE_S[1]:
        raise NotScored(f"time_s outside {_MEASURABLE_S[0]:g} to {_MEASURABLE_S[1]:g} s")
    return seconds


def size_bytes(cell: Callable[[str], str], column: str = "bytes") -> float:
    """Return the bytes under *column*, ``NOMINAL_BYTES`` where it is empty; raises NotScored on no valid size."""
    value = number(column, cell(column)) if cell(column) else float(NOMINAL_BYTES)
    if value > _MOST_BYTES:
        raise NotScored(f"{column} is more than {_MOST_BYTES:g}")
    return value


def decade_of(size: float) -> str:
    """Return the decade of *size* for grouping rows: ``1e6`` from 1,000,000 to below 10,000,000."""
    return f"1e{Decimal(repr(size)).adjusted()}"


def measured_s(cell: Callable[[str], str], counted_bytes: float | None) -> float:
    """Return a row's seconds by its rate for *counted_bytes*, else its time or latency; raises NotScored."""
    if cell("gbps") and counted_bytes is not None:
        return counted_bytes / (number("GBps", cell("gbps")) * 1e9)
    return number("time_s", cell("time_s")) if cell("time_s") else number("latency_s", cell("latency_s"))


_CAME: Mapping[str, Any] = own_data("validate.tables", "releases.json")
_SAYS = own_patterns("validate.tables", "releases.json", "software")  # months are those of containers and the HPC SDK
# Release dates in years (github.com/NVIDIA/nccl/releases); a version covers the time until the next one listed.
_RELEASES: list[tuple[float, Version]] = [(came, (major, minor)) for came, major, minor in _CAME["nccl"]]
_TORCH_CAME = {1: 2018.9, 2: 2023.2}  # release years of 1.0 and 2.0 (github.com/pytorch/pytorch/releases)
_TORCH_APART = 0.29  # years between minor versions
_IN_USE = 1.0  # years after a GPU's release when most published measurements of it are taken


def nccl_of(software: str, compute_capability: str | None, *features: Feature) -> Version:
    """Return NCCL's major and minor version.

    It is the one that *software* states or whose date it implies (a year, a container's month, a PyTorch release); else
    that of one year after the release of GPUs with *compute_capability*; else today's.  If not stated, it is at least
    the first one for these GPUs, with all of *features*.
    """
    if said := _SAYS["nccl"].search(software):
        return int(said[1]), int(said[2])
    least = [FEATURES[feature] for feature in features]
    if compute_capability is not None:
        least.append(chip_since(round(10 * float(compute_capability))))
    if month := _SAYS["month"].search(software):
        year = 2000 + int(month[1]) + int(month[2]) / 12
    elif said := _SAYS["year"].search(software):
        year = int(said[1]) + 0.5
    elif torch := _SAYS["torch"].search(software):
        year = _TORCH_CAME[int(torch[1])] + _TORCH_APART * int(torch[2])
    elif compute_capability is not None:
        year = _IN_USE + max((came for since, came in _CAME["gpus"] if since <= float(compute_capability)), default=0.0)
        least.append(OLDEST_RULES)
    else:
        return NCCL_TODAY
    return max([_RELEASES[0][1], *(version for came, version in _RELEASES if came <= year), *least])
