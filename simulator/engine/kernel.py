"""The event clock: the few calls of SimPy that the engine needs, and the count of its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy
from simpy.events import Event
from simpy.resources.resource import Request

__all__ = ["Kernel", "Queue"]

_NORMAL, _LATE = 1, 2  # SimPy runs events of one instant by priority, then in order of scheduling


class Kernel:
    """Simulated time.  ``events`` counts what was executed."""

    def __init__(self) -> None:
        self._env = simpy.Environment()
        self.events = 0

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return float(self._env.now)

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Run *action* at *time_s*, or now if that is past."""
        self._schedule(max(0.0, time_s - self._env.now), action, _NORMAL)

    def call_last(self, action: Callable[[], None]) -> None:
        """Run *action* at this instant, after all else that is due at it."""
        self._schedule(0.0, action, _LATE)

    def queue(self, slots: int) -> Queue:
        """Return a queue with so many slots."""
        return Queue(self, simpy.Resource(self._env, slots))

    def _schedule(self, delay_s: float, action: Callable[[], None], priority: int) -> None:
        event = Event(self._env)
        event._ok, event._value = True, None
        self.on(event, action)
        self._env.schedule(event, priority=priority, delay=delay_s)  # type: ignore[arg-type]

    def on(self, event: Event, action: Callable[[], None]) -> None:
        """Run *action* when *event* happens."""

        def run(_: Event) -> None:
            self.events += 1
            action()

        assert event.callbacks is not None
        event.callbacks.append(run)

    def run(self) -> None:
        """Run until nothing is left to do."""
        self._env.run()


class Queue:
    """Slots that are given out in the order in which they were asked for (SimPy's ``Resource``)."""

    def __init__(self, kernel: Kernel, slots: simpy.Resource) -> None:
        self._kernel = kernel
        self._slots = slots
        self._held: deque[Request] = deque()

    def take(self, action: Callable[[], None]) -> None:
        """Run *action* once a slot is free, and hold it."""
        request = self._slots.request()

        def granted() -> None:
            self._held.append(request)
            action()

        self._kernel.on(request, granted)

    def give(self) -> None:
        """Give back the slot that has been held longest; where none is held, nothing happens."""
        if self._held:
            self._slots.release(self._held.popleft())
