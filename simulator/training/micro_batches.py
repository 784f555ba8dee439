"""Micro-batches one after the other (:class:`Batches`), and two at once (docs/decisions/parallelism.md)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from simulator.plan.plan import Activity, PlanBuilder
from simulator.records import dataclass, field, replace
from simulator.step.launch import DeviceWork, Launch
from simulator.training.worker import SkippedMicroBatches

_SAME = 1e-9  # relative: two periods that differ only by rounding


@dataclass(frozen=True, slots=True)
class Batches:
    """``count`` micro-batches; with ``period_s``, those between the first ``explicit`` and the last are skipped."""

    count: int
    explicit: int = 0
    period_s: Mapping[str, float] = field(default_factory=dict)  # by which each stream advances per skipped one

    def __iter__(self) -> Iterator[int]:
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
        add = partial(builder.work, f"{left_out} micro-batches more", "", about=about)
        return {stream: add(left_out * seconds, stream=stream) for stream, seconds in self.period_s.items()}


def periods_s(tasks: Sequence[Activity], ends_s: Sequence[float], count: int) -> dict[str, float] | None:
    """Return by how much each stream advanced in the last of *count* micro-batches, or None if not evenly."""
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


_T = TypeVar("_T")


def in_turns(backward: Iterable[_T], forward: Iterable[_T], launch_of: Callable[[_T], Launch]) -> list[_T]:
    """Return both passes as one, each in turn up to and with its next exchanges of experts."""
    both = zip_longest(_stretches(backward, launch_of), _stretches(forward, launch_of), fillvalue=())
    return [each for turn in both for stretch in turn for each in stretch]


def _stretches(items: Iterable[_T], launch_of: Callable[[_T], Launch]) -> Iterator[list[_T]]:
    found: list[_T] = []
    was_sent = False
    for each in items:
        is_sent = _is_sent(launch_of(each))
        if was_sent and not is_sent:
            yield found
            found = []
        found.append(each)
        was_sent = is_sent
    yield found


def put_off(
    passes: Sequence[tuple[Launch, ...]], weights: Sequence[Mapping[str, DeviceWork]]
) -> list[tuple[Launch, ...]]:
    """Return *passes* with gradients of parameters, of kernels *weights* by layer, after the next exchange."""
    found: list[tuple[Launch, ...]] = []
    later: list[tuple[Launch, ...]] = []
    for number, same in enumerate(passes):
        first = same[0]
        works = [each.get(first.layer) for each in weights]
        rests = [_without(issue.work, work) for issue, work in zip(same, works, strict=True)]
        if first.part != "backward" or first.again or first.name != first.layer or None in rests:
            found.append(same)
        else:
            halves = list(zip(same, rests, works, strict=True))
            found.append(tuple(_with(issue, rest) for issue, rest, _ in halves if rest is not None))
            put = [_with(issue, work) for issue, _, work in halves if work is not None]
            later.append(tuple(replace(each, name=f"{each.name} (weights)", late=True, needs=()) for each in put))
        following = passes[number + 1][0] if number + 1 < len(passes) else None
        if _is_sent(first) and (following is None or not _is_sent(following)):
            found += later
            later = []
    return found + later


def _without(work: DeviceWork, others: DeviceWork | None) -> DeviceWork | None:
    """Return *work* without the kernels of *others*; None if it has not got them all."""
    if others is None:
        return None
    rest = list(zip(work.kinds, work.costs, strict=True))
    for kernel in zip(others.kinds, others.costs, strict=True):
        if kernel not in rest:
            return None
        rest.remove(kernel)
    kinds, costs = tuple(kind for kind, _ in rest), tuple(cost for _, cost in rest)
    return DeviceWork(kinds, costs, sum(cost.time_s for cost in costs))


def _with(issue: Launch, work: DeviceWork) -> Launch:
    """Return the part of *issue* that is *work*, with a share of the host's time for each kernel."""
    share = len(work.costs) / len(issue.work.costs)
    return replace(issue, work=work, host_s=share * issue.host_s)


def _is_sent(issue: Launch) -> bool:
    return issue.sent is not None and issue.sent.axis == "ep"


def turns_of(passes: Sequence[Launch], numbers: Sequence[int], *, overlaps: bool) -> Iterator[list[tuple[int, int]]]:
    """Yield the order of *passes* as (micro-batch, place); if it *overlaps*, forward beside backward ones."""
    places = (place for place, issue in enumerate(passes) if overlaps and issue.part == "backward")
    first = next(places, len(passes))
    before: list[tuple[int, int]] = []
    for number in numbers:
        yield in_turns(before, [(number, place) for place in range(first)], lambda each: passes[each[1]])
        before = [(number, place) for place in range(first, len(passes))]
    if before:
        yield before
