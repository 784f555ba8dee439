"""Count work in function calls, which, unlike seconds, are the same on every machine.

For hangs without any call there is a time limit so generous that it says nothing of speed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooManyCallsError(AssertionError):
    """More calls than allowed; ends a body that might never end."""


@contextmanager
def at_most_calls(limit: int) -> Iterator[None]:
    """Fail if the body makes more than *limit* calls of Python and C functions."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1
            if calls > limit:
                raise TooManyCallsError(f"more than {limit} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


_HANG_S = 300


@contextmanager
def hang_limit() -> Iterator[None]:
    """Fail if the body waits for something that never comes."""

    def end(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"still waiting after {_HANG_S} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
