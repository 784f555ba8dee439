"""How much work something is, counted in calls: the same on every machine, which seconds are not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooManyCallsError(AssertionError):
    """More calls than were allowed: ends what would not end."""


@contextmanager
def at_most_calls(limit: int) -> Iterator[None]:
    """Fail where the body makes more than *limit* calls of functions, Python's and C's."""
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
