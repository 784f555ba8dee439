"""Copies between host and device, within a device, within the host, between devices, and beside computing.

``GBps`` counts each byte once, and both ways at once as a sum.  Copies from pinned memory are timed on the device,
between events, with all queued; those of pageable memory by the host's clock.  ``latency_s`` is of the smallest size.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import permutations, product
from typing import Any, Literal

import torch

from validate.machine.measure.bench import Bench, CpuStopwatch, HostStopwatch, QueuedStopwatch
from validate.machine.measure.case import Case, Columns, TimedWork, ladder, random_bytes, spread
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
                yield _case("h2h", "host", "host", size, note=f"{count} thread{'s' * (count > 1)}", threads=count)
            continue
        for pinned in (1, 0):
            yield _case("h2d", "host", here, size, pinned)
            yield _case("d2h", here, "host", size, pinned)
        yield _case("d2d", here, here, size)
        yield _case("bidir", here, "host", size, 1, "both ways together")
        yield _case("h2h", "host", "host", size, note="all threads")
    if not bench.is_cuda or bench.alone:
        return
    sizes = spread(ladder(_LEAST, min(_PAIRS_MOST, bench.memory_bytes // 8)))
    for size, (source, target) in product(sizes, permutations(range(torch.cuda.device_count()), 2)):
        if size in sizes[:2] or 0 in (source, target):  # at sizes between, pairs with GPU 0
            one, other = f"cuda:{source}", f"cuda:{target}"
            way = "peer access" if torch.cuda.can_device_access_peer(source, target) else "through host memory"
            yield _case("p2p", one, other, size, note=way)
            if source < target:
                yield _case("p2p_bidir", one, other, size, note=f"{way}; both ways together")


def _case(kind: str, src: str, dst: str, size: int, pinned: int | str = "", note: str = "", threads: int = 0) -> Case:
    columns = Columns(kind=kind, src=src, dst=dst, bytes=size, pinned=pinned, note=note)
    return Case("copies.csv", columns, partial(_copy, kind, src, dst, size, pinned == 1, threads), needs_bytes=4 * size)


def _copy(kind: str, src: str, dst: str, size: int, pinned: bool, threads: int, bench: Bench) -> TimedWork:
    ways = {"bidir": ((dst, src), (src, dst)), "p2p_bidir": ((src, dst), (dst, src))}.get(kind, ((src, dst),))
    made = partial(random_bytes, size)
    buffers = [[made("cpu", pinned=pinned) if end == "host" else made(end) for end in ends] for ends in ways]
    device = torch.device(src).index if kind.startswith("p2p") else None
    watch: Stopwatch = QueuedStopwatch(bench, device)
    if kind == "h2h":
        watch = CpuStopwatch(threads or usable_threads())
    elif kind in ("h2d", "d2h") and not pinned:
        watch = HostStopwatch(bench, waits=True)
    streams = [[torch.cuda.Stream(torch.device(end)) for end in ends if end != "host"] for ends in ways[1:] and ways]

    def one(_: int) -> None:
        ((sent, got),) = buffers
        got.copy_(sent, non_blocking=pinned or kind == "p2p")

    def both(_: int) -> None:
        main = torch.cuda.current_stream(device)
        for (sent, got), of_ends in zip(buffers, streams, strict=True):
            of_ends[0].wait_stream(main)
            with ExitStack() as stack:
                for stream in reversed(of_ends):
                    stack.enter_context(torch.cuda.stream(stream))
                got.copy_(sent, non_blocking=True)
        for of_ends in streams:
            main.wait_stream(of_ends[0])

    def figures(interval: Interval) -> dict[str, float | None]:
        took_s = interval.median
        latency_s = took_s if size == _LEAST else None
        return {"GBps": len(ways) * size / took_s / 1e9, "time_s": took_s, "latency_s": latency_s}

    return TimedWork(both if streams else one, figures=figures, watch=watch)


Part = Literal["work", "copy", "both"]

_SIZES = (64 << 20, 4 << 20)
_SIDE, _VECTOR = 4096, 32 << 20
_SMALL_SIDE, _SMALL_VECTOR = 1024, 1 << 20
_MOST_REPEATS = 2000
_WORK = ("matrix products", "sums")
_PARTS: dict[Part, str] = {"work": "{work} alone", "copy": "copy alone", "both": "copy and {work}"}


def overlap_cases(bench: Bench) -> Iterator[Case]:
    """Yield the three rows of each case."""
    here = str(bench.device)
    for size, work, to_device in product(_SIZES, _WORK, (True, False)):
        shared: dict[str, int] = {}  # repetitions of the work, equal in the three rows

        def known(row: Mapping[str, str], shared: dict[str, int] = shared) -> None:
            if row.get("repeats", "").isdecimal():
                shared["repeats"] = int(row["repeats"])

        kind, src, dst = ("overlap_h2d", "host", here) if to_device else ("overlap_d2h", here, "host")
        for part, words in _PARTS.items():
            if part != "copy" or work == _WORK[0]:  # the copy alone does not depend on the work
                columns = Columns(kind=kind, src=src, dst=dst, bytes=size, pinned=1, note=words.format(work=work))
                build = partial(_build, size, work, to_device, part, shared)
                needs_bytes = size + 16 * max(_SIDE**2, _VECTOR)
                yield Case("copies.csv", columns, build, needs_bytes=needs_bytes, known=known)


def _work(name: str, size: int, bench: Bench) -> tuple[Callable[[], object], str]:
    """Return work that takes about as long as a copy of *size* bytes, and the operator that it is."""
    if name == "sums":
        length = _VECTOR if size == _SIZES[0] else _SMALL_VECTOR
        a, b, out = torch.randn(3, length, device=bench.device)
        return lambda: torch.add(a, b, out=out), f"op:elementwise,function=add,elements={length},inputs=2"
    side = _SIDE if size == _SIZES[0] else _SMALL_SIDE
    # Random values: products of equal numbers draw another power and so run at another clock.
    a, b, out = (torch.randn(side, side, device=bench.device).half() for _ in range(3))
    return lambda: torch.mm(a, b, out=out), f"op:mat_mul,m={side},n={side},k={side},precision=fp16"


def _build(size: int, name: str, to_device: bool, part: Part, shared: dict[str, int], bench: Bench) -> TimedWork:
    work, operator = _work(name, size, bench)
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
    return max(1, min(_MOST_REPEATS, round(copy_s / work_s)))
