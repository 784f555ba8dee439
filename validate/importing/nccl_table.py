"""The printed tables of nccl-tests: :func:`runs_in` finds each run of a test in a log, with its ranks and rows.

Columns are those of NVIDIA/nccl-tests ``src/util.cu``; headers of older versions have less.  What a launcher puts
before a line (``[1,0]<stdout>:``, ``0: ``, ``pod/name ``, a time) is passed over: a row is found by its size, count and
type wherever they stand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from simulator.errors import Fault, InputError, one_line

__all__ = ["MOST_ROWS", "PROGRAM", "Rank", "Row", "Run", "number_of", "possible", "runs_in", "seconds_of"]

PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoall|sendrecv|reduce|gather|scatter|hypercube)_perf\b"
)
MOST_ROWS = 100_000
_RANK = re.compile(
    r"#\s{1,20}Rank\s{1,20}(\d+)(?:\s{1,20}Group\s{1,20}\d{1,9})?\s{1,20}Pid\s{1,20}\d{1,20}\s{1,20}on\s{1,40}(\S{1,255})"
    r"\s{1,20}device\s{1,20}(\d+)\s{1,20}\[([^\]]{0,40})\]\s{0,20}(.{0,200})",
    re.ASCII,
)
_THREADS = re.compile(r"#\s{0,20}nThread\s{1,20}(\d{1,6})\s{1,20}nGpus\s{1,20}(\d{1,6})\b", re.ASCII)
_BOUNDS = re.compile(r"#\s{0,20}Out of bounds values\s{0,20}:\s{0,20}(\d{1,18})\s{1,20}(OK|FAILED)", re.ASCII)
_HEADER = ("Avg bus bandwidth", "out-of-place", "#wrong", "algbw")
_TYPE = re.compile(r"[a-z]\w{2,11}", re.ASCII)
_OPERATION = re.compile(r"[a-z]{3,6}", re.ASCII)
_FIGURE = re.compile(r"-?\d{1,20}(?:\.\d{0,20})?(?:e[+-]?\d{1,4})?|N/A|nan", re.ASCII)
_COUNT = re.compile(r"\d{1,18}", re.ASCII)
_AFTER_PREFIX = re.compile(r"[>:|\])]")  # what ends a launcher's prefix, where no space follows it
_MOST_WORDS = 60  # of one line
_MOST_RANK = 1 << 20
_LONGEST_S, _SHORTEST_S = 1e6, 1e-9  # nccl-tests prints hundredths of a microsecond


@dataclass(frozen=True, slots=True)
class Rank:
    """One line ``Rank N ... on HOST device D [BUS] NAME``."""

    host: str
    device: int
    bus: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One size of a table: seconds, NaN if not measured; ``ratio`` is busbw / algbw, ``root`` -1 without a root."""

    size_bytes: int
    dtype: str
    redop: str
    root: int
    out_s: float
    in_s: float
    ratio: float
    wrong: bool


@dataclass(slots=True)
class Run:
    """One run of one test: the line of its table, its program, if named, its ranks by number, and its rows.

    ``out_of_bounds`` is the tool's own verdict: how many values were wrong, None if it says nothing.
    """

    line: int
    program: str | None = None
    ranks: dict[int, Rank] = field(default_factory=dict)
    gpus_per_thread: int = 0
    rows: list[Row] = field(default_factory=list)
    out_of_bounds: int | None = None


def runs_in(text: str, shown: str) -> list[Run]:
    """Return the runs in *text*, in order; a table without a header of its own continues the run before it.

    Raises InputError if *text* is not output of nccl-tests, or holds too many rows or an impossible number.
    """
    runs: list[Run] = []
    run = Run(1)
    looks = False
    for number, line in enumerate(text.splitlines(), 1):
        told = _told(line, shown, number)
        looks = looks or told is not None or any(word in line for word in _HEADER)
        row = None if told is not None else _row(line, shown, number)
        if row is not None:
            if not run.rows:
                run.line = number
                runs.append(run)
            run.rows.append(row)
            if len(run.rows) > MOST_ROWS:
                raise InputError(Fault(f"holds more than {MOST_ROWS} rows", shown))
            continue
        bounds = _BOUNDS.search(line)
        if bounds is not None and runs:
            runs[-1].out_of_bounds = max(int(bounds[1]), bounds[2] == "FAILED")
        starts = told is not None or all(word in line for word in ("#", "size", "count", "type"))
        if starts and run.rows:
            run = Run(number)
        if isinstance(told, str):
            run.program = told
        elif isinstance(told, int):
            run.gpus_per_thread = told
        elif told is not None:
            run.ranks[told[0]] = told[1]
    if not runs and not looks:
        raise InputError(Fault("is not output of nccl-tests, as text or JSON", shown, 1, 1))
    for before, after in pairwise(runs):  # a further table of the same process
        alike = (before.rows[-1].redop, before.rows[-1].root < 0) == (after.rows[-1].redop, after.rows[-1].root < 0)
        after.program = after.program or (before.program if alike else None)
        after.ranks = after.ranks or before.ranks
        after.gpus_per_thread = after.gpus_per_thread or before.gpus_per_thread
    return runs or [run]


def _told(line: str, shown: str, number: int) -> str | int | tuple[int, Rank] | None:
    """Return the program, the GPUs per thread or the rank that *line* tells; raises InputError for a huge number."""
    if "Rank" in line:
        found = _RANK.search(line)
        if found is not None:
            for column, what in ((1, "rank"), (3, "device")):
                if len(found[column]) > 7 or int(found[column]) >= _MOST_RANK:
                    where = Fault(f"there is no {what} {one_line(found[column], 30)}", shown, number, 1)
                    raise InputError(where)
            return int(found[1]), Rank(found[2], int(found[3]), found[4], found[5].strip())
    if "_perf" in line and "concluded" not in line:
        program = PROGRAM.search(line)
        return program[1] if program is not None else None
    threads = _THREADS.search(line) if "nThread" in line else None
    return int(threads[2]) if threads is not None else None


def _row(line: str, shown: str, number: int) -> Row | None:
    """Return the row in a line of the table, None for other lines; raises InputError for an impossible time."""
    words = line.split(None, _MOST_WORDS)[:_MOST_WORDS]
    for at in range(len(words) - 5):
        first = _AFTER_PREFIX.split(words[at])[-1]
        if _COUNT.fullmatch(first) and _COUNT.fullmatch(words[at + 1]) and _TYPE.fullmatch(words[at + 2]):
            return _figures(int(first), words[at + 2 :], shown, number)
    return None


def _figures(size_bytes: int, words: Sequence[str], shown: str, number: int) -> Row | None:
    dtype, rest = words[0], list(words[1:])
    redop = rest.pop(0) if _OPERATION.fullmatch(rest[0]) and rest[0] != "nan" else ""
    figures = []
    for word in rest:
        if not _FIGURE.fullmatch(word):
            break
        figures.append(word)
    root = -1
    whole = bool(figures) and re.fullmatch(r"-?\d{1,6}", figures[0], re.ASCII) is not None
    # Each half has three or four figures; an odd number is a root and two halves, or one of four.
    if whole and (figures[0].startswith("-") or (len(figures) % 2 and len(figures) >= 5)):
        root = int(figures.pop(0))
    if len(figures) < 3:
        return None
    one = 8 if len(figures) >= 16 else 3 if len(figures) in (3, 6) else 4  # with -I, four more follow each half
    half = figures[one : one + 4] if len(figures) >= one + 3 else []
    out_s, in_s = (seconds_of(side[0]) if side else math.nan for side in (figures, half))
    if math.isnan(out_s) and math.isnan(in_s):
        return None
    for time_s in (out_s, in_s):
        possible(time_s, "", shown, number)
    algbw, busbw = (number_of(text) for text in figures[1:3])
    # Older versions print the largest deviation there, as 2e-07, which is no count of wrong values.
    wrong = any(len(side) > 3 and _COUNT.fullmatch(side[3]) and int(side[3]) > 0 for side in (figures[:one], half))
    return Row(size_bytes, dtype, redop, root, out_s, in_s, busbw / algbw if algbw > 0 else math.nan, wrong)


def possible(time_s: float, where: str, shown: str, line: int = 1) -> float:
    """Return *time_s*, measured at *where*; raises InputError if no exchange can take so short or long."""
    if not math.isnan(time_s) and not _SHORTEST_S <= time_s <= _LONGEST_S:
        raise InputError(Fault(f"{where}{': ' if where else ''}no exchange takes {time_s * 1e6:g} us", shown, line, 1))
    return time_s


def seconds_of(text: str) -> float:
    """Return the seconds in *text*, microseconds; NaN if it is no positive number."""
    us = number_of(text)
    return us * 1e-6 if us > 0 else math.nan


def number_of(text: str) -> float:
    """Return the finite number *text*, or NaN."""
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return math.nan
    return value if math.isfinite(value) else math.nan
