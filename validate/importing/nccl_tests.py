"""Reading the output of nccl-tests: the printed table of ``all_reduce_perf`` etc., and the JSON file of ``-J``.

Columns, header lines and keys are those of NVIDIA/nccl-tests ``src/util.cu``; headers of older versions have less.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.workload.collective import COLLECTIVES, Collective, bus_factor

__all__ = ["NcclLog", "Point", "read_nccl_tests"]

_PROGRAMS: dict[str, Collective] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all-to-all",
    "sendrecv": "send-recv",
}
_DTYPES = {
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "uint8": "uint8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "f8e4m3": "fp8",
    "f8e5m2": "fp8",
}
_PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoall|sendrecv|reduce)_perf\b")
_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)(?:\s+Group\s+(?P<group>\d+))?\s+Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+(?P<device>\d+)"
    r"\s+\[[^\]]*\]\s*(?P<name>.*)",
    re.ASCII,
)
_GPUS = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)", re.ASCII)
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})|NCCL version (\d{1,2})\.(\d{1,3})", re.ASCII)
_ROW = re.compile(
    r"^\s*(?:\[[^\]]*\]\s*)?(\d{1,18})\s+(\d{1,18})\s+(\w{2,12})\s+([a-z]{3,6})?\s*(-?\d{1,6})?\s+(?=[\d.-])", re.ASCII
)
_FIGURE = re.compile(r"(?:\d+\.?\d*(?:e[+-]?\d+)?|N/A|nan)", re.ASCII)
_HEADER = ("Avg bus bandwidth", "out-of-place", "#wrong", "algbw")
_MOST_ROWS = 100_000
_AN_ERROR = 0.12  # relative error of a ratio of two figures with two or three digits


@dataclass(frozen=True, slots=True)
class Point:
    """One size: seconds out of place and in place, NaN if not measured, and whether results were wrong."""

    size_bytes: int
    out_s: float
    in_s: float
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class NcclLog:
    """A run of one of the nccl-tests; unknown facts are 0, empty or None."""

    shown: str
    collective: Collective
    points: tuple[Point, ...]
    dtype: str = "fp32"
    reduction: str = "sum"
    n_ranks: int = 0
    hosts: int = 0
    devices: tuple[int, ...] = ()
    gpu: str = ""
    gpus_per_thread: int = 0
    nccl: tuple[int, int] | None = None
    settings: tuple[str, ...] = ()


def read_nccl_tests(text: str, shown: str, *, collective: str | None = None, n_ranks: int | None = None) -> NcclLog:
    """Return the run that *text* reports; error messages call it *shown*.

    *collective* and *n_ranks* supply what the text lacks.

    Raises InputError if *text* is not output of nccl-tests, holds no row, contradicts the arguments, or leaves the
    collective or the number of ranks open.
    """
    stripped = text.lstrip("\ufeff \t\r\n")
    facts = _of_json(stripped, shown) if stripped.startswith("{") else _of_text(text, shown)
    said = facts.pop("program")
    rows: list[_Row] = facts.pop("rows")
    if not rows:
        raise InputError(Fault("holds no row of nccl-tests' table (size, count, type, ..., time, algbw, busbw)", shown))
    ranks = facts["n_ranks"] or (n_ranks or 0)
    if n_ranks is not None and facts["n_ranks"] not in (0, n_ranks):
        raise InputError(Fault(f"lists {facts['n_ranks']} ranks, where --gpus says {n_ranks}", shown))
    which = _collective(rows, said, collective, ranks, shown)
    if not ranks:
        ranks = _ranks(rows, which, shown)
    points: dict[int, Point] = {}
    for row in rows:
        points.setdefault(row.size_bytes, Point(row.size_bytes, row.out_s, row.in_s, row.wrong))
    points.pop(0, None)
    if not points:
        raise InputError(Fault("holds no size above zero", shown))
    if ranks < 2:
        raise InputError(Fault("has one rank, which exchanges nothing", shown))
    dtype = _DTYPES.get(rows[0].dtype, "fp32")
    reduction = rows[0].redop if rows[0].redop in ("sum", "avg", "prod", "min", "max") else "sum"
    return NcclLog(
        shown=shown,
        collective=which,
        points=tuple(points[size] for size in sorted(points)),
        dtype=dtype,
        reduction=reduction,
        **{**facts, "n_ranks": ranks},
    )


@dataclass(frozen=True, slots=True)
class _Row:
    size_bytes: int
    dtype: str
    redop: str
    root: int
    out_s: float
    in_s: float
    ratio: float  # busbw / algbw
    wrong: bool


def _of_text(text: str, shown: str) -> dict[str, Any]:
    ranks: dict[int, tuple[str, int, str]] = {}
    rows: list[_Row] = []
    lines = text.splitlines()
    looks = False
    for line in lines:
        found = _RANK.search(line)
        if found is not None:
            ranks[int(found["rank"])] = (found["host"], int(found["device"]), found["name"].strip())
            continue
        looks = looks or any(word in line for word in _HEADER)
        row = _row(line)
        if row is not None:
            rows.append(row)
            if len(rows) > _MOST_ROWS:
                raise InputError(Fault(f"holds more than {_MOST_ROWS} rows", shown))
    if not rows and not looks:
        raise InputError(Fault("is not output of nccl-tests, as text or JSON", shown, 1, 1))
    program = _PROGRAM.search(text)
    gpus = _GPUS.search(text)
    library = _LIBRARY.search(text)
    version = None
    if library is not None:
        version = _version(int(library[1])) if library[1] else (int(library[2]), int(library[3]))
    return {
        "program": program[1] if program else None,
        "rows": rows,
        **_devices(ranks),
        "gpus_per_thread": int(gpus[2]) if gpus else 0,
        "nccl": version,
        "settings": tuple(dict.fromkeys(re.findall(r"\bNCCL_[A-Z0-9_]+=[\w.,^:-]{1,60}", text[:200_000]))),
    }


def _devices(ranks: Mapping[int, tuple[str, int, str]]) -> dict[str, Any]:
    hosts = list(dict.fromkeys(host for host, _, _ in ranks.values()))
    first = sorted({device for host, device, _ in ranks.values() if host == hosts[0]}) if hosts else []
    return {
        "n_ranks": len(ranks),
        "hosts": len(hosts),
        "devices": tuple(first),
        "gpu": one_line(next(iter(ranks.values()))[2], 60) if ranks else "",
    }


def _row(line: str) -> _Row | None:
    """Return the row in a line of the table, None for other lines."""
    head = _ROW.match(line)
    if head is None or head[3] in ("Rank", "Group"):
        return None
    figures = _FIGURE.findall(line[head.end() :])
    if len(figures) < 3:
        return None
    second = 4 if len(figures) >= 7 else 3
    if len(figures) >= 16:  # with -I, four figures for single iterations follow each half
        second = 8
    half = figures[second : second + 4] if len(figures) >= second + 3 else []
    out_s, in_s = _seconds(figures[0]), _seconds(half[0]) if half else math.nan
    algbw, busbw = (_number(text) for text in figures[1:3])
    wrong = any(_number(each[3]) > 0 for each in (figures[:4], half) if len(each) > 3)
    if math.isnan(out_s) and math.isnan(in_s):
        return None
    ratio = busbw / algbw if algbw > 0 else math.nan
    return _Row(int(head[1]), head[3], head[4] or "", int(head[5] or -1), out_s, in_s, ratio, wrong)


def _of_json(text: str, shown: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise InputError(
            Fault(f"is not valid JSON: {one_line(getattr(error, 'msg', error))}", shown, line, column)
        ) from None
    results = document.get("results")
    if not isinstance(results, list):
        raise InputError(Fault("is not JSON of nccl-tests: it has no list 'results'", shown, 1, 1))
    rows = [row for each in results[:_MOST_ROWS] if isinstance(each, dict) and (row := _json_row(each)) is not None]
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    listed = config.get("devices")
    listed = listed if isinstance(listed, list) else []
    ranks = {
        number: (str(each.get("hostname", "")), _whole(each.get("device")), str(each.get("device_info", "")))
        for number, each in enumerate(listed)
        if isinstance(each, dict)
    }
    arguments = " ".join(str(each) for each in document.get("args", []) if isinstance(each, str))
    program = _PROGRAM.search(arguments)
    code = document.get("nccl_version")
    settings = [each for each in document.get("env", []) if isinstance(each, str) and each.startswith("NCCL_")]
    devices = _devices(ranks)
    threads, gpus = _whole(config.get("nthreads")), _whole(config.get("ngpus"))
    if len(ranks) < threads * gpus:  # without MPI the file lists only the first device
        devices |= {"n_ranks": threads * gpus, "devices": ()}
    return {
        "program": program[1] if program else None,
        "rows": rows,
        **devices,
        "gpus_per_thread": gpus,
        "nccl": _version(code) if isinstance(code, int) and code > 0 else None,
        "settings": tuple(one_line(each, 80) for each in settings[:40]),
    }


def _json_row(entry: Mapping[str, Any]) -> _Row | None:
    sides = []
    for key in ("out_of_place", "in_place"):
        side = entry.get(key)
        side = side if isinstance(side, dict) else {}
        us = side.get("time", side.get("cpu_time"))
        wrong = side.get("nwrong")
        sides.append(
            (_seconds(str(us)), _number(str(side.get("alg_bw"))), _number(str(side.get("bus_bw"))), _number(str(wrong)))
        )
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or all(math.isnan(side[0]) for side in sides):
        return None
    algbw, busbw = sides[0][1], sides[0][2]
    root = str(entry.get("root", "-1")).strip()
    return _Row(
        size_bytes=size,
        dtype=str(entry.get("type", "")),
        redop=str(entry.get("redop", "")),
        root=int(root) if re.fullmatch(r"-?\d{1,6}", root, re.ASCII) else -1,
        out_s=sides[0][0],
        in_s=sides[1][0],
        ratio=busbw / algbw if algbw > 0 else math.nan,
        wrong=any(side[3] > 0 for side in sides),
    )


def _collective(rows: Sequence[_Row], program: str | None, said: str | None, n_ranks: int, shown: str) -> Collective:
    """Return the collective: from the program's name, from the user, or from the columns if they are unambiguous.

    Raises InputError if it is unknown or contradictory.
    """
    if said is not None and said not in COLLECTIVES:
        raise InputError(f"--collective: no collective is called '{one_line(said, 40)}'; {nearest(said, COLLECTIVES)}")
    named = _PROGRAMS[program] if program is not None else None
    if named is not None:
        if said is not None and said != named:
            raise InputError(Fault(f"is of {program}_perf, where --collective says {said}", shown))
        return named
    if said is not None:
        return said
    ratios = sorted(row.ratio for row in rows if math.isfinite(row.ratio) and row.ratio > 0)
    ratio = ratios[len(ratios) // 2] if ratios else math.nan
    reduces, rooted = rows[-1].redop not in ("none", ""), rows[-1].root >= 0
    if reduces and ratio > 1.0 - _AN_ERROR and not rooted and (n_ranks == 2 or ratio > 1.0 + _AN_ERROR):
        return "all-reduce"
    if reduces and rooted:
        return "reduce"
    if reduces and ratio < 1.0 - _AN_ERROR / 4:
        return "reduce-scatter"
    if not reduces and rooted:
        return "broadcast"
    raise InputError(Fault("does not say what was exchanged; say it, for example --collective all-gather", shown))


def _ranks(rows: Sequence[_Row], collective: Collective, shown: str) -> int:
    """Return the number of ranks, from the ratio of bus to algorithm bandwidth at the largest sizes.

    Raises InputError if the ratio does not tell.
    """
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


def _seconds(text: str) -> float:
    us = _number(text)
    return us * 1e-6 if us > 0 else math.nan


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 20 else 0
