"""Reading tests besides nccl-tests: OSU's collectives, perftest's ``ib_write_bw`` etc. of a link, ``nvbandwidth``."""

import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from simulator.errors import Fault, InputError
from simulator.records import own_patterns
from simulator.workload import Collective
from validate.importing.nccl_table import LOGS, MOST_BYTES, MOST_ROWS, Row, settings_in
from validate.importing.nccl_tests import NcclLog

_OSU, _LINKS = (own_patterns("validate.importing", "formats.yaml", which) for which in ("osu", "links"))
_COLLECTIVES: Mapping[str, Collective] = LOGS["osu collectives"]
_OF_ONE_RANK = ("all-gather", "all-to-all")
_MOST_BEFORE = 20_000  # characters before the table in which its launch line is looked for


def is_osu_tests(text: str) -> bool:
    """Return whether *text* has a header of the OSU micro-benchmarks."""
    return _OSU["header"].search(text) is not None


def read_osu_tests(text: str, shown: str, *, collective: str | None = None, n_ranks: int | None = None) -> NcclLog:
    """Return the run that *text* reports, called *shown*, in nccl-tests' sizes, with times averaged over ranks.

    An all-gather's and an all-to-all's size is there what one rank sends, in nccl-tests all ranks'.  Raises InputError
    if it holds no run or several, buffers in host memory, or no test that is modelled.
    """
    headers = list(_OSU["header"].finditer(text))
    if len(headers) != 1:
        raise InputError(Fault(f"holds {len(headers)} runs of OSU's tests; keep one", shown))
    library, memory, name, kind = headers[0].groups()
    which = _COLLECTIVES.get(name.lower())
    if which is None or kind.lower() != "latency":
        known = ", ".join(sorted(set(_COLLECTIVES.values())))
        raise InputError(Fault(f"is of OSU's {name} {kind} Test, which is not modelled; {known} are", shown))
    if collective is not None and collective != which:
        raise InputError(Fault(f"is of OSU's {name} test, where --collective says {collective}", shown))
    if library.upper() == "MPI" and memory is None:
        raise InputError(Fault("is of buffers in the hosts' memory; -d cuda D D measures those of GPUs", shown))
    said = _OSU["ranks"].search(text[: headers[0].start()][-_MOST_BEFORE:])
    ranks = n_ranks or (int(said[1]) if said else 0)
    if ranks < 2:
        raise InputError(Fault("does not say how many GPUs took part; say it, for example --gpus 8", shown))
    times: dict[int, float] = {}
    for line in text[headers[0].end() :].splitlines()[:MOST_ROWS]:
        row = _OSU["row"].search(line) if "#" not in line else None
        if row is not None and 0 < int(row[1]) <= MOST_BYTES and float(row[2]) > 0.0:
            times[int(row[1]) * (ranks if which in _OF_ONE_RANK else 1)] = float(row[2]) * 1e-6
    if not times:
        raise InputError(Fault("holds no row of OSU's table (size, average latency in us)", shown))
    version = _OSU["nccl"].search(text)
    by_mpi = "the exchange is MPI's own, where the expected times are NCCL's: its settings do not act"
    return NcclLog(
        shown=shown,
        collective=which,
        points=tuple(Row(size, time_s, math.nan) for size, time_s in sorted(times.items())),
        n_ranks=ranks,
        gpus_per_thread=1,
        nccl=(int(version[1]), int(version[2])) if version else None,
        settings=settings_in([text]),
        remarks=(by_mpi,) if library.upper() == "MPI" else (),
    )


LinkKind = Literal["adapter", "h2d", "d2h", "p2p"]

_TESTS: Mapping[str, LinkKind] = LOGS["nvbandwidth"]
_UNITS = {"MB": float(1 << 20), "MiB": float(1 << 20), "Gb": 1.25e8}  # perftest's MB are 2^20 bytes
_MOST = 100_000


class LinkFigure(NamedTuple):
    """A bandwidth between two GPUs, a GPU and the host (``src``), or of an adapter by number, at messages of a size."""

    kind: LinkKind
    src: int
    dst: int
    size_bytes: int
    measured_Bps: float


def is_link_test(text: str) -> bool:
    """Return whether *text* is output of perftest or nvbandwidth."""
    found = _LINKS["perftest"].search(text) or ("memcpy" in text and _LINKS["running"].search(text))
    return bool(found)


def read_link_tests(text: str, shown: str) -> tuple[LinkFigure, ...]:
    """Return the figures in *text*: of each of perftest's runs that of its largest message, all of nvbandwidth's.

    Its copies by kernels, both ways and among all GPUs are left out: no link limits them.  Raises InputError for none.
    """
    found = (*_of_perftest(text), *_of_nvbandwidth(text))
    if not found:
        told = "holds no bandwidth of a single link by ib_write_bw or nvbandwidth's copy engines"
        raise InputError(Fault(told, shown))
    return found


def _of_perftest(text: str) -> Iterator[LinkFigure]:
    before = 0
    headers = list(_LINKS["perftest"].finditer(text))
    for header, until in zip(headers, [*(each.start() for each in headers[1:]), len(text)], strict=False):
        devices = _LINKS["device"].findall(text[before : header.start()])
        before = header.end()
        rows = list(filter(None, map(_LINKS["bandwidths"].match, text[before:until].splitlines())))
        if rows:
            last = max(rows, key=lambda row: int(row[1]))
            index = _LINKS["number"].search(devices[-1]) if devices else None
            adapter = int(index[1]) if index is not None else 0
            yield LinkFigure("adapter", adapter, adapter, int(last[1]), float(last[3]) * _UNITS[header[1]])


_COPY_BYTES = 512 << 20
"""nvbandwidth's buffer, unless ``--bufferSize`` says otherwise (64 MiB before 0.5; the link is full with either)."""


def _of_nvbandwidth(text: str) -> Iterator[LinkFigure]:
    kind: LinkKind | None = None
    source, reads = 0, False
    for line in text.splitlines()[:_MOST]:
        if running := _LINKS["running"].search(line):
            kind, source, reads = _TESTS.get(running[1]), 0, "_read_" in running[1]
        row = _LINKS["matrix row"].match(line) if kind is not None else None
        if row is None or kind is None or line.lstrip().startswith("SUM"):
            continue
        for column, word in enumerate(row[1].split()):
            if word != "N/A" and float(word) > 0.0:
                ends = (source, column) if not reads else (column, source)
                src, dst = ends if kind == "p2p" else (column, column)
                yield LinkFigure(kind, src, dst, _COPY_BYTES, float(word) * 1e9)
        source += 1
