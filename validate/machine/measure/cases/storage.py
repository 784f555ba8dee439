"""Reads and writes of a file on the disk that holds the results.

``cache`` says what serves reads: ``page cache``, the system's copy in memory; ``dropped``, the disk, after the file's
pages were dropped (posix_fadvise); ``direct``, the disk, bypassing the page cache (O_DIRECT).  Write times include
the wait until the data are on the disk (fsync).  In random reads each thread has one request outstanding.
``time_s`` is the time per block, ``latency_s`` that of a request: with several threads, the former is the latter
divided by their number.  Caches below the system, in a controller or a virtual machine's host, are not visible to
programs.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, Columns, TimedWork, Unavailable
from validate.machine.measure.cases.scratch_file import BLOCK, Cache, ScratchFile
from validate.machine.measure.statistics import Interval
from validate.machine.measure.timing import Effort, repeated

_MOST_BYTES, _LEAST_BYTES = 256 << 20, 2 * BLOCK
_SHARE = 10  # the file takes at most 1/10 of the free space
_CACHED_BYTES = 64 << 20  # part of the file used for reads from the page cache
_PAGE = 4096
_WRITTEN = 4  # blocks per sample of writes
_SAMPLE_S, _LONGEST_S, _MOST_SAMPLES, _INTERVAL = 0.08, 1.2, 40, 0.02

Sample = Callable[[], float]
"""Takes one sample and returns the seconds per block."""


@dataclass(frozen=True, slots=True)
class _Access:
    kind: Literal["read_sequential", "read_random", "write_sequential"]
    block_bytes: int
    threads: int
    cache: Cache


_ACCESSES = (
    _Access("read_sequential", BLOCK, 1, "direct"),
    _Access("read_random", _PAGE, 1, "direct"),
    _Access("read_sequential", BLOCK, 1, "dropped"),
    _Access("write_sequential", BLOCK, 1, "direct"),
    _Access("read_random", _PAGE, 16, "direct"),
    _Access("read_sequential", BLOCK, 1, "page cache"),
    _Access("write_sequential", BLOCK, 1, "page cache"),
    _Access("read_random", _PAGE, 4, "direct"),
    _Access("read_random", _PAGE, 1, "dropped"),
    _Access("read_random", _PAGE, 1, "page cache"),
)


def cases(bench: Bench, machine: str) -> Iterator[Case]:
    """Return sequential and random accesses; raises Unavailable where there is no room for the file."""
    del machine
    size = file_bytes(shutil.disk_usage(bench.scratch).free)
    if not size:
        raise Unavailable(f"less than {_SHARE * _LEAST_BYTES >> 20} MiB are free where the results are written")
    return _cases(bench.scratch, size)


def file_bytes(free_bytes: int) -> int:
    """Return the file size for this much free space, in whole blocks; 0 where it would be too small."""
    size = min(_MOST_BYTES, free_bytes // _SHARE) // BLOCK * BLOCK
    return size if size >= _LEAST_BYTES else 0


def _cases(folder: Path, size: int) -> Iterator[Case]:
    opened: list[ScratchFile] = []  # opened by the first case, shared by all
    refused: list[Unavailable] = []  # remembered, so that later cases do not try to fill the disk again

    def build(access: _Access, _: Bench) -> TimedWork:
        if refused:
            raise Unavailable(str(refused[0]))
        if not opened:
            try:
                opened.append(ScratchFile(folder, size))
            except Unavailable as reason:
                refused.append(reason)
                raise
        file = opened[0]
        file.descriptor(access.cache)
        return TimedWork(
            lambda _: None, own=partial(_measure, file, access), figures=partial(_figures, access, file.size)
        )

    try:
        for access in _ACCESSES:
            columns: Columns = {
                "kind": access.kind,
                "block_bytes": access.block_bytes,
                "threads": access.threads,
                "cache": access.cache,
            }
            yield Case("storage", "storage.csv", columns, partial(build, access))
    finally:
        for file in opened:
            file.close()


def _figures(access: _Access, size: int, interval: Interval) -> dict[str, float]:
    return {
        "bytes": size,
        "GBps": access.block_bytes / interval.median / 1e9,
        "time_s": interval.median,
        "latency_s": interval.median * access.threads,
    }


def _measure(file: ScratchFile, access: _Access) -> Interval:
    """Return the seconds per block; samples are repeated until they agree well enough or time is up."""
    sample = {"read_sequential": _read_sequential, "read_random": _read_random, "write_sequential": _write_sequential}[
        access.kind
    ](file, access)
    sample()
    began_s = time.monotonic()
    effort = Effort(_INTERVAL, longest_s=_LONGEST_S, most_samples=_MOST_SAMPLES)
    return repeated(sample, lambda: time.monotonic() - began_s, effort)


def _opened(file: ScratchFile, access: _Access) -> tuple[int, int]:
    """Return the descriptor to read from and the end of the range; with the page cache, load the range into it."""
    descriptor = file.descriptor(access.cache)
    if access.cache != "page cache":
        return descriptor, file.size
    end = min(file.size, _CACHED_BYTES)
    for place in range(0, end, BLOCK):
        os.preadv(descriptor, [file.block], place)
    return descriptor, end


def _read_sequential(file: ScratchFile, access: _Access) -> Sample:
    descriptor, end = _opened(file, access)
    offset = 0

    def sample() -> float:
        nonlocal offset
        first, blocks, spent_s = offset, 0, 0.0
        if access.cache == "dropped":
            file.forget()
        began_s = time.perf_counter()
        while spent_s < _SAMPLE_S:
            os.preadv(descriptor, [file.block], offset)
            spent_s = time.perf_counter() - began_s
            blocks += 1
            offset = (offset + BLOCK) % end
            if offset == first and access.cache == "dropped":
                break  # further reads would come from memory
        return spent_s / blocks

    return sample


def _read_random(file: ScratchFile, access: _Access) -> Sample:
    descriptor, end = _opened(file, access)
    pages = end // access.block_bytes
    chance = random.Random(pages)

    def reader(places: list[int], until_s: float) -> int:
        buffer = mmap.mmap(-1, access.block_bytes)
        for count, place in enumerate(places, 1):
            os.preadv(descriptor, [buffer], place * access.block_bytes)
            if time.perf_counter() >= until_s:
                return count
        return len(places)

    def sample() -> float:
        if access.cache == "dropped":
            file.forget()
        orders = [chance.sample(range(pages), min(pages, 20_000)) for _ in range(access.threads)]
        began_s = time.perf_counter()
        until_s = began_s + _SAMPLE_S
        if access.threads == 1:
            requests = reader(orders[0], until_s)
        else:
            with ThreadPoolExecutor(access.threads) as pool:
                requests = sum(pool.map(reader, orders, [until_s] * access.threads))
        return (time.perf_counter() - began_s) / requests

    return sample


def _write_sequential(file: ScratchFile, access: _Access) -> Sample:
    offset = 0
    file.descriptor(access.cache)

    def sample() -> float:
        nonlocal offset
        began_s = time.perf_counter()
        for _ in range(_WRITTEN):
            file.write(offset, access.cache)
            offset = (offset + BLOCK) % file.size
        file.sync()
        return (time.perf_counter() - began_s) / _WRITTEN

    return sample
