"""Whether the input feeds a step, and its limiter if not: :class:`InputRun`."""

from simulator.engine.timeline import Timeline
from simulator.host.input import BatchLoad, Loading
from simulator.questions.input import InputQuestion
from simulator.records import dataclass

STEP = "step"
FED = 1.01  # a step at most this much longer than with ready input counts as fed


@dataclass(frozen=True, slots=True)
class Cure:
    """A change of the input in words of ``--input``, and the step time with it."""

    change: str
    step_time_s: float


@dataclass(frozen=True, slots=True)
class InputRun:
    """Consecutive steps with their input, in the steady state.

    ``period_s`` is the time from one step to the next in the last epoch, ``first_period_s`` in the first, when nothing
    is cached; ``first_s`` and ``later_s`` are the durations of such epochs from their start, 0 if the number of samples
    is unknown.  ``filled_s`` is when the first step can start, ``step_s`` the step time with ready input.  ``limits_s``
    are the times of each stage alone in the last epoch, the longest first; ``cached_share`` is the cached fraction of
    the set in that epoch.  ``buffers_bytes`` of batches wait in host memory, and ``kept_bytes`` of the set stay there.
    ``cure`` is the cheapest combination of changes that feeds the step, or the one that feeds it best; ``cures`` are
    single changes.
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
    limits_s: dict[str, float]
    cached_share: float
    buffers_bytes: float
    kept_bytes: float
    memory_bytes: float
    timeline: Timeline
    cures: tuple[Cure, ...] = ()
    cure: Cure | None = None

    @property
    def bound(self) -> str:
        """The stage that a step waits for: one of its input, or ``step`` itself."""
        if self.period_s <= self.step_s * FED:
            return STEP
        return next(name for name in self.limits_s if name != STEP)

    @property
    def is_slower(self) -> bool:
        """Whether a step waits for its input."""
        return self.bound != STEP

    @property
    def idle_share(self) -> float:
        """Fraction of the time in which the devices wait for input."""
        return max(0.0, 1.0 - self.step_s / self.period_s) if self.period_s else 0.0

    @property
    def total_s(self) -> float:
        """Seconds of all epochs, each with its evaluation."""
        return self.first_s + (self.asked.epochs - 1) * self.later_s + self.asked.epochs * self.evaluation_s


def step_ends(timeline: Timeline) -> list[float]:
    """Return the end of each step, in seconds."""
    return [span.end_s for task, span in timeline.ran(Loading) if task.about.what == "end"]


def begins_of(timeline: Timeline) -> float:
    """Return the time in seconds at which the host starts to launch the first step."""
    return next(span.start_s for task, span in timeline.ran(Loading) if task.about.what == "issue")
