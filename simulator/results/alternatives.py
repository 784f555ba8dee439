"""What would be faster: the same step with one thing changed, simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from simulator.errors import InputError
from simulator.results.step import Alternative, StepResult
from simulator.step.changes import Change
from simulator.step.options import StepOptions

__all__ = ["with_alternatives"]

_WORTH_SAYING = 1.03  # times as fast


def with_alternatives(
    result: StepResult,
    batch: int,
    changes: Iterable[Change],
    run: Callable[[StepOptions, int], StepResult],
    others: Mapping[str, Callable[[], StepResult]],
) -> StepResult:
    """Return *result* with the changes that make it faster, the best first.

    *run* simulates *changes* of options and other batch sizes, *others* are other ways to compute the network, by
    their words.  A change that the device has no figures for is left out; one that does not fit in memory says
    so.  A larger batch is compared at equal samples.
    """
    found: list[Alternative] = []
    ways: list[tuple[str, Callable[[], StepResult], int]] = [(words, way, batch) for words, way in others.items()]
    for change in changes:
        if change.time:
            ways.append((change.words, partial(run, change.applied(result.options), batch), batch))
    ways.append((f"--batch {2 * batch}", partial(run, result.options, 2 * batch), 2 * batch))
    for words, way, size in ways:
        try:
            other = way()
        except InputError:
            continue
        step_time_s = other.step_time_s * batch / size
        if step_time_s * _WORTH_SAYING < result.step_time_s:
            found.append(Alternative(words, step_time_s, other.memory.fits, size))
    found.sort(key=lambda other: round(other.step_time_s, 12))
    return replace(result, alternatives=tuple(found))
