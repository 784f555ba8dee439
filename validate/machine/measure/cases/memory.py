"""Bandwidth by working set: streams and gathers of torch, and load latency.

``bytes`` is the working set.  A stream passes over all of it once; copy and triad divide it among their buffers.
Lines that caches fetch before a write are not counted (as in STREAM, McCalpin 1995).  A gather takes random rows from
a table of ``bytes``; its GB/s count rows read and written, not the indices (8 bytes a row).  On a GPU the calls are
replayed from a captured graph, so that small working sets are not limited by the host.  On a CPU each call includes
about a microsecond of launch time.  All caches are warm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from validate.machine.measure.bench import Bench, CpuStopwatch
from validate.machine.measure.case import Case, Columns, TimedWork, ladder, spread
from validate.machine.measure.cases.chase import chase_cases
from validate.machine.measure.host import usable_threads
from validate.machine.measure.timing import Call, Interval, Stopwatch

_LEAST, _ROW_LEAST, _ROW_MOST = 16 << 10, 64, 4096
_BEYOND = 8  # working set in multiples of the last-level cache, at which streams hardly hit it
_GPU_MOST = 4 << 30
_CPU_LEAST, _CPU_MOST = 256 << 20, 1 << 30
_GATHERED, _CPU_GATHERED = 64 << 20, 8 << 20
_FLOAT_BYTES = 4
_STEP = 256  # elements: 1 KiB


def cases(bench: Bench) -> Iterator[Case]:
    """Yield streams, pointer chases and gathers over all sizes, interleaved so that any prefix is representative."""
    largest = _largest(bench)
    sizes = spread(ladder(_LEAST if bench.is_cuda else 4 * _LEAST, largest))
    threads = ("",) if bench.is_cuda else tuple(sorted({usable_threads(), 1}, reverse=True))
    streams = [_stream_case(k, size, t) for size in sizes for t in threads for k in _STREAMS]
    tables = [min(largest, 1 << 30)]  # far beyond the last-level cache and, on GPUs, half of it
    cached = 1 << max(0, (bench.cache_bytes // 2).bit_length() - 1)
    tables += [cached] if bench.is_cuda and _ROW_MOST <= cached < tables[0] else []
    rows = spread(ladder(_ROW_LEAST, _ROW_MOST))
    gathers = [_gather_case(row, size, threads[0]) for size in tables for row in rows]
    queues = streams[2:], list(chase_cases(bench, largest)), gathers
    yield from streams[:2]
    # All queues in proportion to their lengths, so that they end together.
    places = [((i + 0.5) / len(queue), which, i) for which, queue in enumerate(queues) for i in range(len(queue))]
    yield from (queues[which][i] for _, which, i in sorted(places))
    if bench.is_cuda:  # sizes between, if time is left
        between = spread(ladder(2 * _LEAST, largest))
        yield from (_stream_case(kernel, size, "") for size in between for kernel in _STREAMS)


def _largest(bench: Bench) -> int:
    """Return the largest working set in bytes: well beyond the last-level cache, within the device's memory."""
    wanted = _GPU_MOST if bench.is_cuda else min(_CPU_MOST, max(_CPU_LEAST, _BEYOND * bench.cache_bytes))
    sizes = ladder(_LEAST, min(wanted, bench.memory_bytes // 3))
    return sizes[-1] if sizes else _LEAST


def _written(shape: tuple[int, ...], bench: Bench) -> Any:
    """Return random numbers on a GPU, whose power draw depends on them; ones on a CPU, which are faster to write.

    Pages that nobody has written would share one page of zeros.
    """
    numbers = torch.empty(shape, device=bench.device)
    return numbers.uniform_() if bench.is_cuda else numbers.fill_(1.0)


def _elements(parts: int, size: int) -> int:
    """Return the number of elements of each of *parts* buffers, in whole KiB, as a network's buffers are."""
    return max(_STEP, size // _FLOAT_BYTES // parts // _STEP * _STEP)


def _read(x: Any) -> Call:
    out = torch.zeros((), device=x.device)
    return lambda _: torch.sum(x, 0, out=out)


# Kernels, with the number of buffers that they divide the working set among.
_STREAMS: dict[str, tuple[int, Callable[..., Call]]] = {
    "read": (1, _read),
    "copy": (2, lambda x, y: lambda _: y.copy_(x)),
    "triad": (3, lambda a, b, c: lambda _: torch.add(a, b, alpha=2.0, out=c)),
    "write": (1, lambda x: lambda _: x.fill_(2.0)),
}


def _stream_case(kernel: str, size: int, threads: int | str) -> Case:
    columns = Columns(bench="torch stream", kernel=kernel, bytes=size, threads=threads, dtype="fp32")
    return Case("memory", "memory.csv", columns, partial(_stream, kernel, size, threads), needs_bytes=size)


def _stream(kernel: str, size: int, threads: int | str, bench: Bench) -> TimedWork:
    parts, stream = _STREAMS[kernel]
    moved = parts * _elements(parts, size) * _FLOAT_BYTES
    call = stream(*_written((parts, _elements(parts, size)), bench))
    return TimedWork(call, "graph", partial(_rate, moved), watch=_watch(threads))


def _gather_case(row_bytes: int, table_bytes: int, threads: int | str) -> Case:
    kernel = f"gather rows of {row_bytes} B"
    columns = Columns(bench="torch index_select", kernel=kernel, bytes=table_bytes, threads=threads, dtype="fp32")
    build = partial(_gather, row_bytes, table_bytes, threads)
    return Case("memory", "memory.csv", columns, build, needs_bytes=table_bytes + 2 * _GATHERED)


def _gather(row_bytes: int, table_bytes: int, threads: int | str, bench: Bench) -> TimedWork:
    rows = table_bytes // row_bytes
    count = min(rows, (_GATHERED if bench.is_cuda else _CPU_GATHERED) // row_bytes)
    table = _written((rows, row_bytes // _FLOAT_BYTES), bench)
    chance = torch.Generator(device="cpu").manual_seed(row_bytes)
    index = torch.randint(rows, (count,), generator=chance).to(bench.device)
    out = torch.empty((count, row_bytes // _FLOAT_BYTES), device=bench.device)
    figures = partial(_rate, 2 * count * row_bytes)
    return TimedWork(lambda _: torch.index_select(table, 0, index, out=out), "graph", figures, watch=_watch(threads))


def _watch(threads: int | str) -> Stopwatch | None:
    return CpuStopwatch(threads) if isinstance(threads, int) else None


def _rate(moved_bytes: int, interval: Interval) -> dict[str, float]:
    return {"GBps": moved_bytes / interval.median / 1e9, "time_s": interval.median}
