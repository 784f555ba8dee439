"""Copies between host and device, within a device, within the host, and between devices.

``GBps`` is the number of bytes copied per second, counted once (the memory of a device sees twice that for a copy
within it); for copies both ways at once it is the sum.  Copies from pinned memory run on the copy engine: their time
is measured on the device, between events, with all copies queued.  Copies of pageable memory involve the host and
are timed by its clock.  ``latency_s`` is filled in for the smallest size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import permutations, product
from typing import Any, Literal

import torch

from validate.machine.measure.bench import Bench, CpuStopwatch, HostStopwatch, QueuedStopwatch
from validate.machine.measure.case import Case, Columns, TimedWork, Unavailable, ladder, random_bytes, spread
from validate.machine.measure.host import host_bytes, usable_threads
from validate.machine.measure.timing import Call, Interval, Stopwatch

_LEAST, _MOST, _CPU_MOST = 4 << 10, 1 << 30, 256 << 20
_PAIRS_MOST = 256 << 20


def cases(bench: Bench) -> Iterator[Case]:
    """Yield copies at the largest size, smallest, then between; pairs last. A GPU that was named is measured alone."""
    most = min(_MOST if bench.is_cuda else _CPU_MOST, min(bench.memory_bytes, host_bytes()) // 8)  # several must fit
    here = str(bench.device)
    for size in spread(ladder(_LEAST, most)):
        if not bench.is_cuda:
            for count in sorted({usable_threads(), 1}, reverse=True):
                note = f"{count} thread{'s' * (count > 1)}"
                yield _case("h2h", "host", "host", size, "", partial(_within_host, size, count), note)
            continue
        for pinned in (1, 0):
            yield _case("h2d", "host", here, size, pinned, partial(_with_host, size, pinned, True))
            yield _case("d2h", here, "host", size, pinned, partial(_with_host, size, pinned, False))
        yield _case("d2d", here, here, size, "", partial(_within_device, size))
        yield _case("bidir", here, "host", size, 1, partial(_both_ways_with_host, size), "both ways together")
        yield _case("h2h", "host", "host", size, "", partial(_within_host, size, None), "all threads")
    if not bench.is_cuda or bench.alone:
        return
    sizes = spread(ladder(_LEAST, min(_PAIRS_MOST, bench.memory_bytes // 8)))
    for size, (source, target) in product(sizes, permutations(range(torch.cuda.device_count()), 2)):
        if size in sizes[:2] or 0 in (source, target):  # at sizes between, pairs with GPU 0
            one, other = f"cuda:{source}", f"cuda:{target}"
            way = "peer access" if torch.cuda.can_device_access_peer(source, target) else "through host memory"
            yield _case("p2p", one, other, size, "", partial(_between, size, source, target), way)
            if source < target:
                note = f"{way}; both ways together"
                yield _case("p2p_bidir", one, other, size, "", partial(_both_ways, size, source, target), note)


def _case(kind: str, src: str, dst: str, size: int, pinned: int | str, build: Any, note: str = "") -> Case:
    columns = Columns(kind=kind, src=src, dst=dst, bytes=size, pinned=pinned, note=note)
    return Case("copies", "copies.csv", columns, build, needs_bytes=4 * size)


def _work(call: Any, size: int, watch: Stopwatch | None, ways: int = 1) -> TimedWork:
    def figures(interval: Interval) -> dict[str, float | None]:
        took_s = interval.median
        least_s = took_s if size == _LEAST else None
        return {"GBps": ways * size / took_s / 1e9, "time_s": took_s, "latency_s": least_s}

    return TimedWork(call, figures=figures, watch=watch)


def _with_host(size: int, pinned: int, to_device: bool, bench: Bench) -> TimedWork:
    host, device = random_bytes(size, "cpu", pinned=bool(pinned)), random_bytes(size, bench.device)
    source, target = (host, device) if to_device else (device, host)
    watch: Stopwatch = QueuedStopwatch(bench) if pinned else HostStopwatch(bench, waits=True)
    return _work(lambda _: target.copy_(source, non_blocking=bool(pinned)), size, watch)


def _within_device(size: int, bench: Bench) -> TimedWork:
    source, target = (random_bytes(size, bench.device) for _ in range(2))
    return _work(lambda _: target.copy_(source), size, QueuedStopwatch(bench))


def _within_host(size: int, threads: int | None, _: Bench) -> TimedWork:
    source, target = (random_bytes(size, "cpu") for _ in range(2))
    return _work(lambda _: target.copy_(source), size, CpuStopwatch(threads or usable_threads()))


def _both_ways_with_host(size: int, bench: Bench) -> TimedWork:
    """Return concurrent copies to and from the device, each on its own stream."""
    up, down = (random_bytes(size, "cpu", pinned=True) for _ in range(2))
    above, below = (random_bytes(size, bench.device) for _ in range(2))
    streams = [(torch.cuda.Stream(bench.device),) for _ in range(2)]
    return _at_once(size, [(up, above), (below, down)], streams, QueuedStopwatch(bench), None)


def _at_once(
    size: int, buffers: Sequence[tuple[Any, Any]], streams: Sequence[tuple[Any, ...]], watch: Stopwatch, device: Any
) -> TimedWork:
    """Return copies from the first to the second of each pair of *buffers*, at once, on the *streams* of their ends.

    The first stream of a pair carries the copy; the current stream of *device* waits for all.
    """

    def call(_: int) -> None:
        main = torch.cuda.current_stream(device)
        for (sent, got), of_ends in zip(buffers, streams, strict=True):
            of_ends[0].wait_stream(main)
            with ExitStack() as stack:
                for stream in reversed(of_ends):
                    stack.enter_context(torch.cuda.stream(stream))
                got.copy_(sent, non_blocking=True)
        for of_ends in streams:
            main.wait_stream(of_ends[0])

    return _work(call, size, watch, ways=2)


def _between(size: int, source: int, target: int, bench: Bench) -> TimedWork:
    sent, got = random_bytes(size, f"cuda:{source}"), random_bytes(size, f"cuda:{target}")
    # torch issues such a copy on the source's current stream.
    return _work(lambda _: got.copy_(sent, non_blocking=True), size, QueuedStopwatch(bench, source))


def _both_ways(size: int, one: int, other: int, bench: Bench) -> TimedWork:
    """Return concurrent copies in both directions between two GPUs, on independent streams."""
    ends = ((one, other), (other, one))
    buffers = [(random_bytes(size, f"cuda:{source}"), random_bytes(size, f"cuda:{target}")) for source, target in ends]
    streams = [(torch.cuda.Stream(source), torch.cuda.Stream(target)) for source, target in ends]
    return _at_once(size, buffers, streams, QueuedStopwatch(bench, one), one)


Part = Literal["work", "copy", "both"]

_SIZES = (64 << 20, 4 << 20)
_SIDE, _VECTOR = 4096, 32 << 20
_SMALL_SIDE, _SMALL_VECTOR = 1024, 1 << 20
_MOST_REPEATS = 2000
_PARTS: dict[Part, str] = {"work": "{work} alone", "copy": "copy alone", "both": "copy and {work}"}


def overlap_cases(bench: Bench) -> Iterator[Case]:
    """Yield the three rows of each case; raises Unavailable on a CPU, whose cores do both copies and computation."""
    if not bench.is_cuda:
        raise Unavailable("a CPU copies with the cores that compute")
    here = str(bench.device)
    for size, work, to_device in product(_SIZES, _WORK, (True, False)):
        shared: dict[str, int] = {}  # repetitions of the work, equal in the three rows

        def known(row: Mapping[str, str], shared: dict[str, int] = shared) -> None:
            """Take over the number of repetitions from *row*, measured earlier."""
            if row.get("repeats", "").isdecimal():
                shared["repeats"] = int(row["repeats"])

        kind, src, dst = ("overlap_h2d", "host", here) if to_device else ("overlap_d2h", here, "host")
        for part, words in _PARTS.items():
            if part != "copy" or work == next(iter(_WORK)):  # the copy alone does not depend on the work
                note = words.format(work=work)
                columns = Columns(kind=kind, src=src, dst=dst, bytes=size, pinned=1, note=note)
                build = partial(_build, size, work, to_device, part, shared)
                needs_bytes = size + 16 * max(_SIDE**2, _VECTOR)
                yield Case("overlap", "copies.csv", columns, build, needs_bytes=needs_bytes, known=known)


def _products(size: int, bench: Bench) -> tuple[Callable[[], object], str]:
    side = _SIDE if size == _SIZES[0] else _SMALL_SIDE
    # Random values: products of equal numbers draw another power and so run at another clock.
    a, b, out = (torch.randn(side, side, device=bench.device).half() for _ in range(3))
    return lambda: torch.mm(a, b, out=out), f"op:mat_mul,m={side},n={side},k={side},precision=fp16"


def _sums(size: int, bench: Bench) -> tuple[Callable[[], object], str]:
    length = _VECTOR if size == _SIZES[0] else _SMALL_VECTOR
    a, b, out = torch.randn(3, length, device=bench.device)
    return lambda: torch.add(a, b, out=out), f"op:elementwise,function=add,elements={length},inputs=2"


# The work of a size that takes about as long as a copy of so many bytes, and the operator that it is.
_WORK: dict[str, Callable[[int, Bench], tuple[Callable[[], object], str]]] = {
    "matrix products": _products,
    "sums": _sums,
}


def _build(size: int, name: str, to_device: bool, part: Part, shared: dict[str, int], bench: Bench) -> TimedWork:
    work, operator = _WORK[name](size, bench)
    host, device = random_bytes(size, "cpu", pinned=True), random_bytes(size, bench.device)
    source, target = (host, device) if to_device else (device, host)
    watch = QueuedStopwatch(bench)

    def copy(_: int = 0) -> None:
        target.copy_(source, non_blocking=True)

    def fastest_s(call: Call) -> float:
        return min(watch.sample(call, 4) / 4 for _ in range(5))

    if "repeats" not in shared:
        shared["repeats"] = _repeats(fastest_s(copy), fastest_s(lambda _: work()))
    repeats = shared["repeats"]
    side = torch.cuda.Stream(bench.device)

    def compute(_: int) -> None:
        for _again in range(repeats):
            work()

    def both(i: int) -> None:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copy()
        compute(i)
        main.wait_stream(side)

    calls: dict[Part, Call] = {"work": compute, "copy": copy, "both": both}

    def figures(interval: Interval) -> dict[str, Any]:
        rate = None if part == "work" else size / interval.median / 1e9
        own = {} if part == "copy" else {"work": operator, "repeats": repeats}
        return {"GBps": rate, "time_s": interval.median, **own}

    return TimedWork(calls[part], figures=figures, watch=watch)


def _repeats(copy_s: float, work_s: float) -> int:
    """Return how often to repeat the work so that it lasts as long as the copy."""
    return max(1, min(_MOST_REPEATS, round(copy_s / work_s)))
