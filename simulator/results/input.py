"""Whether its input feeds a step, and what bounds it if not: :class:`InputRun`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.engine.timeline import Timeline
from simulator.questions.input import InputQuestion

if TYPE_CHECKING:
    from simulator.host.input_costs import BatchLoad

__all__ = ["STEP", "Cure", "InputRun", "Limit", "begins_of", "ends_of"]

STEP = "step"
_EQUAL = 1.01  # a step that is hardly longer than by itself is not bound by its input


@dataclass(frozen=True, slots=True)
class Limit:
    """What one thing alone would take for a step: ``step``, or a stage of the input."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Cure:
    """A change of the input in the words of ``--input``, and the step's time with it."""

    change: str
    step_time_s: float


@dataclass(frozen=True, slots=True)
class InputRun:
    """Steps one after the other with their input, once they are steady.

    ``period_s`` is from one step to the next in the last epoch, ``first_period_s`` in the first, in which nothing is in
    memory; ``first_s`` and ``later_s`` are such epochs from their start, 0 where the samples of the set are not said.
    ``filled_s`` is when the first step can begin.  ``step_s`` is a step whose input is there.  ``limits`` are what each
    stage alone would take, of the last epoch, the longest first; ``cached_share`` is what of the set it finds in
    memory.  ``buffers_bytes`` are batches that wait in the host's memory, ``kept_bytes`` what of the set lies there.
    ``cure`` is what feeds the step at least cost, or feeds it best; ``cures`` are changes by themselves.
    """

    asked: InputQuestion
    disks: tuple[str, ...]
    load: BatchLoad
    period_s: float
    first_period_s: float
    filled_s: float
    step_s: float
    epoch_steps: int
    first_s: float
    later_s: float
    evaluation_s: float
    limits: tuple[Limit, ...]
    cached_share: float
    buffers_bytes: float
    kept_bytes: float
    memory_bytes: float
    timeline: Timeline
    cures: tuple[Cure, ...] = ()
    cure: Cure | None = None

    @property
    def bound(self) -> str:
        """What a step waits for: a stage of its input, or ``step`` where that is its own time."""
        if self.period_s <= self.step_s * _EQUAL:
            return STEP
        return next(limit.name for limit in self.limits if limit.name != STEP)

    @property
    def idle_share(self) -> float:
        """Share of the time for which the devices wait for their input."""
        return max(0.0, 1.0 - self.step_s / self.period_s) if self.period_s else 0.0

    @property
    def total_s(self) -> float:
        """Seconds of all epochs, each with its evaluation."""
        return self.first_s + (self.asked.epochs - 1) * self.later_s + self.asked.epochs * self.evaluation_s


def ends_of(timeline: Timeline) -> list[float]:
    """Return when each step ended."""
    from simulator.host.input_plan import Loading

    return [
        span.end_s
        for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True)
        if isinstance(task.about, Loading) and task.about.what == "end"
    ]


def begins_of(timeline: Timeline) -> float:
    """Return when the first step began to be issued."""
    from simulator.host.input_plan import Loading

    return next(
        span.start_s
        for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True)
        if isinstance(task.about, Loading) and task.about.what == "issue"
    )
