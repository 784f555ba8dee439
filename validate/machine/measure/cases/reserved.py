"""What PyTorch's caching allocator keeps, by pattern of use, and what a loss needs for each logit.

``asked_bytes`` are the most that a pattern holds at once, ``kept_bytes`` what stays reserved when all is freed.
``bytes_per`` is the peak of a loss, both passes, over its logits.  The allocator is emptied before each pattern.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork
from validate.machine.measure.timing import Interval

_MIB = 1 << 20
_TOKENS, _WORDS = 4096, 32_000


class Drop(int):
    """The number of a held tensor that is freed, counted from the first that is held."""


_PATTERNS: dict[str, list[int]] = {  # bytes that are allocated and held, in order, and what is freed between
    "equal tensors": [3 * _MIB] * 64,
    "small tensors": [1000] * 1000,
    "last freed first": [  # as a forward pass, then a backward pass with a temporary for each
        *((4 + i % 3) * _MIB for i in range(32)),
        *(each for i in reversed(range(32)) for each in (8 * _MIB, Drop(i + 1), Drop(i))),
    ],
    "holes": [*[20 * _MIB] * 32, *map(Drop, range(16)), *[30 * _MIB] * 10],
    "varying lengths": [each for i in range(48) for each in ((17 + 37 * i % 29) * _MIB, Drop(0))],
    "gathered units": [40 * _MIB, *[40 * _MIB, 6 * _MIB, Drop(0)] * 24],  # the oldest of two is freed, as shards do
    "growing tensors": [each for i in range(12) for each in (_MIB << (i // 2), *[Drop(0)] * (i % 3 == 2))],
    "gradients of steps": [*[9 * _MIB] * 36, *[*[9 * _MIB] * 12, *[Drop(36)] * 12] * 2],  # beside states that stay
}
_LOSSES = {
    "fp32": (torch.float32, False),
    "bf16": (torch.bfloat16, False),
    "bf16 logits as fp32": (torch.bfloat16, True),
}


def cases(_: Bench) -> Iterator[Case]:
    """Yield the patterns, then the losses."""
    for name, pattern in _PATTERNS.items():
        yield Case("allocations.csv", {"pattern": name}, partial(_work, partial(_held, pattern)), 1 << 30)
    for name, how in _LOSSES.items():
        columns = {"pattern": f"cross-entropy, {name}"}
        yield Case("allocations.csv", columns, partial(_work, partial(_loss, *how)), 16 * _TOKENS * _WORDS)


def _held(pattern: Sequence[int], bench: Bench) -> dict[str, Any]:
    held: list[Any] = []
    most = now = 0
    for each in pattern:
        if isinstance(each, Drop):
            now -= held.pop(each).numel()
        else:
            held.append(torch.empty(each, dtype=torch.uint8, device=bench.device))
            now += each
            most = max(most, now)
    return {"asked_bytes": most}


def _loss(form: Any, widened: bool, bench: Bench) -> dict[str, Any]:
    with torch.enable_grad():
        logits = torch.empty((_TOKENS, _WORDS), dtype=form, device=bench.device).requires_grad_()
        labels = torch.zeros(_TOKENS, dtype=torch.int64, device=bench.device)
        F.cross_entropy(logits.float() if widened else logits, labels).backward()
    needed = torch.cuda.max_memory_allocated(bench.device) / (_TOKENS * _WORDS)
    return {"asked_bytes": _TOKENS * _WORDS * form.itemsize, "bytes_per": needed}


def _work(run: Callable[[Bench], dict[str, Any]], bench: Bench) -> TimedWork:
    found: dict[str, Any] = {}

    def own() -> Interval:
        bench.settle()
        bench.release()
        allocated, reserved = torch.cuda.memory_allocated(bench.device), torch.cuda.memory_reserved(bench.device)
        torch.cuda.reset_peak_memory_stats(bench.device)
        began_s = time.perf_counter()
        found.update(run(bench))
        bench.settle()
        took_s = time.perf_counter() - began_s
        found["max_allocated_bytes"] = torch.cuda.max_memory_allocated(bench.device) - allocated
        found["max_reserved_bytes"] = torch.cuda.max_memory_reserved(bench.device) - reserved
        found["kept_bytes"] = torch.cuda.memory_reserved(bench.device) - reserved
        return Interval(took_s, took_s, took_s, 1)

    return TimedWork(lambda _: run(bench), own=own, figures=lambda interval: {**found, "time_s": interval.median})
