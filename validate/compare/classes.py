"""Errors by class, rows far from the rest, and likely causes: effects that the model leaves out (docs/compare.md)."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from simulator.api import Session
from simulator.errors import TopocastError
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, lists_by_key, replace
from simulator.results.single import Account
from simulator.units import format_duration, format_size
from validate.compare.folder import COLUMNS
from validate.kinds import KINDS
from validate.kinds.kind import MeasuredRow, Rows
from validate.machine.measure.timing import FEWEST, median_interval
from validate.tables.cells import figure
from validate.tables.statistics import percentile, summarise

_PLACES = frozenset(("device", "machine", "dataset", "fit"))  # the same for all rows of a folder
_FIRST = ("ops.csv", "training.csv", "collectives.csv")  # of most interest, shown first
_MOST_LABELS = 40  # an axis with more values does not form classes


@dataclass(frozen=True, slots=True)
class ClassErrors:
    """Errors of the rows of a table that share the labels ``by``, as fractions; None if no row is scored.

    ``median`` (with its 95 % interval from six rows on), ``mean`` and ``p90`` are of absolute errors; ``bias`` is the
    median of predicted / measured, minus 1; ``spread`` the median half-width of the measurements' 95 % intervals;
    ``in_band`` the share measured within the band of their prediction, of those with one.
    """

    table: str
    by: dict[str, str]
    rows: int
    scored: int
    median: float | None = None
    median_low: float | None = None
    median_high: float | None = None
    mean: float | None = None
    p90: float | None = None
    bias: float | None = None
    spread: float | None = None
    in_band: float | None = None

    @property
    def label(self) -> str:
        """The class in words; numbers are preceded by their column's name."""
        words = [text if text[:1].isalpha() else f"{name} {text}" for name, text in self.by.items()]
        return " ".join(words) or self.table


def class_errors(rows: Rows, table: str = "", by: dict[str, str] | None = None) -> ClassErrors:
    """Return the errors of *rows* as one class."""
    counted = [row for row in rows if row.counts]
    known = sorted(row.interval for row in rows if row.interval is not None)
    spread = percentile(known, 0.5) if known else None
    if not counted:
        return ClassErrors(table, by or {}, len(rows), 0, spread=spread)
    errors = [row.error for row in counted if row.error is not None]
    summary, interval = summarise(errors), median_interval([abs(error) for error in errors])
    low, high = (interval.low, interval.high) if interval.samples >= FEWEST else (None, None)
    held = [row.in_band for row in counted if row.in_band is not None]
    bias = math.expm1(percentile(sorted(row.log_ratio for row in counted), 0.5))
    figures = (summary.median_ape, low, high, summary.mean_ape, summary.p90_ape, bias, spread)
    return ClassErrors(table, by or {}, len(rows), len(counted), *figures, sum(held) / len(held) if held else None)


def classes_of(rows: Rows) -> list[ClassErrors]:
    """Return for each table of *rows* the class of all its rows, then those of each axis, a tuple of columns."""
    found = []
    tables = sorted({row.table for row in rows})
    for table in sorted(tables, key=lambda table: _FIRST.index(table) if table in _FIRST else len(_FIRST)):
        mine = [row for row in rows if row.table == table]
        found.append(class_errors(mine, table))
        kinds = {row.kind for row in mine}
        kind = next((kind for kind in KINDS if kinds == {kind.name}), None)
        shown: tuple[tuple[str, ...], ...] = (("op",), ("bench",), ("kind",), ("mode",))
        if kind is not None:
            usual = tuple(axes for axes in kind.shown if not _PLACES.intersection(axes))
            shown = COLUMNS["axes"].get(kind.name) or usual
        for axes in shown if any(row.counts for row in mine) else ():
            counts = [len({row.labels.get(axis, "") for row in mine}) for axis in axes]
            if not all(1 < count <= min(_MOST_LABELS, max(2, len(mine) // 2)) for count in counts):
                continue
            named = [row for row in mine if all(axis in row.labels for axis in axes)]
            groups = lists_by_key((tuple(row.labels[axis] for axis in axes), row) for row in named)
            found += [
                class_errors(groups[labels], table, dict(zip(axes, labels, strict=True))) for labels in sorted(groups)
            ]
    return found


FAR = 3.0
_TO_SIGMA = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_FEWEST = 5  # smallest class that is searched
_LEAST = 0.005  # least deviation of log(predicted / measured)


def find_outliers(rows: Rows) -> list[MeasuredRow]:
    """Return the rows more than three ``deviations`` (set here) from their class's median log(predicted / measured).

    A deviation is that of Rousseeuw and Croux (Alternatives to the median absolute deviation, 1993), and at least the
    row's measured interval.  Classes (:func:`row_class`) with fewer than five rows are skipped.
    """
    found = []
    for members in lists_by_key((row_class(row), row) for row in rows if row.counts).values():
        if len(members) < _FEWEST:
            continue
        middle = percentile(sorted(row.log_ratio for row in members), 0.5)
        deviation = _TO_SIGMA * percentile(sorted(abs(row.log_ratio - middle) for row in members), 0.5)
        for row in members:
            away, one = row.log_ratio - middle, max(deviation, row.interval or 0.0, _LEAST)
            row.deviations = away / one if abs(away) > FAR * one else 0.0
            found += [row] if row.deviations else []
    return sorted(found, key=lambda row: (-abs(row.deviations), row.table, row.line))


def row_class(row: MeasuredRow) -> tuple[str, ...]:
    """Return the class of a row: its table, and its operator, network, collective, bench, kind or mode."""
    for column in ("op", "model", "collective", "bench", "kind", "mode"):
        if column in row.labels:
            return row.table, row.labels[column]
    return (row.table,)


def worst_rows(rows: Rows, count: int = 10, of_one_class: int = 3) -> list[MeasuredRow]:
    """Return the *count* rows with the largest abs(log(predicted / measured)), at most *of_one_class* of a class."""
    counted = (row for row in rows if row.counts)
    taken: Counter[tuple[str, ...]] = Counter()
    found = []
    for row in sorted(counted, key=lambda row: (-abs(row.log_ratio), row.table, row.line)):
        taken[row_class(row)] += 1
        found += [row] if taken[row_class(row)] <= of_one_class else []
    return found[:count]


NO_EXPLANATION = "no explanation known"
_MOST = 2  # explanations per row
_BUSY = 0.1  # relative half-width of the measured interval that only a busy machine shows
_TILE_ELEMENTS = 128 * 128  # elements of the result per block of a matrix product
# Largest factor that a cause of unknown effect can have on a time; larger errors have another cause.
_LIMIT = {"near the cache's size": 3.0, "odd alignment": 4.0, "few waves": 2.0, "algorithm": 3.0}


@dataclass(frozen=True, slots=True)
class ErrorCause:
    """A cause in words; ``factor`` is its factor on the time (1.2: 20 % up or down), None if unknown."""

    rule: str
    text: str
    factor: float | None = None


def account_of(row: MeasuredRow, session: Session) -> Account:
    """Return how *session* predicts *row*; an empty account where it says nothing of such rows."""
    if row.asked is None or row.kind not in ("operators", "training", "memory"):
        return Account()
    question = row.asked.question
    with contextlib.suppress(TopocastError):
        found = session.account(replace(question, micro_batches=1) if isinstance(question, StepQuestion) else question)
        of_memory = row.kind == "memory"
        return replace(found, bound="memory", working_set_bytes=_number(row, "bytes")) if of_memory else found
    return Account()


def _number(row: MeasuredRow, column: str) -> float:
    return figure(row.labels.get(column, "")) or 0.0


def _of_the_run(row: MeasuredRow, account: Account) -> Iterator[ErrorCause]:
    """Yield what the measurement itself shows: noise, full memory, another clock than the model assumes."""
    is_slower, interval = row.log_ratio < 0, row.interval or 0.0
    if interval and math.log1p(interval) >= 0.5 * abs(row.log_ratio):
        yield ErrorCause("noise", f"measured only to within {_percent(interval)}", 1 + interval)
    if is_slower and account.memory_bytes and account.working_set_bytes > 0.9 * account.memory_bytes:
        yield ErrorCause("memory full", "touches more than the memory holds: pages are swapped")
    ran_Hz, assumed_Hz, throttled = 1e6 * _number(row, "sm_clock_mhz"), account.clock_Hz, row.labels.get("throttled")
    clocks = f"{ran_Hz / 1e6:.0f} MHz instead of the assumed {assumed_Hz / 1e6:.0f} MHz"
    are_known = bool(ran_Hz and assumed_Hz)
    if throttled and is_slower and not are_known:
        yield ErrorCause("throttled", f"throttled ({throttled})")
    elif throttled and is_slower and ran_Hz < assumed_Hz:
        yield ErrorCause("throttled", f"throttled ({throttled}): {clocks}", assumed_Hz / ran_Hz)
    counts = are_known and account.bound != "memory"  # what memory bounds does not follow the clock
    if counts and is_slower and not throttled and ran_Hz <= 0.97 * assumed_Hz:
        yield ErrorCause("low clock", f"ran at a lower clock: {clocks}", assumed_Hz / ran_Hz)
    if counts and not is_slower and ran_Hz >= 1.03 * assumed_Hz:
        yield ErrorCause("high clock", f"ran at a higher clock: {clocks}", ran_Hz / assumed_Hz)
    if is_slower and interval >= _BUSY:
        differ = f"repeated timings differ by {_percent(interval)}"
        yield ErrorCause("disturbed", f"{differ}: something else used the machine")


def _of_the_host(row: MeasuredRow, account: Account) -> str:
    """Return how the time depends on the host, whose launch rate no data sheet gives; empty if it does not."""
    cells, measured_s = row.labels, row.measured_s or 0.0
    if account.waiting_share > 0.3:
        share = _percent(account.waiting_share)
        return f"the device waits for the host {share} of the step; no data sheet gives this host's speed"
    if row.kind == "launch":
        return "this host's speed, which no data sheet gives"
    if row.kind == "copies" and (cells.get("kind") == "h2h" or cells.get("pinned") == "0"):
        return "threads of this host copy; no data sheet gives what it leaves them of its memory and cores"
    is_graph = cells.get("issue") in ("graph", "queued") or "captured graph" in cells.get("note", "")
    with_host = cells.get("includes_dispatch") == "1"
    if not account.host_s or is_graph or cells.get("step_time_s"):
        return ""
    if with_host and account.host_s > 0.5 * min(measured_s, account.kernels_s + account.host_s):
        times = f"about {_time(account.host_s)} of {_time(measured_s)}"
        return f"the time includes the host: {times}, as on other hosts"
    at_its_pace = 0.3 * account.host_s < measured_s < 2 * account.host_s
    if not with_host and row.log_ratio < 0 and account.kernels_s < account.host_s and at_its_pace:
        return f"shorter ({_time(account.kernels_s)}) than its launch, so measured at the host's pace"
    return ""


def _odd_rows(row: MeasuredRow) -> list[str]:
    """Return the row lengths that are no multiples of 16 bytes, so that kernels cannot use full vector loads."""
    element_bytes = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}.get(row.labels.get("dtype", ""))
    names = COLUMNS["row_lengths"].get(row.op, ())
    if row.op == "conv2d" and "channels_last" in row.labels.get("variant", ""):
        names = ("c_in", "c_out")
    return [f"{name}={row.labels[name]}" for name in names if _number(row, name) * (element_bytes or 0) % 16]


def _of_the_work(row: MeasuredRow, account: Account) -> Iterator[ErrorCause]:
    """Yield what the model leaves out of such work: caches, vector loads, the library's choices, short kernels."""
    if host := _of_the_host(row, account):
        yield ErrorCause("host bound", host)
    share = account.working_set_bytes / account.cache_bytes if account.cache_bytes else 0.0
    if 0.5 <= share <= 2.0 and account.bound != "compute":
        touched = f"touches {format_size(account.working_set_bytes, digits=3)}, {share:.2g} times the last-level cache"
        yield ErrorCause("near the cache's size", f"{touched}: how much of it stays cached is not modelled well")
    if row.log_ratio < 0 and account.is_gpu and (odd := _odd_rows(row)):
        yield ErrorCause("odd alignment", f"rows not aligned to 16-byte vectors ({', '.join(odd)})")
    blocks = (_number(row, "batch") or 1.0) * _number(row, "m") * _number(row, "n") / _TILE_ELEMENTS
    if account.bound == "compute" and account.sm_count and 0 < blocks < 2 * account.sm_count:
        tile = f"the library's tile decides ({account.detail or 'one'})"
        yield ErrorCause("few waves", f"fills the device {blocks / account.sm_count:.2g} times: {tile}")
    if row.op == "conv2d" and account.detail and abs(row.log_ratio) >= math.log(1.15):
        yield ErrorCause("algorithm", f"the library may have chosen another algorithm than '{account.detail}'")
    if account.bound == "latency" and account.kernels_s:
        yield ErrorCause("short kernel", f"of {_time(account.kernels_s)}, mostly start and end, a shared constant")


def explain(row: MeasuredRow, account: Account) -> list[ErrorCause]:
    """Return the likely causes of the error of *row*, predicted so, at most two, the surest first."""
    found = [*_of_the_run(row, account), *_of_the_work(row, account)]
    far = math.exp(abs(row.log_ratio))
    return [explanation for explanation in found if far <= _LIMIT.get(explanation.rule, math.inf)][:_MOST]


def in_words(explanations: Sequence[ErrorCause], log_ratio: float) -> str:
    """Return *explanations* as text, with the share of *log_ratio*, log(predicted / measured), if it is small."""
    text = "; ".join(e.text for e in explanations) or NO_EXPLANATION
    known = [e.factor for e in explanations if e.factor is not None]
    if known and len(known) == len(explanations):
        share = math.log(math.prod(known)) / abs(log_ratio) if log_ratio else 1.0
        text += f" (accounts for {_percent(max(share, 0.0))} of the error)" if share < 0.75 else ""
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _time(seconds: float) -> str:
    return format_duration(seconds, digits=3)
