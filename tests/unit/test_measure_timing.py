"""The precision of a median, and how long a call is repeated to reach it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.machine.measure.timing import FEWEST, Effort, median_interval, time_call

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_interval_of_few_samples_is_their_range_and_is_not_called_known() -> None:
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.relative == float("inf")
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


# Conover's table of the median's interval: of n samples, from the k-th smallest to the k-th greatest.
@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (50, 18), (100, 40)])
def test_interval_lies_between_the_published_ranks(n: int, k: int) -> None:
    found = median_interval(random.Random(n).sample(range(1, n + 1), n))
    assert (found.low, found.high) == (k, n + 1 - k)


def test_interval_holds_the_true_median_in_19_of_20_cases() -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(4000):
        found = median_interval([draw.expovariate(1.0) for _ in range(15)])
        held += found.low <= 0.693147 <= found.high
    assert 0.95 <= held / 4000 < 0.985


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60))
def test_median_lies_within_its_interval(samples: list[float]) -> None:
    found = median_interval(samples)
    assert min(samples) <= found.low <= found.median <= found.high <= max(samples)


class Clock:
    """A stopwatch that records the size of each sample; in sample i, calls take ``one_s(i)``."""

    def __init__(self, one_s: Callable[[int], float]) -> None:
        self.one_s = one_s
        self.asked: list[int] = []

    def sample(self, call: Callable[[int], object], calls: int) -> float:
        for i in range(min(calls, 3)):
            call(i)
        self.asked.append(calls)
        return sum(self.one_s(len(self.asked)) for _ in range(calls))


def test_steady_calls_end_at_the_fewest_samples() -> None:
    clock = Clock(lambda _: 10e-6)
    found = time_call(clock, lambda _: None, Effort(warmup_s=0))
    assert found.median == pytest.approx(10e-6)
    assert found.samples == FEWEST
    assert clock.asked[-1] == 32  # at least 200 us per sample


def test_noisy_calls_are_repeated_until_the_interval_is_narrow() -> None:
    draw = random.Random(3)
    found = time_call(Clock(lambda _: draw.gauss(1e-3, 3e-5)), lambda _: None, Effort(warmup_s=0, longest_s=60))
    assert FEWEST < found.samples < 200
    assert found.relative <= 0.01


def test_calls_that_never_settle_end_with_what_is_known() -> None:
    draw = random.Random(3)
    effort = Effort(warmup_s=0, longest_s=60, most_samples=40)
    found = time_call(Clock(lambda _: draw.uniform(1e-3, 3e-3)), lambda _: None, effort)
    assert found.samples == 40
    assert found.relative > 0.01


def test_calls_alone_are_one_a_sample_and_buffers_have_their_turn() -> None:
    alone = Clock(lambda _: 1e-6)
    time_call(alone, lambda _: None, Effort(warmup_s=0), one_by_one=True)
    assert set(alone.asked) == {1}
    rotating = Clock(lambda _: 1e-3)
    time_call(rotating, lambda _: None, Effort(warmup_s=0), at_least=17)
    assert rotating.asked[-1] == 17


class Device:
    """Calls of *one_s*, slower until the device has worked for *cold_s*; each sample also costs *launch_s*."""

    def __init__(self, one_s: float, cold_s: float = 0.0, launch_s: float = 0.0, first_s: float = 0.0) -> None:
        self.one_s, self.cold_s, self.launch_s, self.first_s = one_s, cold_s, launch_s, first_s
        self.worked_s = 0.0

    def sample(self, call: Callable[[int], object], calls: int) -> float:
        time.sleep(self.first_s)  # building and choosing kernels is not the device's work
        self.first_s = 0.0
        took_s = self.launch_s + calls * self.one_s * (2.0 if self.worked_s < self.cold_s else 1.0)
        self.worked_s += took_s
        return took_s


def test_warm_up_is_work_of_the_device_and_does_not_count() -> None:
    """However long the library takes to choose a kernel."""
    device = Device(1e-3, cold_s=0.04, first_s=0.1)
    found = time_call(device, lambda _: None, Effort(warmup_s=0.05))
    assert found.high == pytest.approx(1e-3)


def test_what_computes_hard_works_until_its_clock_has_settled() -> None:
    found = time_call(Device(1e-3, cold_s=0.14), lambda _: None, Effort(), hard=True)
    assert found.high == pytest.approx(1e-3)
    short = Device(1e-5)
    time_call(short, lambda _: None, Effort(), hard=True)
    assert short.worked_s < 0.1  # such short calls do not heat a chip


@pytest.mark.parametrize("one_s", [1.6e-6, 4e-6, 20e-6, 100e-6])
def test_a_sample_lasts_long_against_what_it_costs_itself(one_s: float) -> None:
    """The first run includes a launch of 7 us or more; it must not fix the number of calls per sample."""
    found = time_call(Device(one_s, launch_s=7e-6, first_s=0.06), lambda _: None, Effort())
    assert found.median == pytest.approx(one_s, rel=0.04)
