"""A measurement case: the row that it fills, and the work that is timed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from validate.machine.measure.bench import Bench
from validate.machine.measure.statistics import Interval
from validate.machine.measure.timing import Call, Stopwatch

Mode = Literal["stream", "single", "graph"]
"""How calls are issued: back to back; one at a time, host time included; or replayed from a captured graph."""
Columns = dict[str, str | int | float]


class Unavailable(Exception):  # noqa: N818  no error: not every machine has everything
    """A case, or a whole group, cannot run on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class TimedWork:
    """The work to time."""

    call: Call  # runs the work once
    mode: Mode = "stream"  # how calls are issued
    # returns result columns computed from the interval, such as bandwidth; None: only the time
    figures: Callable[[Interval], Mapping[str, Any]] | None = None
    # measures the interval itself, where the loop of ``time_call`` does not fit
    own: Callable[[], Interval] | None = None
    # the stopwatch to use instead of the bench's own; the mode still tells how many calls make a sample
    watch: Stopwatch | None = None
    at_least: int = 1  # fewest calls per sample, so that all buffers are used in turn
    hard: bool = False  # whether the work is compute-bound, so that the device's clock must settle first


@dataclass(frozen=True, slots=True)
class Case:
    """One row to measure."""

    group: str  # ``ops``, ``copies``, ...: the names of ``--only``
    table: str  # file of its row
    # cells that identify the case, unique within a table
    columns: Mapping[str, str | int | float]
    build: Callable[
        [Bench], TimedWork
    ]  # allocates on a bench and returns the work; raises Unavailable, or torch's errors
    # approximate memory use; a case too large for the device is skipped with that reason
    needs_bytes: int = field(default=0)
    # called with this case's row if it was measured before: later cases may have to match its repetitions
    known: Callable[[Mapping[str, str]], object] = lambda _: None

    @property
    def title(self) -> str:
        """Return a short description for messages."""
        return " ".join(f"{value}" for value in self.columns.values() if value != "")
