"""Equal micro-batches: the first are simulated one by one, most others as a single activity (:class:`Batches`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simulator.plan.plan import Activity, PlanBuilder
from simulator.records import dataclass, field
from simulator.training.worker import SkippedMicroBatches

_SAME = 1e-9  # relative: two periods that differ only by rounding


@dataclass(frozen=True, slots=True)
class Batches:
    """``count`` micro-batches; if ``period_s`` is known, those between the first ``explicit`` and the last are skipped.

    ``period_s`` is the time by which each stream advances per skipped micro-batch, in seconds.
    """

    count: int
    explicit: int = 0
    period_s: Mapping[str, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of the micro-batches that are written out."""
        if not self.period_s:
            return iter(range(self.count))
        return iter((*range(self.explicit), self.count - 1))

    @property
    def last(self) -> int:
        """The number of the last micro-batch."""
        return self.count - 1

    def skip(self, builder: PlanBuilder, before: int) -> Mapping[str, int]:
        """Add the skipped micro-batches if *before* is the last one; return their activity on each stream, or {}."""
        left_out = self.count - 1 - self.explicit
        if not self.period_s or before != self.last or left_out <= 0:
            return {}
        about = SkippedMicroBatches(left_out, self.explicit - 1)
        return {
            stream: builder.work(f"{left_out} micro-batches more", "", left_out * seconds, stream=stream, about=about)
            for stream, seconds in self.period_s.items()
        }


def periods_s(tasks: Sequence[Activity], ends_s: Sequence[float], count: int) -> dict[str, float] | None:
    """Return the seconds by which each stream advanced in the last of the first *count* micro-batches.

    Returns None unless it advanced equally in the one before.  *ends_s* are the ends of *tasks*, whose ``about`` has
    the micro-batch.
    """
    last: dict[str, list[float]] = {}
    for task, end_s in zip(tasks, ends_s, strict=True):
        number = getattr(task.about, "micro_batch", None)
        if number is not None and number < count:
            last.setdefault(task.stream, [0.0] * count)[number] = end_s
    found = {}
    for stream, ends in last.items():
        now_s, before_s = ends[-1] - ends[-2], ends[-2] - ends[-3]
        if abs(now_s - before_s) > _SAME * ends[-1]:
            return None
        found[stream] = now_s
    return found
