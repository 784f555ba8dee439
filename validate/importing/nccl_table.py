"""The printed tables of nccl-tests: :func:`runs_in` finds each run of a test in a log, with its ranks and rows.

Columns are those of NVIDIA/nccl-tests ``src/util.cu``, less in older versions.  A row is found by its size, count and
type wherever they stand behind what a launcher puts there.  Messages of NCCL may tear it in two.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import dropwhile, pairwise, takewhile
from typing import Any, NamedTuple

from simulator.errors import Fault, InputError, one_line
from simulator.questions.collective import DTYPES, REDUCTIONS, Dtype, Reduction
from simulator.records import dataclass, field, own_data, own_patterns
from simulator.workload.precision import precision_named

_ROUNDED = 0.01  # relative difference that says nothing, however many digits are printed


Half = tuple[str, ...]  # of a row as printed: microseconds, GB/s and GB/s


def row_contradiction(size_bytes: int, halves: Sequence[Half], factor: float) -> str:
    """Return which figures of a row of *size_bytes* contradict each other; empty if none do.

    ``algbw`` is size / time, and ``busbw`` is algbw times *factor* (NVIDIA/nccl-tests ``doc/PERFORMANCE.md``).  A
    figure is known to one unit of its last printed digit.  Figures that are absent contradict nothing.
    """

    def meet(told: tuple[float, float], meant: tuple[float, float]) -> bool:
        return told[0] <= meant[1] * (1 + _ROUNDED) and meant[0] * (1 - _ROUNDED) <= told[1]

    for time, alg, bus in halves:
        time_us, algbw, busbw = map(_span, (time, alg, bus))
        if time_us is not None and time_us[1] > 0 and float(time) > 0 and algbw is not None:
            most = size_bytes / 1e3 / time_us[0] if time_us[0] > 0 else math.inf
            if not meet(algbw, (size_bytes / 1e3 / time_us[1], most)):
                return f"algbw {alg}, where {size_bytes} B in {time} us are {size_bytes / 1e3 / float(time):.4g}"
        if algbw is not None and busbw is not None and not meet(busbw, (algbw[0] * factor, algbw[1] * factor)):
            return f"busbw {bus}, which is not {factor:.4g} times algbw {alg}"
    return ""


def _span(text: str) -> tuple[float, float] | None:
    """Return the least and the most that a printed positive figure may mean; None if it is none."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or value < 0 or not math.isfinite(float(value)):
        return None
    unit = 10.0 ** min(max(exponent, -300), 300)
    return max(0.0, float(value) - unit), float(value) + unit


LOGS: Mapping[str, Any] = own_data("validate.importing", "formats.yaml")
PATTERNS, _TRANSPORTS = (own_patterns("validate.importing", "formats.yaml", which) for which in ("nccl", "transports"))
MOST_ROWS = 100_000
MOST_BYTES = 1 << 50
_HEADER = ("Avg bus bandwidth", "out-of-place", "#wrong", "algbw")
NOT_MEASURED = "N/A"
_CUT = "cut off"
_COLUMNS = ("size", "count", "type", "time", "algbw", "busbw")
_MOST_WORDS = 60  # of one line
_MOST_RANK = 1 << 20
_LONGEST_S, _SHORTEST_S = 1e6, 1e-9  # nccl-tests prints hundredths of a microsecond


@dataclass(frozen=True, slots=True)
class Rank:
    """One line ``Rank N Group G Pid P on HOST device D [BUS] NAME``."""

    host: str
    device: int
    group: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One size of a table: seconds out of place and in place, NaN if not measured, and whether results are wrong.

    ``root`` is -1 without a root, ``where`` as in Unread.  Of a size measured several times, the times are medians, and
    ``spread`` is the longest over the shortest.
    """

    size_bytes: int
    out_s: float
    in_s: float
    wrong: bool = False
    dtype: str = ""
    redop: str = ""
    root: int = -1
    halves: tuple[Half, ...] = ()
    where: str = ""
    spread: float = 1.0

    @property
    def ratio(self) -> float:
        """The bus over the algorithm bandwidth, NaN if it is not printed."""
        _, algbw, busbw = map(number_of, self.halves[0])
        return busbw / algbw if algbw > 0 else math.nan


class UnreadRow(NamedTuple):
    """A row that cannot be read: where it stands, ``line 12`` or ``results[3]``, and why."""

    where: str
    why: str


@dataclass(slots=True)
class TestRun:
    """One run of one test: the line of its table, its program, if named, its ranks by number, and its rows.

    ``out_of_bounds`` is the tool's own verdict, at its end: how many values were wrong, None if it says nothing.
    ``failure`` is the line in which it says that it failed.
    """

    line: int
    program: str | None = None
    ranks: dict[int, Rank] = field(default_factory=dict)
    gpus_per_thread: int = 0
    rows: list[Row] = field(default_factory=list)
    unread: list[UnreadRow] = field(default_factory=list)
    out_of_bounds: int | None = None
    failure: str = ""


def runs_in(text: str, shown: str) -> list[TestRun]:
    """Return the runs in *text*, in order; a table without a header continues the run before it; raises InputError."""
    runs: list[TestRun] = []
    run = TestRun(1)
    looks = filled = False  # filled: a row was found since the lines before its table
    column = -1  # words before the size in the table's last row, -1 outside a table
    for number, line in enumerate(_mended(text.splitlines()), 1):
        told = _told(line, shown, number)
        looks = looks or told is not None or any(word in line for word in _HEADER)
        row, column = (None, column) if told is not None else _row(line, number, column)
        if row is not None:
            if not (run.rows or run.unread):
                runs.append(run)
            if isinstance(row, UnreadRow):
                run.unread.append(row)
            else:
                run.line = run.line if run.rows else number
                run.rows.append(row)
            filled = True
            if len(run.rows) + len(run.unread) > MOST_ROWS:
                raise InputError(Fault(f"holds more than {MOST_ROWS} rows", shown))
            continue
        bounds = PATTERNS["bounds"].search(line)
        if bounds is not None and runs:
            runs[-1].out_of_bounds = max(int(bounds[1]), bounds[2] == "FAILED")
        if PATTERNS["failure"].search(line):
            run.failure = run.failure or f"line {number}: {one_line(line, 120)}"
        begins = _is_header(line, shown, number) or told is not None
        if begins and filled and (run.rows or run.program):
            run = TestRun(number)
        filled = filled and not begins
        column = -1 if begins or bounds is not None else column
        if isinstance(told, str):
            run.program = told
        elif isinstance(told, int):
            run.gpus_per_thread = told
        elif told is not None:
            run.ranks[told[0]] = told[1]
    if not runs and not looks:
        no = "is no output of nccl-tests, rccl-tests or OSU's collectives, nor of ib_write_bw or nvbandwidth"
        raise InputError(Fault(no, shown, 1, 1))
    for before, after in pairwise(runs):  # a further table of the same process
        kinds = {(run.rows[-1].redop, run.rows[-1].root < 0) for run in (before, after) if run.rows}
        after.program = after.program or (before.program if len(kinds) < 2 else None)
        after.ranks = after.ranks or before.ranks
        after.gpus_per_thread = after.gpus_per_thread or before.gpus_per_thread
    return runs or [run]


def _mended(lines: list[str]) -> list[str]:
    """Return *lines* with the figures of rows that messages of NCCL tore moved behind their sizes."""
    torn: tuple[int, str] | None = None
    for at, line in enumerate(lines):
        if " NCCL " in line:
            head = PATTERNS["torn"].search(line)
            torn = (at, line[: head.end(1)]) if head is not None else torn
        elif torn is not None:
            words = list(dropwhile(lambda word: not PATTERNS["figure"].fullmatch(word), line.split(None, _MOST_WORDS)))
            if len(words) >= 3 and all(map(PATTERNS["figure"].fullmatch, words)):
                lines[torn[0]], lines[at] = f"{torn[1]} {' '.join(words)}", ""
            torn = None if words else torn
    return lines


def _is_header(line: str, shown: str, number: int) -> bool:
    if "#" not in line or not all(word in line for word in ("size", "count", "type")):
        return False
    words = [word for word in line.split() if word.removeprefix("#") in (*_COLUMNS, "cputime")]
    if "cputime" in words:
        told = "holds the host's times of launches (-C 1), which say nothing of the exchange"
        raise InputError(Fault(told, shown, number, line.index("cputime") + 1))
    found = [word.removeprefix("#") for word in words[: len(_COLUMNS)]]
    if sorted(found) == sorted(_COLUMNS) and found != list(_COLUMNS):
        told = f"has the columns {', '.join(found)}; nccl-tests prints {', '.join(_COLUMNS)}"
        raise InputError(Fault(told, shown, number, 1))
    return True


def _told(line: str, shown: str, number: int) -> str | int | tuple[int, Rank] | None:
    """Return the program, the GPUs per thread or the rank that *line* tells; raises InputError for a huge number."""
    if "Rank" in line and (found := PATTERNS["rank"].search(line)):
        for column, what in ((1, "rank"), (4, "device")):
            if len(found[column]) > 7 or int(found[column]) >= _MOST_RANK:
                told = f"there is no {what} {one_line(found[column], 30)}"
                raise InputError(Fault(told, shown, number, found.start(column) + 1))
        return int(found[1]), Rank(found[3], int(found[4]), int(found[2] or 0), found[5].strip())
    if "_perf" in line and "concluded" not in line:
        program = PATTERNS["program"].search(line)
        return program[1] if program is not None else None
    threads = PATTERNS["threads"].search(line) if "nThread" in line else None
    return int(threads[2]) if threads is not None else None


def _row(line: str, number: int, column: int) -> tuple[Row | UnreadRow | None, int]:
    """Return the row in a line (None for others) and the words before its size; *column* are those of the last row."""
    words = line.split(None, _MOST_WORDS)[:_MOST_WORDS]
    for at in range(len(words) - 2):
        if PATTERNS["count"].fullmatch(words[at + 1]) and PATTERNS["type"].fullmatch(words[at + 2]):
            first = PATTERNS["after prefix"].split(words[at])[-1]
            where = f"line {number}"
            row = _figures(int(first), words[at + 2 :], where) if PATTERNS["count"].fullmatch(first) else None
            is_size = PATTERNS["count"].fullmatch(first) or at != column or dtype_named(words[at + 2]) is None
            if not is_size or (isinstance(row, Row) and row.size_bytes > MOST_BYTES):
                row = f"size '{one_line(first, 20)}'"
            if row is not None:
                return (UnreadRow(where, row) if isinstance(row, str) else row), at
    cut = words[column:] if column >= 0 else []
    if cut and PATTERNS["cut row"].fullmatch(" ".join((PATTERNS["after prefix"].split(cut[0])[-1], *cut[1:4]))):
        return UnreadRow(f"line {number}", _CUT), column
    return None, column


def _figures(size_bytes: int, words: Sequence[str], where: str) -> Row | str | None:
    """Return the row of *size_bytes* with *words* from its type on, or why it cannot be read; None if it is no row."""
    dtype, *rest = words
    redop = rest.pop(0) if rest and PATTERNS["operation"].fullmatch(rest[0]) and rest[0] not in ("nan", "inf") else ""
    figures = list(takewhile(PATTERNS["figure"].fullmatch, rest))
    beyond = rest[len(figures) :]
    root, unknown = -1, unknown_types(dtype, redop)
    whole = bool(figures) and re.fullmatch(r"-?\d{1,6}", figures[0], re.ASCII) is not None
    # Each half has three or four figures; an odd number is a root and two halves, or one of four.
    if whole and (figures[0].startswith("-") or (len(figures) % 2 and len(figures) >= 5)):
        root = int(figures.pop(0))
    if len(figures) < 3:
        return None if unknown else f"'{one_line(beyond[0], 20)}' in place of a figure" if beyond else _CUT
    if unknown:
        return unknown
    one = 8 if len(figures) >= 16 else 3 if len(figures) in (3, 6) else 4  # with -I, four more follow each half
    half = figures[one : one + 4] if len(figures) >= one + 3 else []
    times = row_times(figures[0], half[0] if half else NOT_MEASURED)
    if isinstance(times, str):
        return times
    # Older versions print the largest deviation there, as 2e-07, which is no count of wrong values.
    wrong = any(len(side) > 3 and number_of(side[3]) >= 1.0 for side in (figures[:one], half))
    halves = tuple(tuple(side[:3]) for side in (figures, half) if side)
    return Row(size_bytes, *times, wrong, dtype, redop, root, halves, where)


def dtype_named(name: str) -> Dtype | None:
    """Return the type that nccl-tests calls *name* as questions do; None if there is no such type."""
    return next((dtype for dtype in DTYPES if dtype == name or dtype == precision_named(name)), None)


def reduction_named(name: str) -> Reduction | None:
    """Return the reduction *name* as questions do, or None; ``mulsum`` scales inputs, as NCCL does for an average."""
    said = "avg" if name == "mulsum" else name
    return next((reduction for reduction in REDUCTIONS if reduction == said), None)


def unknown_types(dtype: str, redop: str) -> str:
    """Return why a row of *dtype* and *redop* cannot be read; empty if both are known."""
    if dtype_named(dtype) is None:
        return f"type '{one_line(dtype, 20)}'"
    return "" if redop in ("", "none") or reduction_named(redop) else f"redop '{one_line(redop, 20)}'"


def row_times(out: str, inside: str) -> tuple[float, float] | str:
    """Return seconds out of and in place of microseconds (``N/A`` in place: NaN), or why they cannot be read."""
    times = [number_of(text) * 1e-6 for text in (out, inside)]
    times = [time_s if _SHORTEST_S <= time_s <= _LONGEST_S else math.nan for time_s in times]
    if math.isnan(times[0]) and (out != NOT_MEASURED or math.isnan(times[1])):
        return f"time '{one_line(inside if out == NOT_MEASURED else out, 20)}'"
    return times[0], times[1]


def number_of(said: object) -> float:
    """Return the finite number that *said* is or writes, or NaN."""
    try:
        value = float(said) if isinstance(said, int | float | str) and not isinstance(said, bool) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return value if math.isfinite(value) else math.nan


_ABOUT_OUTPUT = ("NCCL_DEBUG", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_TESTS_")


def settings_in(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings that *texts* show, each with its last value; those that change only output are left out.

    NCCL reports ``NCCL_ALGO set by environment to Ring.`` or ``NCCL_IB_HCA set to mlx5_0``; others stand on the command
    line or in the environment, and values that a shell would still expand are left out.  Sockets in use count as set.
    """
    found: dict[str, str] = {}
    for text in texts:
        for pattern in (PATTERNS["given"], PATTERNS["spaced"]):
            for name, value in pattern.findall(text):
                plain = value.strip("\"'").rstrip(".")
                if plain and "$" not in plain and not name.startswith(_ABOUT_OUTPUT):
                    found[name] = plain
        if PATTERNS["sockets"].search(text):
            found["NCCL_NET"] = "Socket"
    return tuple(found.items())


def shown_in(text: str) -> frozenset[str]:
    """Return what NCCL_DEBUG=INFO in *text* shows of its transports: a transport of ``formats.yaml``, or its contrary.

    A contrary counts only where NCCL reports nothing else: channels to other GPUs may differ
    (NVIDIA/nccl@5067397c ``src/transport/net.cc``, ``p2p.cc``, ``nvls.cc``).
    """
    if " NCCL INFO " not in text:
        return frozenset()
    found = {name for name, pattern in _TRANSPORTS.items() if pattern.search(text)}
    return frozenset(name for name in found if name.removeprefix("no ") not in found or not name.startswith("no "))
