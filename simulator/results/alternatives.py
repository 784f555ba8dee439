"""Faster alternatives: the same step with one change, simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from simulator.errors import InputError
from simulator.records import dataclass

NOT_TRIED = "no changes tried: each takes as long to simulate as this step; ask for one, as --precision or --batch"

WORTH_SAYING = 1.03  # least speed-up worth mentioning


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change, with a batch of ``batch`` and the time for as many samples as the original step has."""

    change: str
    step_time_s: float
    fits: bool
    batch: int


class PossibleChange(NamedTuple):
    """A change in words, its batch, and a function of the most seconds that are of interest.

    It returns the seconds of a step and whether it fits in memory, or None if it takes longer.
    """

    words: str
    batch: int
    run: Callable[[float], tuple[float, bool] | None]


def faster(step_time_s: float, batch: int, ways: Iterable[PossibleChange]) -> tuple[Alternative, ...]:
    """Return the *ways* that are faster than *step_time_s* for *batch* samples, the best first.

    A way that the device lacks figures for is left out; one that does not fit in memory is marked so.  Larger batches
    are compared at equal numbers of samples.
    """
    found: list[Alternative] = []
    for way in ways:
        try:
            outcome = way.run(step_time_s / WORTH_SAYING * way.batch / batch)
        except InputError:
            continue
        if outcome is None:
            continue
        time_s, fits = outcome[0] * batch / way.batch, outcome[1]
        if time_s * WORTH_SAYING < step_time_s:
            found.append(Alternative(way.words, time_s, fits, way.batch))
    return tuple(sorted(found, key=lambda other: round(other.step_time_s, 12)))
