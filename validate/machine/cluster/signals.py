"""Ends that a process is asked to come to, as exceptions: so that what was made is removed on the way out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["removed_on_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def removed_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt once on SIGINT, SIGTERM or SIGHUP; a second one does not cut the removal short."""
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for one in _SIGNALS:
            before[one] = signal.signal(one, stop)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
