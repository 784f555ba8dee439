"""What PyTorch's caching allocator keeps, by pattern of use, and what a loss needs for each logit.

``asked_bytes`` are the most that a pattern holds at once, ``max_allocated_bytes`` and ``max_reserved_bytes`` torch's
peaks, and ``kept_bytes`` what stays reserved when all is freed.  ``bytes_per`` is the peak of a loss, forward and
backward, over its logits.  The allocator is emptied before each pattern.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork, Unavailable
from validate.machine.measure.timing import Interval

_MIB = 1 << 20
_TOKENS, _WORDS = 4096, 32_000
Hold = Callable[[int], None]  # allocates bytes and holds them
Drop = Callable[[int], None]  # frees the held tensor of this number, counted from the first that is held


def _equal(hold: Hold, _: Drop) -> None:
    for _i in range(64):
        hold(3 * _MIB)


def _small(hold: Hold, _: Drop) -> None:
    for _i in range(1000):
        hold(1000)


def _stack(hold: Hold, drop: Drop) -> None:
    """Hold as a forward pass does, then free the last first, with a temporary for each."""
    for i in range(32):
        hold((4 + i % 3) * _MIB)
    for i in range(31, -1, -1):
        hold(8 * _MIB)
        drop(i + 1)
        drop(i)


def _holes(hold: Hold, drop: Drop) -> None:
    for _ in range(32):
        hold(20 * _MIB)
    for i in range(16):
        drop(i)
    for _ in range(10):
        hold(30 * _MIB)


def _lengths(hold: Hold, drop: Drop) -> None:
    for i in range(48):
        hold((17 + 37 * i % 29) * _MIB)
        drop(0)


def _units(hold: Hold, drop: Drop) -> None:
    """Gather two units ahead and free the oldest, as shards do."""
    hold(40 * _MIB)
    for _ in range(24):
        hold(40 * _MIB)
        hold(6 * _MIB)
        drop(0)


def _growing(hold: Hold, drop: Drop) -> None:
    for i in range(12):
        hold(_MIB << (i // 2))
        if i % 3 == 2:
            drop(0)


def _steps(hold: Hold, drop: Drop) -> None:
    """Parameters and states that stay, and gradients of two steps that come and go."""
    for _ in range(36):
        hold(9 * _MIB)
    for _ in range(2):
        for _ in range(12):
            hold(9 * _MIB)
        for _ in range(12):
            drop(36)


_PATTERNS: dict[str, Callable[[Hold, Drop], None]] = {
    "equal tensors": _equal,
    "small tensors": _small,
    "last freed first": _stack,
    "holes": _holes,
    "varying lengths": _lengths,
    "gathered units": _units,
    "growing tensors": _growing,
    "gradients of steps": _steps,
}
_LOSSES = {
    "fp32": (torch.float32, False),
    "bf16": (torch.bfloat16, False),
    "bf16 logits as fp32": (torch.bfloat16, True),
}


def cases(bench: Bench) -> Iterator[Case]:
    """Yield the patterns, then the losses; raises Unavailable on a CPU, which has another allocator."""
    if not bench.is_cuda:
        raise Unavailable("the allocator is that of GPUs")
    for name, pattern in _PATTERNS.items():
        yield _case(name, partial(_pattern, pattern), 1 << 30)
    for name, (form, widened) in _LOSSES.items():
        yield _case(f"cross-entropy, {name}", partial(_loss, form, widened), 16 * _TOKENS * _WORDS)


def _case(name: str, build: Callable[[Bench], TimedWork], needs_bytes: int) -> Case:
    return Case("reserved", "allocations.csv", {"pattern": name}, build, needs_bytes)


def _pattern(pattern: Callable[[Hold, Drop], None], bench: Bench) -> TimedWork:
    found: dict[str, Any] = {}

    def run() -> None:
        held: list[Any] = []
        most = now = 0

        def hold(size: int) -> None:
            nonlocal most, now
            held.append(torch.empty(size, dtype=torch.uint8, device=bench.device))
            now += size
            most = max(most, now)

        def drop(number: int) -> None:
            nonlocal now
            now -= held.pop(number).numel()

        pattern(hold, drop)
        found["asked_bytes"] = most

    return _work(bench, run, found)


def _loss(form: Any, widened: bool, bench: Bench) -> TimedWork:
    found: dict[str, Any] = {"asked_bytes": _TOKENS * _WORDS * form.itemsize}

    def run() -> None:
        with torch.enable_grad():
            logits = torch.empty((_TOKENS, _WORDS), dtype=form, device=bench.device).requires_grad_()
            labels = torch.zeros(_TOKENS, dtype=torch.int64, device=bench.device)
            F.cross_entropy(logits.float() if widened else logits, labels).backward()
        found["bytes_per"] = torch.cuda.max_memory_allocated(bench.device) / (_TOKENS * _WORDS)

    return _work(bench, run, found)


def _work(bench: Bench, run: Callable[[], None], found: dict[str, Any]) -> TimedWork:
    def own() -> Interval:
        bench.settle()
        bench.release()
        before = torch.cuda.memory_allocated(bench.device), torch.cuda.memory_reserved(bench.device)
        torch.cuda.reset_peak_memory_stats(bench.device)
        began_s = time.perf_counter()
        run()
        bench.settle()
        took_s = time.perf_counter() - began_s
        found["max_allocated_bytes"] = torch.cuda.max_memory_allocated(bench.device) - before[0]
        found["max_reserved_bytes"] = torch.cuda.max_memory_reserved(bench.device) - before[1]
        found["kept_bytes"] = torch.cuda.memory_reserved(bench.device) - before[1]
        return Interval(took_s, took_s, took_s, 1)

    return TimedWork(lambda _: run(), own=own, figures=lambda interval: {**found, "time_s": interval.median})
