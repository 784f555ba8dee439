"""The event clock: the few calls of SimPy that the engine needs, and the count of its events."""

from __future__ import annotations

from collections.abc import Callable

import simpy
from simpy.events import Event

__all__ = ["Kernel"]

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

    def _schedule(self, delay_s: float, action: Callable[[], None], priority: int) -> None:
        event = Event(self._env)
        event._ok, event._value = True, None

        def run(_: Event) -> None:
            self.events += 1
            action()

        assert event.callbacks is not None
        event.callbacks.append(run)
        self._env.schedule(event, priority=priority, delay=delay_s)  # type: ignore[arg-type]

    def run(self) -> None:
        """Run until nothing is left to do."""
        self._env.run()
