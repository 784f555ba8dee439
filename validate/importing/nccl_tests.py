"""Reading the output of nccl-tests: the printed table of ``all_reduce_perf`` etc., and the JSON file of ``-J``."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, cast

from simulator.errors import Fault, InputError, counted, nearest, one_line, some
from simulator.questions.collective import Dtype, Reduction
from simulator.records import dataclass, inner, lists_by_key, replace
from simulator.workload import COLLECTIVES, Collective, bus_factor
from validate.importing import nccl_table as printed
from validate.importing.nccl_table import settings_in, shown_in

_PROGRAMS: Mapping[str, Collective] = printed.LOGS["programs"]
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
Rows = Sequence[printed.Row]
_MOST_TOLD = 6  # rows that cannot be read
_AN_ERROR = 0.12  # relative error of a ratio of two figures with two or three digits


@dataclass(frozen=True, slots=True)
class NcclLog:
    """A run of one of the nccl-tests; unknown facts are 0, empty or None.

    ``per_host`` are the numbers of ranks of each host; ``devices`` their GPUs by index in the machine, in rank order.
    ``settings`` are pairs of a variable and its value; ``shows`` what NCCL reports (:func:`shown_in`);
    ``out_of_bounds`` the tool's count of wrong values; ``unread`` the rows that cannot be read; ``remarks`` says what
    was left out.
    """

    shown: str
    collective: Collective
    points: tuple[printed.Row, ...]
    dtype: Dtype = "fp32"
    reduction: Reduction = "sum"
    n_ranks: int = 0
    per_host: tuple[int, ...] = ()
    devices: tuple[tuple[int, ...], ...] = ()
    gpu: str = ""
    gpus_per_thread: int = 0
    nccl: tuple[int, int] | None = None
    settings: tuple[tuple[str, str], ...] = ()
    shows: frozenset[str] = frozenset()
    out_of_bounds: int | None = None
    unread: tuple[printed.UnreadRow, ...] = ()
    failure: str = ""
    remarks: tuple[str, ...] = ()


def read_nccl_tests(text: str, shown: str, *, collective: str | None = None, n_ranks: int | None = None) -> NcclLog:
    """Return the run that *text* reports, called *shown*; *collective* and *n_ranks* supply or pick what is open.

    Raises InputError if it is not output of nccl-tests, holds no row that can be read or several runs, contradicts the
    arguments, or leaves the collective or the number of ranks open.
    """
    if collective is not None and collective not in COLLECTIVES:
        said = one_line(collective, 40)
        raise InputError(f"--collective: no collective is called '{said}'; {nearest(collective, COLLECTIVES)}")
    stripped = text.lstrip("\ufeff \t\r\n")
    facts: dict[str, Any] = {}
    if is_json := stripped.startswith("{"):
        run, facts = _of_json(stripped, shown)
    else:
        run = _chosen(printed.runs_in(text, shown), collective, shown)
        found = printed.PATTERNS["library"].search(text)
        if found is not None:
            facts["nccl"] = _version(int(found[1])) if found[1] else (int(found[2]), int(found[3]))
        facts["settings"], facts["shows"] = settings_in([text]), shown_in(text)
    if not run.rows:
        none = "holds no row of nccl-tests' table (size, count, type, ..., time, algbw, busbw)"
        raise InputError(Fault(unread_words(run.unread) or none, shown))
    rows = [row for row in run.rows if (row.dtype, row.redop) == (run.rows[0].dtype, run.rows[0].redop)]
    devices = _devices(run.ranks, dict(facts.get("settings", ())), shown) | facts.pop("devices", {})
    ranks = devices.pop("n_ranks") or (n_ranks or 0)
    if n_ranks is not None and ranks != n_ranks:
        raise InputError(Fault(f"lists {counted(ranks, 'rank')}, where --gpus says {n_ranks}", shown))
    which = _collective(rows, run.program, collective, ranks, shown)
    ranks = ranks or _ranks(rows, which, shown)
    factor = bus_factor(which, ranks)
    contradicting = ((row, printed.row_contradiction(row.size_bytes, row.halves, factor)) for row in rows)
    unread = [*run.unread, *(printed.UnreadRow(row.where, why) for row, why in contradicting if why)]
    left_out = {each.where for each in unread}
    points = _points([row for row in rows if row.where not in left_out])
    wrong = "has one rank, which exchanges nothing" if ranks < 2 else ""
    if not points:
        wrong = unread_words(unread) if len(unread) > len(run.unread) else "holds no size above zero"
    if wrong:
        raise InputError(Fault(wrong, shown))
    remarks = []
    if left := len(run.rows) - len(rows):
        kept = " ".join(filter(None, (rows[0].dtype, rows[0].redop)))
        remarks.append(f"{counted(left, 'row')} of other types or reductions than {kept} left out")
    if not is_json and run.ranks and run.out_of_bounds is None and not run.failure:
        remarks.append("the log has no line 'Out of bounds values', which ends a run: is it cut off?")
    return NcclLog(
        shown=shown,
        collective=which,
        points=points,
        dtype=printed.dtype_named(rows[0].dtype) or "fp32",
        reduction=printed.reduction_named(rows[0].redop) or "sum",
        n_ranks=ranks,
        gpus_per_thread=run.gpus_per_thread,
        out_of_bounds=run.out_of_bounds,
        unread=tuple(unread),
        failure=run.failure,
        remarks=tuple(remarks),
        **devices,
        **facts,
    )


def _chosen(runs: Sequence[printed.TestRun], collective: str | None, shown: str) -> printed.TestRun:
    """Return the run of *collective*, or the only one; equal runs are joined.  Raises InputError for unlike ones."""
    groups: dict[tuple[object, ...], list[printed.TestRun]] = {}
    for run in runs:
        last = run.rows[-1] if run.rows else None
        unnamed = None if run.program or last is None else (last.redop in ("", "none"), last.root < 0)
        groups.setdefault((run.program, unnamed, tuple(run.ranks.values())), []).append(run)
    if len(groups) > 1 and collective is not None:
        named = {key: each for key, each in groups.items() if _PROGRAMS.get(str(key[0])) == collective}
        groups = named if len(named) == 1 else groups
    first, *others = (mine[0] for mine in groups.values())
    if others:
        words = [
            f"{f'{run.program}_perf' if run.program else 'one without a name'} over "
            f"{len(run.ranks) or 'unknown'} ranks (line {run.line})"
            for run in (first, *others)
        ]
        told = f"holds {len(groups)} unlike runs: {some(words, 4)}; keep one, or pick it by --collective"
        raise InputError(Fault(told, shown))
    (alike,) = groups.values()
    return replace(
        first,
        rows=[row for run in alike for row in run.rows],
        unread=[each for run in alike for each in run.unread],
        out_of_bounds=max((run.out_of_bounds for run in alike if run.out_of_bounds is not None), default=None),
        failure=next(filter(None, (run.failure for run in alike)), ""),
    )


def unread_words(unread: Sequence[printed.UnreadRow]) -> str:
    """Return which rows cannot be read, and why; empty if all were read."""
    if not unread:
        return ""
    told = some([f"{each.where} ({each.why})" for each in unread], _MOST_TOLD)
    return f"{counted(len(unread), 'row')} not read: {told}"


def _points(rows: Rows) -> tuple[printed.Row, ...]:
    """Return the sizes above zero in order; of a size measured several times, the median."""
    by_size = lists_by_key((row.size_bytes, row) for row in rows if row.size_bytes)
    found = []
    for size, mine in sorted(by_size.items()):
        sides = [row.out_s for row in mine], [row.in_s for row in mine]
        known = [[time_s for time_s in side if not math.isnan(time_s)] for side in sides]
        out_s, in_s = (median(side) if side else math.nan for side in known)
        spread = max(max(side) / min(side) if side else 1.0 for side in known)
        found.append(printed.Row(size, out_s, in_s, any(row.wrong for row in mine), spread=spread))
    return tuple(found)


def _devices(ranks: Mapping[int, printed.Rank], settings: Mapping[str, str], shown: str) -> dict[str, Any]:
    """Return the number of ranks, in all and of each host, the GPUs of each host, and their name.

    Indices are the machine's, by CUDA_VISIBLE_DEVICES; unknown where ranks of a host share one, as each sees only its
    own.  Raises InputError if ranks are left out, or exchange in several groups.
    """
    n_ranks = max(ranks, default=-1) + 1
    if n_ranks > len(ranks):
        missing = next(number for number in range(n_ranks) if number not in ranks)
        told = f"lists rank {n_ranks - 1} and not rank {missing}; without these lines, --gpus says how many"
        raise InputError(Fault(told, shown))
    groups = len({rank.group for rank in ranks.values()})
    if groups > 1:
        raise InputError(Fault(f"ran in {groups} groups at once (NCCL_TESTS_SPLIT); one group is compared", shown))
    by_host = lists_by_key((ranks[number].host, ranks[number].device) for number in sorted(ranks))
    visible = next((settings[name] for name in _VISIBLE if name in settings), "")
    seen = [int(word) for word in visible.split(",")] if re.fullmatch(r"\d{1,4}(,\d{1,4})*", visible, re.ASCII) else []
    found = [tuple(seen[d] if d < len(seen) else d for d in devices) for devices in by_host.values()]
    return {
        "n_ranks": n_ranks,
        "per_host": tuple(map(len, by_host.values())),
        "devices": tuple(found) if all(len(set(devices)) == len(devices) for devices in found) else (),
        "gpu": one_line(next(iter(ranks.values())).name, 60) if ranks else "",
    }


def _of_json(text: str, shown: str) -> tuple[printed.TestRun, dict[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        words = getattr(error, "msg", "it is nested too deep" if isinstance(error, RecursionError) else error)
        raise InputError(Fault(f"is not valid JSON: {one_line(words)}", shown, line, column)) from None
    results = document.get("results")
    if not isinstance(results, list):
        raise InputError(Fault("is not JSON of nccl-tests: it has no list 'results'", shown, 1, 1))
    if len(results) > printed.MOST_ROWS:
        raise InputError(Fault(f"holds more than {printed.MOST_ROWS} rows", shown))

    def listed(found: object, kind: type) -> list[Any]:
        return [each if isinstance(each, kind) else None for each in found] if isinstance(found, list) else []

    run = printed.TestRun(1)
    for number, each in enumerate(results):
        row = _json_row(each, f"results[{number}]")
        if isinstance(row, str):
            run.unread.append(printed.UnreadRow(f"results[{number}]", row))
        else:
            run.rows.append(row)
    config = inner(document, "config")
    for number, each in enumerate(listed(config.get("devices"), dict)):
        if each is not None:
            device, group = _whole(each.get("device")), _whole(each.get("group"))
            name = one_line(each.get("device_info", ""), 200)
            run.ranks[number] = printed.Rank(str(each.get("hostname", "")), device, group, name)
    program = printed.PATTERNS["program"].search(" ".join(filter(None, listed(document.get("args"), str))))
    run.program = program[1] if program else None
    threads, run.gpus_per_thread = _whole(config.get("nthreads")), _whole(config.get("ngpus"))
    facts: dict[str, Any] = {"settings": settings_in(filter(None, listed(document.get("env"), str)))}
    ranks = threads * run.gpus_per_thread
    if len(run.ranks) < ranks:  # without MPI the file lists only the first device
        facts["devices"] = {"n_ranks": ranks, "per_host": (ranks,) if run.ranks else (), "devices": ()}
    code = document.get("nccl_version")
    if isinstance(code, int) and 0 < code < 1_000_000:
        facts["nccl"] = _version(code)
    count = inner(document, "out_of_bounds").get("count")
    run.out_of_bounds = _whole(count) if count is not None else None
    return run, facts


def _json_row(entry: object, where: str) -> printed.Row | str:
    if not isinstance(entry, dict):
        return "no object"
    sides = []
    for key in ("out_of_place", "in_place"):
        side = inner(entry, key)
        if "cpu_time" in side:
            return "cpu_time, which says nothing of the exchange"
        values = [side.get(name) for name in ("time", "alg_bw", "bus_bw", "nwrong")]
        texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
        sides.append([printed.NOT_MEASURED if text == "null" else text for text in texts])
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= printed.MOST_BYTES:
        return f"size {one_line(json.dumps(size), 30)}"
    dtype, redop = (str(entry.get(key, ""))[:12] for key in ("type", "redop"))
    times = printed.row_times(sides[0][0], sides[1][0])
    unknown = printed.unknown_types(dtype, redop)
    if unknown or isinstance(times, str):
        return unknown or str(times)
    said = str(entry.get("root", "-1")).strip()
    root = int(said) if re.fullmatch(r"-?\d{1,6}", said, re.ASCII) else -1
    wrong = any(printed.number_of(side[3]) > 0 for side in sides)
    return printed.Row(size, *times, wrong, dtype, redop, root, tuple(tuple(side[:3]) for side in sides), where)


def _collective(rows: Rows, program: str | None, said: str | None, n_ranks: int, shown: str) -> Collective:
    named = _PROGRAMS.get(program) if program is not None else None
    if program is not None and named is None:
        raise InputError(Fault(f"is of {program}_perf, which is not modelled; {', '.join(_PROGRAMS)} are", shown))
    if named is not None and said is not None and said != named:
        raise InputError(Fault(f"is of {program}_perf, where --collective says {said}", shown))
    if named is not None or said is not None:
        return named or cast(Collective, said)
    ratios = sorted(row.ratio for row in rows if math.isfinite(row.ratio) and row.ratio > 0)
    ratio = ratios[len(ratios) // 2] if ratios else math.nan
    reduces, rooted = rows[-1].redop not in ("none", ""), rows[-1].root >= 0
    if rooted:
        return "reduce" if reduces else "broadcast"
    if reduces and ratio > 1.0 - _AN_ERROR and (n_ranks == 2 or ratio > 1.0 + _AN_ERROR):
        return "all-reduce"
    if reduces and ratio < 1.0 - _AN_ERROR / 4:
        return "reduce-scatter"
    raise InputError(Fault("does not say what was exchanged; say it, for example --collective all-gather", shown))


def _ranks(rows: Rows, collective: Collective, shown: str) -> int:
    """Return the ranks that bus over algorithm bandwidth at the largest sizes tells; raises InputError if unclear."""
    ratios = [row.ratio for row in rows[-5:] if math.isfinite(row.ratio) and row.ratio > 0]
    if ratios and bus_factor(collective, 4) != bus_factor(collective, 8):
        ratio = sorted(ratios)[len(ratios) // 2]
        close = min(range(2, 17), key=lambda n: abs(bus_factor(collective, n) - ratio))
        if abs(bus_factor(collective, close) / ratio - 1.0) < 0.02:
            return close
    raise InputError(Fault("does not say how many GPUs took part; say it, for example --gpus 8", shown))


def _version(code: int) -> tuple[int, int]:
    """Return the major and minor version in NCCL_VERSION_CODE: 22703 is 2.27.3; before 2.9, 2804 is 2.8.4."""
    return (code // 10000, code // 100 % 100) if code >= 10000 else (code // 1000, code // 100 % 10)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 20 else 0
