"""A copy on a separate stream while the device computes.

A case has three rows in ``copies.csv``: ``kind`` is ``overlap_h2d`` or ``overlap_d2h``, ``bytes`` is the size of the
copy, and ``note`` names what runs: the work alone, the copy alone, or both, started together and timed until both
are done.  With these times w, c and b, the hidden fraction of the shorter one is (w + c - b) / min(w, c).  The work is
repeated until it takes about as long as the copy: ``repeats`` is the count, and ``work`` the operator in the notation
of ``simulate --workload``.  The work is matrix products, limited by arithmetic, or vector sums, which compete with the
copy for memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, Literal

import torch

from validate.machine.measure.bench import Bench, QueuedStopwatch
from validate.machine.measure.case import Case, Columns, TimedWork, Unavailable, random_bytes
from validate.machine.measure.timing import Call, Interval

Part = Literal["work", "copy", "both"]

_SIZES = (64 << 20, 4 << 20)
_SIDE, _VECTOR = 4096, 32 << 20
_SMALL_SIDE, _SMALL_VECTOR = 1024, 1 << 20
_MOST_REPEATS = 2000
_PARTS: dict[Part, str] = {"work": "{work} alone", "copy": "copy alone", "both": "copy and {work}"}


def cases(bench: Bench) -> Iterator[Case]:
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
