"""Reading the output of the OSU micro-benchmarks' collectives: :func:`read_osu_tests`."""

from __future__ import annotations

import math
import re

from simulator.errors import Fault, InputError
from simulator.workload import Collective
from validate.importing.nccl_shown import settings_in
from validate.importing.nccl_table import MOST_BYTES, MOST_ROWS
from validate.importing.nccl_tests import NcclLog, Point

_HEADER = re.compile(
    r"#\s{0,4}OSU ([NR]CCL|xCCL|MPI)(?:-(CUDA|ROCM|OPENACC|SYCL))?"
    r"\s{1,4}([A-Za-z_ -]{1,60}?)\s{1,4}(Latency|Bandwidth) Test",
    re.ASCII | re.IGNORECASE,
)
_COLLECTIVES: dict[str, Collective] = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "all-to-all personalized exchange": "all-to-all",
    "alltoall": "all-to-all",
}
_OF_ONE_RANK = ("all-gather", "all-to-all")
_ROW = re.compile(r"(?:^|[\s>:|\])])(\d{1,15})\s{1,40}(\d{1,12}\.\d{1,6})(?=\s|$)", re.ASCII)
_RANKS = re.compile(r"\b(?:mpirun|mpiexec|srun|mpirun_rsh)\b[^\n]{0,400}?\s-(?:np?|-ntasks)[ =]?(\d{1,6})\b", re.ASCII)
_MOST_BEFORE = 20_000  # characters before the table in which its launch line is looked for
_NCCL = re.compile(r"NCCL version (\d{1,2})\.(\d{1,3})", re.ASCII)


def is_osu_tests(text: str) -> bool:
    """Return whether *text* has a header of the OSU micro-benchmarks."""
    return _HEADER.search(text) is not None


def read_osu_tests(text: str, shown: str, *, collective: str | None = None, n_ranks: int | None = None) -> NcclLog:
    """Return the run that *text* reports, in nccl-tests' sizes; error messages call it *shown*.

    Averages over ranks are taken.  An all-gather's and an all-to-all's size is there what one rank sends, to all or to
    each; nccl-tests counts all ranks'.

    Raises InputError if it holds no run or several, buffers in host memory, a test that is not modelled, or does not
    say how many ranks took part.
    """
    headers = list(_HEADER.finditer(text))
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
    said = _RANKS.search(text[: headers[0].start()][-_MOST_BEFORE:])
    ranks = n_ranks or (int(said[1]) if said else 0)
    if ranks < 2:
        raise InputError(Fault("does not say how many GPUs took part; say it, for example --gpus 8", shown))
    times: dict[int, float] = {}
    for line in text[headers[0].end() :].splitlines()[:MOST_ROWS]:
        row = _ROW.search(line) if "#" not in line else None
        if row is not None and 0 < int(row[1]) <= MOST_BYTES and float(row[2]) > 0.0:
            times[int(row[1]) * (ranks if which in _OF_ONE_RANK else 1)] = float(row[2]) * 1e-6
    if not times:
        raise InputError(Fault("holds no row of OSU's table (size, average latency in us)", shown))
    version = _NCCL.search(text)
    by_mpi = "the exchange is MPI's own, where the expected times are NCCL's: its settings do not act"
    return NcclLog(
        shown=shown,
        collective=which,
        points=tuple(Point(size, time_s, math.nan) for size, time_s in sorted(times.items())),
        n_ranks=ranks,
        gpus_per_thread=1,
        nccl=(int(version[1]), int(version[2])) if version else None,
        settings=settings_in([text]),
        remarks=(by_mpi,) if library.upper() == "MPI" else (),
    )
