"""Keep a stream busy for a moment, so that what is issued meanwhile waits in its queue."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["hold_up", "time_queued"]

_CLOCK_HZ = 1.5e9  # clocks run between 1 and 2.5 GHz


def hold_up(seconds: float) -> bool:
    """Keep the current stream busy for about *seconds*: what follows waits in its queue.

    Returns whether torch knows how.
    """
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    sleep(int(seconds * _CLOCK_HZ))
    return True


def time_queued(hold_s: float, issue: Callable[[], object], look: Callable[[], None]) -> tuple[float, bool]:
    """Return the seconds on the device of what *issue* puts on the current stream, held up for *hold_s* before.

    And whether the stream was free before all was issued: then the seconds hold some of the host's, and should be
    taken again with more time.  *look* is called while the device works.
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
