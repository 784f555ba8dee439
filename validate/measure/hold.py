"""Keep a stream busy for a moment, so that what is issued meanwhile waits in its queue."""

from __future__ import annotations

import torch

__all__ = ["hold_up"]

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
