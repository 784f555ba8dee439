"""Capture work in a CUDA graph such that a failed capture affects no later case; hold a stream up while work queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def recorded(graph: Any) -> Iterator[None]:
    """Capture the work issued in the body into *graph*; on failure restore torch's state and raise the error."""
    pool = torch.cuda.graph_pool_handle()  # explicit, so that it can be released
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    except BaseException:
        _recover(pool)
        raise


def _recover(pool: Any) -> None:
    """Undo what a capture leaves behind when CUDA refuses to end it (torch 2.11, CUDAGraph::capture_end, stops there).

    Its private stream is still current, the allocator believes that a capture is under way and keeps the memory, and
    the random number generator refuses any use outside a capture.
    """
    torch.cuda.set_stream(torch.cuda.default_stream())
    with suppress(RuntimeError, AttributeError):  # raised where the capture did end properly
        device = torch.cuda.current_device()
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    try:
        number = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # a successful capture resets the generator
            number.zero_()
    except RuntimeError:  # the device may be lost, which the original error reports
        torch.cuda.set_stream(torch.cuda.default_stream())


_CLOCK_HZ = 1.5e9  # clocks run between 1 and 2.5 GHz


def hold_up(seconds: float) -> bool:
    """Block the current stream for about *seconds*; later work waits in its queue.

    Returns whether this torch supports it.
    """
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    sleep(int(seconds * _CLOCK_HZ))
    return True


def time_queued(hold_s: float, issue: Callable[[], object], look: Callable[[], None]) -> tuple[float, bool]:
    """Return the device time of *issue*'s work on the current stream, in seconds, and whether the stream ran dry.

    The stream is blocked for *hold_s* first.  If it runs dry before all work is issued, the time includes host time and
    should be measured again with a longer block.  *look* is called while the device works.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    held = hold_up(hold_s)
    start.record()
    issue()
    early = start.query()
    end.record()
    look()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000, bool(held and early)
