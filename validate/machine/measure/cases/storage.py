"""Reads and writes of a file on the disk that holds the results.

``cache`` says what serves reads: ``page cache``, the system's copy in memory; ``dropped``, the disk, after the file's
pages were dropped; ``direct``, the disk, bypassing that cache (O_DIRECT).  Writes are timed until fsync.  In random
reads each thread has one request outstanding: ``latency_s`` is its time, ``time_s`` that divided by the threads.
"""

import errno
import json
import mmap
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork, Unavailable
from validate.machine.measure.timing import Effort, Interval, repeated

Cache = Literal["page cache", "dropped", "direct"]
BLOCK = 4 << 20  # bytes per write; the file is a multiple of this


class ScratchFile:
    """A file of up to *size* bytes, less where writing takes *longest_s*; raises Unavailable, leaving nothing."""

    def __init__(self, folder: Path, size: int, longest_s: float = 1.5) -> None:
        self._plain = self._direct = -1
        self.size = 0
        self.block = mmap.mmap(-1, BLOCK)  # page-aligned, as direct access requires
        self.block[:] = os.urandom(BLOCK)  # incompressible for the file system
        try:
            with _unavailable():
                self._plain, name = tempfile.mkstemp(prefix=".topocast-", dir=folder)
                try:
                    with suppress(OSError):  # not every file system supports O_DIRECT
                        self._direct = os.open(name, os.O_RDWR | getattr(os, "O_DIRECT", 0))
                finally:
                    os.unlink(name)
                began_s = time.monotonic()
                while self.size + BLOCK <= size and (not self.size or time.monotonic() - began_s < longest_s):
                    self.write(self.size, "page cache")
                    self.size += BLOCK
                    if self.size % (8 * BLOCK) == 0:
                        self.sync()
                self.sync()  # dirty pages cannot be dropped
        except BaseException:
            self.close()
            raise

    def descriptor(self, cache: Cache) -> int:
        """Return the file descriptor for reads; raises Unavailable where the system lacks this kind of access."""
        if cache == "direct" and (self._direct < 0 or not hasattr(os, "O_DIRECT")):
            raise Unavailable("the file system has no direct access (O_DIRECT)")
        if cache == "dropped" and not hasattr(os, "posix_fadvise"):
            raise Unavailable("the system has no posix_fadvise")
        if not hasattr(os, "preadv"):
            raise Unavailable("the system has no preadv")
        return self._direct if cache == "direct" else self._plain

    def forget(self) -> None:
        """Drop the cached pages."""
        os.posix_fadvise(self._plain, 0, 0, os.POSIX_FADV_DONTNEED)

    def write(self, offset: int, cache: Cache) -> None:
        """Write a block at *offset*; raises Unavailable where the disk is full, OSError on other faults."""
        with _unavailable(*_FULL):
            if os.pwritev(self.descriptor(cache), [self.block], offset) != BLOCK:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Wait until all writes are on the disk; raises as :meth:`write`."""
        with _unavailable(*_FULL):
            os.fsync(self._plain)

    def close(self) -> None:
        """Close the file, which frees its space."""
        for descriptor in (self._plain, self._direct):
            if descriptor >= 0:
                os.close(descriptor)
        self._plain = self._direct = -1


_FULL = (errno.ENOSPC, errno.EDQUOT)  # a quota may be lower than the disk's: tables may still be written


@contextmanager
def _unavailable(*numbers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if numbers and error.errno not in numbers:
            raise
        raise Unavailable(f"no file to be read could be written: {error.strerror or error}") from error


_MOST_BYTES, _LEAST_BYTES = 256 << 20, 2 * BLOCK
_SHARE = 10  # the file takes at most 1/10 of the free space
_CACHED_BYTES = 64 << 20  # part of the file used for reads from the page cache
_PAGE = 4096
_WRITTEN = 4  # blocks per sample of writes
_SAMPLE_S, _LONGEST_S, _MOST_SAMPLES, _INTERVAL = 0.08, 1.2, 40, 0.02

Sample = Callable[[], float]  # takes one sample and returns the seconds per block


class _Access(NamedTuple):
    kind: Literal["read_sequential", "read_random", "write_sequential"]
    block_bytes: int
    threads: int
    cache: Cache


_LISTED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))["accesses"]
_ACCESSES = tuple(_Access(kind, {"block": BLOCK, "page": _PAGE}[size], *how) for kind, size, *how in _LISTED)


def file_bytes(free_bytes: int) -> int:
    """Return the file size for this much free space, in whole blocks; 0 where it would be too small."""
    size = min(_MOST_BYTES, free_bytes // _SHARE) // BLOCK * BLOCK
    return size if size >= _LEAST_BYTES else 0


def cases(bench: Bench) -> Iterator[Case]:
    """Yield sequential and random accesses; raises Unavailable where there is no room for the file."""
    size = file_bytes(shutil.disk_usage(bench.scratch).free)
    if not size:
        raise Unavailable(f"less than {_SHARE * _LEAST_BYTES >> 20} MiB are free where the results are written")
    opened: list[ScratchFile | str] = []  # by the first case for all; or why not, so that none fills the disk again

    def build(access: _Access, _: Bench) -> TimedWork:
        if not opened:
            try:
                opened.append(ScratchFile(bench.scratch, size))
            except Unavailable as reason:
                opened.append(str(reason))
        file = opened[0]
        if isinstance(file, str):
            raise Unavailable(file)
        file.descriptor(access.cache)

        def figures(interval: Interval) -> dict[str, float]:
            rate, latency_s = access.block_bytes / interval.median / 1e9, interval.median * access.threads
            return {"bytes": file.size, "GBps": rate, "time_s": interval.median, "latency_s": latency_s}

        return TimedWork(lambda _: None, own=partial(_measure, file, access), figures=figures)

    try:
        for access in _ACCESSES:
            yield Case("storage.csv", access._asdict(), partial(build, access))
    finally:
        for file in opened:
            if isinstance(file, ScratchFile):
                file.close()


def _measure(file: ScratchFile, access: _Access) -> Interval:
    ways = {"read_sequential": _read_sequential, "read_random": _read_random, "write_sequential": _write_sequential}
    sample = ways[access.kind](file, access)
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
    pages, n = end // access.block_bytes, access.threads
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
        orders = [chance.sample(range(pages), min(pages, 20_000)) for _ in range(n)]
        began_s = time.perf_counter()
        until_s = began_s + _SAMPLE_S
        with ThreadPoolExecutor(n) if n > 1 else nullcontext() as pool:
            requests = sum((pool.map if pool is not None else map)(reader, orders, [until_s] * n))
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
