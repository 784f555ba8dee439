"""Count work in function calls, which, unlike seconds, are the same on every machine.

For hangs without any call there is a time limit so generous that it says nothing of speed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from cProfile import Profile
from types import FrameType

_LOOK_S = 0.5  # seconds of this process between looks at the number of calls


class TooManyCallsError(AssertionError):
    """More calls than allowed; ends a body that might never end."""


class CountedCalls:
    """Counts the calls of Python and C functions in its ``with`` block, at the cost of a profiler written in C."""

    def __init__(self) -> None:
        self._profile = Profile(subcalls=False)

    def __enter__(self) -> CountedCalls:
        self._profile.enable()
        return self

    def __exit__(self, *_: object) -> None:
        self._profile.disable()

    @property
    def so_far(self) -> int:
        """The number of calls that have ended or, of functions that call themselves, begun."""
        return sum(entry.callcount for entry in self._profile.getstats())  # type: ignore[attr-defined]


@contextmanager
def at_most_calls(limit: int) -> Iterator[None]:
    """Fail if the body makes more than *limit* calls of Python and C functions; one without an end is ended."""
    counted = CountedCalls()

    def look(_: int, __: FrameType | None) -> None:
        if counted.so_far > limit:
            raise TooManyCallsError(f"more than {limit} calls")

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK_S, _LOOK_S)
    try:
        with counted:
            yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    look(0, None)


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
