"""Equal micro-batches, and the orders of their forward and backward passes in a pipeline's stages.

The first micro-batches are simulated one by one, most others as a single activity (:class:`Batches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from simulator.errors import refused
from simulator.plan.plan import Activity, PlanBuilder
from simulator.questions.layout import Layout
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


class Pass(NamedTuple):
    """One pass of a micro-batch through part ``chunk`` of a stage.

    ``weights`` computes the gradients of parameters, if these are separate from the gradients of activations.
    """

    kind: Literal["forward", "backward", "weights"]
    chunk: int
    micro_batch: int


def order_of(layout: Layout, stage: int, count: int) -> list[Pass]:
    """Return the passes of *stage* in order, over *count* micro-batches.

    - ``gpipe``: all forward passes, then all backward passes in reverse order (Huang et al., NeurIPS 2019).
    - ``1f1b``: after the pipeline fill, forward and backward passes alternate (PipeDream-flush), with interleaved
      virtual stages (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021,
      section 2.2).
    - ``zero-bubble``: as 1f1b, with the gradients of parameters deferred to times when a stage would wait (ZB-H1; Qi
      et al., ICLR 2024).

    Raises InputError if there are virtual stages and *count* is not a multiple of the stages.
    """
    if layout.vp > 1 and count % layout.pp:
        near = " or ".join(str(n) for n in (count // layout.pp * layout.pp, -(-count // layout.pp) * layout.pp) if n)
        why = f"takes turns among {layout.pp} micro-batches at a time, and there are {count}; {near} would do"
        raise refused("layout", f"vp={layout.vp} {why}")
    forward, backward = ([_virtual(layout, n, back) for n in range(count * layout.vp)] for back in (False, True))
    if layout.schedule == "gpipe":
        backward = backward[::-1]
    filled, apart = _filled(layout, stage, count), layout.schedule == "zero-bubble"
    found = [Pass("forward", *at) for at in forward[:filled]]
    put_off: list[tuple[int, int]] = []
    for number, at in enumerate(backward):
        following = forward[filled + number : filled + number + 1]
        found += [*(Pass("forward", *each) for each in following), Pass("backward", *at)]
        put_off += [at] if apart else []
        if len(put_off) > (stage if filled + number + 1 < len(forward) else 0):
            found.append(Pass("weights", *put_off.pop(0)))
    return found + [Pass("weights", *at) for at in put_off]


def _filled(layout: Layout, stage: int, count: int) -> int:
    """Return the number of forward passes in the pipeline fill, less the one right before the first backward pass."""
    if layout.schedule == "gpipe":
        return count
    if layout.vp == 1:
        return min(count, layout.pp - stage - 1)
    if count == layout.pp:
        return count * layout.vp
    return min(count * layout.vp, 2 * (layout.pp - stage - 1) + (layout.vp - 1) * layout.pp)


def _virtual(layout: Layout, number: int, backward: bool) -> tuple[int, int]:
    """Return the chunk and micro-batch of pass *number* with interleaved chunks."""
    turn = layout.pp * layout.vp
    chunk = number % turn // layout.pp
    return (layout.vp - 1 - chunk if backward else chunk), number // turn * layout.pp + number % layout.pp


def in_flight(layout: Layout, stage: int, count: int) -> float:
    """Return the micro-batches whose activations *stage* holds at once; a single chunk counts as ``1 / vp``.

    Without bubbles, as many more wait for the gradients of parameters as there are stages before this one.
    """
    waiting = stage if layout.schedule == "zero-bubble" else 0
    return min(count * layout.vp, _filled(layout, stage, count) + 1 + waiting) / layout.vp
