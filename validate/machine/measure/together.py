"""Time an operation of all ranks of a group, with its confidence interval."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.bench import hold_up
from validate.machine.measure.timing import Effort, Interval, repeated

MOST_CALLS = 64  # most calls per sample: what a GPU's queue takes without blocking the host
_ISSUE_S = 100e-6  # more than the host needs to issue one call


def time_together(
    call: Callable[[int], object],
    effort: Effort,
    *,
    cuda: bool,
    renew: Callable[[], None] | None = None,
    issue_s: float = _ISSUE_S,
) -> Interval:
    """Return the median time of one *call* on the slowest rank, in seconds; all ranks call this at the same point.

    Each sample starts after an all-reduce of one number, and its time is the greatest of all ranks (nccl-tests,
    doc/PERFORMANCE.md, takes the mean; a training step waits for the slowest).  All decisions, such as when to stop,
    depend on these times alone, so that all ranks decide alike.

    On a GPU the stream is blocked until the host has issued a sample's calls, taking *issue_s* seconds each, so that
    only device time counts, even if issuing takes longer.  *renew* is called before each sample, untimed.
    """
    token = torch.zeros(1, device="cuda" if cuda else "cpu")
    ran_dry = False

    def sample(calls: int) -> float:
        nonlocal ran_dry
        if renew is not None:
            renew()
        took_s, early = _sample_cuda(call, calls, token, issue_s) if cuda else _sample_cpu(call, calls, token)
        ran_dry |= early
        return took_s

    spent_s = one_s = sample(1)
    once_s = sample(1)
    spent_s += once_s
    one_s = min(one_s, once_s)
    while spent_s < effort.warmup_s:
        calls = _count(one_s, effort)
        spent_s += (took_s := sample(calls))
        one_s = min(one_s, took_s / calls)
    calls = _count(one_s, effort)
    spent_s = 0.0
    ran_dry = False  # ignore the warm-up

    def one() -> float:
        nonlocal spent_s
        spent_s += (took_s := sample(calls))
        return took_s / calls

    return replace(repeated(one, lambda: spent_s, effort), ran_dry=ran_dry)


def _count(one_s: float, effort: Effort) -> int:
    return max(1, min(MOST_CALLS, math.ceil(effort.sample_s / max(one_s, 1e-7))))


def greatest(seconds: float, device: Any) -> float:
    """Return the greatest *seconds* of all ranks."""
    value = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value.item())


def _sample_cpu(call: Callable[[int], object], calls: int, token: torch.Tensor) -> tuple[float, bool]:
    dist.all_reduce(token)
    began_s = time.perf_counter()
    for i in range(calls):
        call(i)
    return greatest(time.perf_counter() - began_s, token.device), False


def _sample_cuda(call: Callable[[int], object], calls: int, token: torch.Tensor, issue_s: float) -> tuple[float, bool]:
    """Return the greatest time of all ranks, in seconds, and whether this rank's stream ran dry during issue."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    held = hold_up(calls * issue_s)
    dist.all_reduce(token)
    start.record()
    for i in range(calls):
        call(i)
    early = held and start.query()
    end.record()
    end.synchronize()
    return greatest(start.elapsed_time(end) / 1000, token.device), early
