"""Collectives: sizes and bandwidths as in nccl-tests, measured with gloo; failures of a group."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clocked_cuda import clocked_bench  # noqa: E402
from validate.machine.measure import ranks  # noqa: E402
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import Unavailable, cases_of  # noqa: E402
from validate.machine.measure.cases import collectives  # noqa: E402
from validate.machine.measure.ranks import RankProcesses, RanksFailed  # noqa: E402
from validate.machine.measure.timing import Effort, median_interval  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
QUICK = Effort(interval=0.5, warmup_s=0.0, longest_s=0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(torch.device("cpu"), "cpu", 1 << 30, 1 << 20, tmp_path)


def test_without_two_gpus_there_are_none(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="here is none"):
        cases_of("collectives", bench)
    with pytest.raises(Unavailable, match="there is one GPU"):
        collectives.cases(clocked_bench(monkeypatch, tmp_path))


def test_all_gpus_come_first_and_sizes_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case.columns for case in collectives.cases(clocked_bench(monkeypatch, tmp_path, count=6))]
    assert len({tuple(columns.items()) for columns in cases}) == len(cases)
    groups = [int(columns["group_size"]) for columns in cases]
    assert list(dict.fromkeys(groups)) == [6, 2, 4]
    assert {columns["gpu_set"] for columns in cases if columns["group_size"] == 4} == {"0-3"}
    for columns in cases:
        if columns["collective"] in ("all_gather", "reduce_scatter", "all_to_all"):
            assert int(columns["bytes"]) % (4 * int(columns["group_size"])) == 0
            assert int(columns["bytes"]) > 0
    most = max(int(columns["bytes"]) for columns in cases if columns["collective"] == "all_reduce")
    assert most == 1 << 30


def test_a_gpu_that_was_named_is_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="--device names one GPU"):
        collectives.cases(replace(clocked_bench(monkeypatch, tmp_path, count=8), alone=True))


def _kept(rank: int, count: int) -> list[tuple[bool, int]]:
    """Return whether sums stay finite over many calls, and how many values differ, for both reductions."""
    found = []
    for name in ("all_reduce", "reduce"):
        make = collectives._COLLECTIVES[name]
        made: list[Any] = []

        def keeping(rank: int, count: int, numbers: Any, make: Any = make, made: list[Any] = made) -> Any:
            return make(rank, count, lambda share=1: made.append(numbers(share)) or made[-1])

        collectives._COLLECTIVES[name] = keeping
        long = Effort(
            interval=0.0, sample_s=1.0, warmup_s=0.0, longest_s=60.0, most_samples=6
        )  # as many calls as a sample may have
        assert collectives._time_on_rank(rank, count, name, 256, long).samples * collectives.MOST_CALLS > 256
        found.append((bool(made[0].isfinite().all()), len(made[0].unique())))
    return found


def test_numbers_are_chance_and_sums_of_sums_stay_finite() -> None:
    with closing(RankProcesses(2, cuda=False)) as group:
        for finite, different in (pair for found in group.run(_kept) for pair in found):
            assert finite
            assert different > 32


@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 10])
def test_a_sample_of_sums_stays_within_a_floats_range(count: int) -> None:
    first = collectives._first_size(count)
    assert first > 2.0**-126
    assert 8 * first * count**collectives.MOST_CALLS < torch.finfo(torch.float32).max


@pytest.mark.parametrize(
    ("name", "count", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 4, 0.75), ("broadcast", 8, 1.0)],
)
def test_bandwidths_are_those_of_nccl_tests(name: str, count: int, factor: float) -> None:
    found = collectives.figures_of(name, 1_000_000, count, median_interval([1e-3] * 6))
    assert found["algbw_GBps"] == pytest.approx(1.0)
    assert found["busbw_GBps"] == pytest.approx(factor)


def test_all_collectives_run_between_two_ranks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "_EFFORT", QUICK)
    measured = {}
    for case in collectives.group_cases(bench, [2], most_bytes=1024):
        if case.columns["bytes"] != 1024:
            continue
        work = case.build(bench)
        assert work.own is not None
        measured[case.columns["collective"]] = work.own()
    assert set(measured) == set(collectives._COLLECTIVES)
    assert all(0 < interval.median < 1 and interval.samples >= 6 for interval in measured.values())


def test_a_collective_moves_what_it_says() -> None:
    """Closed forms for two ranks, using a fake group of two within this process."""
    made: list[Any] = []

    def numbers(share: int = 1) -> Any:
        made.append(torch.ones(24 // share))
        return made[-1]

    for name, shapes in {
        "all_reduce": [24],
        "all_gather": [6, 24],
        "reduce_scatter": [24, 6],
        "all_to_all": [24, 24],
        "broadcast": [24],
        "sendrecv": [24, 24],
        "reduce": [24],
    }.items():
        made.clear()
        collectives._COLLECTIVES[name](0, 4, numbers)
        assert [len(x) for x in made] == shapes, name


class _FailingRanks:
    started = 0

    def __init__(self, count: int, *, cuda: bool, start_s: float) -> None:
        type(self).started += 1
        self.count, self.alive = count, True

    def run(self, *_: Any, **__: Any) -> list[Any]:
        self.alive = False
        raise RanksFailed(f"time_on_rank: rank 1 died of signal {8 + self.started}")

    def close(self) -> None:
        self.alive = False


def test_a_group_that_fails_is_started_anew_and_given_up_at_the_third_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "RankProcesses", _FailingRanks)
    monkeypatch.setattr(_FailingRanks, "started", 0)
    reasons = []
    for case in collectives.group_cases(bench, [2], most_bytes=32):
        work = case.build(bench)
        assert work.own is not None
        with pytest.raises(Unavailable) as reason:
            work.own()
        reasons.append(str(reason.value))
    assert _FailingRanks.started == 3
    assert reasons[0] == "time_on_rank: rank 1 died of signal 9"
    assert len(reasons) > 4
    assert all(reason.startswith("given up after faults") for reason in reasons[3:])


def test_a_group_that_does_not_start_is_given_up_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def never(count: int, **_: Any) -> Any:
        starts.append(count)
        raise RanksFailed("start: no answer of rank 1 within 120 s")

    monkeypatch.setattr(ranks, "RankProcesses", never)
    for case in collectives.group_cases(bench, [2, 3], most_bytes=32):
        work = case.build(bench)
        assert work.own is not None
        with pytest.raises(Unavailable, match="no answer of rank 1"):
            work.own()
    assert starts == [2, 3]


def test_how_long_is_measured_follows_from_the_slowest_rank_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a single rank decides nothing: equal maxima lead to the same calls."""
    asked: list[int] = []

    def sample(call: Any, calls: int, token: Any) -> tuple[float, bool]:
        asked.append(calls)
        return calls * 50e-6, len(asked) == 3

    monkeypatch.setattr(collectives, "_sample_cpu", sample)
    effort = Effort(interval=0.01, sample_s=200e-6, warmup_s=1e-3, longest_s=1.0)
    interval = collectives.time_together(lambda _: None, effort, cuda=False)
    assert interval.median == pytest.approx(50e-6)
    assert not interval.ran_dry  # except during warm-up
    assert asked[:2] == [1, 1]
    assert set(asked[2:]) == {4}
    assert len(asked) == 2 + 5 + 6  # two first runs, 1 ms of warm-up, six samples that agree


def test_a_noisy_collective_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1e-3, 1e-3] + [1e-3, 3e-3] * 1000)
    monkeypatch.setattr(collectives, "_sample_cpu", lambda call, calls, token: (calls * next(times), True))
    effort = Effort(interval=0.01, sample_s=1e-6, warmup_s=0.0, longest_s=0.05, most_samples=1000)
    interval = collectives.time_together(lambda _: None, effort, cuda=False)
    assert 20 <= interval.samples <= 30
    assert interval.ran_dry
