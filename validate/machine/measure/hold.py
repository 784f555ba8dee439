"""Block a stream briefly, so that work issued meanwhile waits in its queue."""

from __future__ import annotations

from collections.abc import Callable

import torch

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
