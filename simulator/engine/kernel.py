"""The event clock: SimPy's environment, with shorter ways through it, and a count of events.

It reads and writes what SimPy keeps for itself (``_queue``, ``_eid``, ``_now``); docs/decisions/design.md says why, and
a test compares its order with plain SimPy's.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappush

import simpy
from simpy.events import Event
from simpy.resources.resource import Request

_NORMAL = 1  # at one instant, SimPy runs events by priority, then in scheduling order
_NEVER: tuple[float, int, int, Callable[[], None]] = (float("inf"), _NORMAL, 0, lambda: None)


class _Due:
    """What SimPy runs of an event that has happened and that nothing waits for, without the rest of one."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, run: Callable[[Event], None]) -> None:
        self.callbacks = (run,)


class SimulationClock(simpy.Environment):
    """The simulated clock: ``now_s`` seconds since the start.  ``events`` counts the executed events."""

    def __init__(self) -> None:
        super().__init__(initial_time=0.0)
        self._next = _NEVER  # an event beside SimPy's queue, which it need not pass through
        self._last: deque[Callable[[], None]] = deque()
        self.now_s = 0.0
        self.events = 0

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Run *action* at *time_s*, or now if that time has passed."""
        delay_s = time_s - self.now_s
        due = _Due(partial(self.run_now, action))
        self.schedule(due, _NORMAL, delay_s if delay_s > 0.0 else 0.0)  # type: ignore[arg-type]

    def call_next(self, time_s: float, action: Callable[[], None]) -> None:
        """Run *action* as :meth:`call_at` does, faster if it is the next event."""
        if self._next is not _NEVER:
            at_s, priority, number, other = self._next
            heappush(self._queue, (at_s, priority, number, _Due(partial(self.run_now, other))))  # type: ignore[misc]
        delay_s = time_s - self.now_s
        self._next = (self.now_s + (delay_s if delay_s > 0.0 else 0.0), _NORMAL, next(self._eid), action)

    def call_last(self, action: Callable[[], None]) -> None:
        """Run *action* at this instant, after all other events due at it."""
        self._last.append(action)

    def step(self) -> None:
        """Run what comes last at this instant, unless another event is due at it, and then the next event."""
        queue, last, now_s = self._queue, self._last, self.now_s
        while last and self._next[0] > now_s and (not queue or queue[0][0] > now_s):
            self.events += 1
            last.popleft()()
        beside = self._next
        if beside is _NEVER or (queue and queue[0] < beside):  # type: ignore[operator]  # numbers differ
            super().step()
        else:
            self._next, self._now = _NEVER, beside[0]
            self.run_now(beside[3])

    def run_now(self, action: Callable[[], None], _: object = None) -> None:
        """Run *action* at the instant of an event that happens."""
        self.events += 1
        self.now_s = self._now
        action()


class Queue:
    """Slots that are granted in the order of requests (SimPy's ``Resource``)."""

    def __init__(self, kernel: SimulationClock, slots: int) -> None:
        self._kernel = kernel
        self._slots = simpy.Resource(kernel, slots)
        self._held: deque[Request] = deque()

    def take(self, action: Callable[[], None]) -> None:
        """Run *action* once a slot is free, and hold the slot."""
        request = self._slots.request()

        def granted() -> None:
            self._held.append(request)
            action()

        assert request.callbacks is not None
        request.callbacks.append(partial(self._kernel.run_now, granted))

    def give(self) -> None:
        """Release the slot that has been held longest; do nothing if none is held."""
        if self._held:
            self._slots.release(self._held.popleft())
