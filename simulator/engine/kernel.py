"""The event clock: the few parts of SimPy that the engine needs, and a count of events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import simpy
from simpy.events import Event
from simpy.resources.resource import Request

_NORMAL, _LATE = 1, 2  # at one instant, SimPy runs events by priority, then in scheduling order


class _Due:
    """What SimPy runs of an event that has happened and that nothing waits for, without the rest of one."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, run: Callable[[Event], None]) -> None:
        self.callbacks = (run,)


class SimulationClock:
    """The simulated clock: ``now_s`` seconds since the start.  ``events`` counts the executed events."""

    def __init__(self) -> None:
        self._env = simpy.Environment(initial_time=0.0)
        self._last: deque[Callable[[], None]] = deque()
        self._is_late = False  # whether an event after all others of this instant will run them
        self.now_s = 0.0
        self.events = 0

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Run *action* at *time_s*, or now if that time has passed."""
        delay_s = time_s - self.now_s
        due = _Due(partial(self.run_now, action))
        self._env.schedule(due, _NORMAL, delay_s if delay_s > 0.0 else 0.0)  # type: ignore[arg-type]

    def call_last(self, action: Callable[[], None]) -> None:
        """Run *action* at this instant, after all other events due at it."""
        self._last.append(action)

    def queue(self, slots: int) -> Queue:
        """Return a queue with the given number of *slots*."""
        return Queue(self, simpy.Resource(self._env, slots))

    def run_now(self, action: Callable[[], None], _: Event) -> None:
        """Run *action* at the instant of an event that happens."""
        self.events += 1
        self.now_s = self._env.now
        action()
        if self._last:
            self._run_last()

    def _run_late(self, _: Event) -> None:
        self._is_late = False
        self._run_last()

    def _run_last(self) -> None:
        """Run what comes last at this instant: now, or after the other events that are due at it."""
        while self._last and self._env.peek() > self.now_s:
            self.events += 1
            self._last.popleft()()
        if self._last and not self._is_late:
            self._is_late = True
            self._env.schedule(_Due(self._run_late), _LATE, 0.0)  # type: ignore[arg-type]

    def run(self) -> None:
        """Run until no events are left."""
        self._run_last()
        self._env.run()


class Queue:
    """Slots that are granted in the order of requests (SimPy's ``Resource``)."""

    def __init__(self, kernel: SimulationClock, slots: simpy.Resource) -> None:
        self._kernel = kernel
        self._slots = slots
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
