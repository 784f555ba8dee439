"""What one case of a measurement is: the row it gives, and the work that is timed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from validate.machine.measure.bench import Bench
from validate.machine.measure.statistics import Interval
from validate.machine.measure.timing import Call, Stopwatch

__all__ = ["Case", "Columns", "Mode", "Unavailable", "Work"]

Mode = Literal["stream", "single", "graph"]
"""How calls are issued: one after the other; each alone, the host's part in it; from a captured graph."""
Columns = dict[str, str | int | float]


class Unavailable(Exception):  # noqa: N818  no error: not every machine has everything
    """A case, or a whole group, cannot run on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is timed."""

    call: Call  # runs it once
    mode: Mode = "stream"  # how calls are issued
    # further columns from what was measured, bandwidth for example; the time alone where None
    figures: Callable[[Interval], Mapping[str, Any]] | None = None
    # measures by itself and returns the interval, where the loop of ``time_call`` does not fit
    own: Callable[[], Interval] | None = None
    # what times the calls, where the bench's own stopwatch does not fit; the mode tells how many at a time
    watch: Stopwatch | None = None
    at_least: int = 1  # calls that a sample must hold, so that all buffers have their turn
    hard: bool = False  # whether it computes as hard as the device can: then its clock must settle first


@dataclass(frozen=True, slots=True)
class Case:
    """One row to be measured."""

    group: str  # ``ops``, ``copies``, ...: what ``--only`` names
    table: str  # the file its row goes to
    # what the row says of it before it is measured; no two cases of a table have the same
    columns: Mapping[str, str | int | float]
    build: Callable[[Bench], Work]  # allocates on a bench and returns the work; raises Unavailable, or torch's errors
    # memory that it takes about; a case that is too large for the device is left out with that reason
    needs_bytes: int = field(default=0)
    # told the row of this case where it was measured before: what follows may have to be of the same amount
    known: Callable[[Mapping[str, str]], object] = lambda _: None

    @property
    def title(self) -> str:
        """A few words for messages."""
        return " ".join(f"{value}" for value in self.columns.values() if value != "")
