"""Timing of steps, on one device and on several."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

import torch.distributed as dist  # noqa: E402  torch is there

from validate.machine.measure import ranks  # noqa: E402  they import torch
from validate.machine.measure.bench import Bench, open_bench  # noqa: E402
from validate.machine.measure.cases import steps  # noqa: E402  they import torch
from validate.machine.measure.cases.step_shapes import MeasuredStep, parallel_steps  # noqa: E402
from validate.machine.measure.cases.steps import (  # noqa: E402
    Clock,
    Patience,
    TimedRun,
    agreed_samples,
    steady_interval,
)
from validate.machine.measure.timing import FEWEST  # noqa: E402


@pytest.fixture(autouse=True)
def _settings_as_before() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False


# -- how the time is taken -------------------------------------------------------------


class _Device:
    """A device and a host: per step the host takes ``host_s`` to launch and the device ``device_s``."""

    def __init__(self, host_s: float, device_s: float, transient: int = 2) -> None:
        self.host_s, self.device_s, self.transient = host_s, device_s, transient
        self.now_s = self.free_s = 0.0
        self.settled = self.runs = self.looks = 0

    def run(self) -> None:
        self.now_s += self.host_s
        self.free_s = max(self.free_s, self.now_s) + self.device_s
        self.runs += 1

    def mark(self) -> float:
        return max(self.free_s, 0.0) or self.now_s

    def between_s(self, earlier: float, later: float) -> float:
        return later - earlier

    def settle(self) -> None:
        self.now_s = max(self.now_s, self.free_s)
        self.settled += 1

    def watch(self, until: float) -> None:
        """Query the driver, which takes time."""
        assert until == self.mark()
        self.now_s += 0.02
        self.looks += 1


@pytest.mark.parametrize(("host_s", "device_s"), [(0.001, 0.010), (0.010, 0.001), (0.003, 0.003)])
def test_a_steady_step_takes_the_longer_of_host_and_device(host_s: float, device_s: float) -> None:
    device = _Device(host_s, device_s)
    found = steady_interval(device, TimedRun(device.run), Patience(warmup_s=0.0))
    assert found.median == pytest.approx(max(host_s, device_s))
    assert found.relative == pytest.approx(0, abs=1e-9)
    assert found.samples >= FEWEST
    assert device.looks == 1  # once per counted burst, and in no step


def test_a_gpus_sensors_are_read_while_it_works_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validate.machine.measure.cases.steps.time.sleep", lambda _: None)
    looks: list[int] = []
    Clock(cuda=True, look=lambda: looks.append(1)).watch(SimpleNamespace(query=lambda: len(looks) >= 4))
    assert len(looks) == 4


def test_what_counts_begins_after_warming_up_and_ends_with_the_last_sample() -> None:
    for time_steps in (
        lambda step: steady_interval(_Device(0.0, 0.1), step, Patience(warmup_s=0.0)).samples,
        lambda step: len(agreed_samples(_Device(0.0, 0.1), step, Patience(), lambda s: 0.1)),
    ):
        told: list[str] = []
        step = TimedRun(
            lambda told=told: told.append("run"),
            begin=lambda told=told: told.append("begin"),
            end=lambda told=told: told.append("end"),
        )
        samples = time_steps(step)
        assert told[:4] == ["run", "run", "run", "begin"]
        assert set(told[4:-1]) == {"run"}
        assert len(told[4:-1]) >= samples + 2
        assert told[-1] == "end"


def test_what_is_prepared_is_not_timed() -> None:
    device = _Device(0.0, 0.002, transient=0)

    def prepare() -> None:
        device.free_s += 5.0

    assert steady_interval(device, TimedRun(device.run, prepare), Patience(warmup_s=0.0)).median == pytest.approx(0.002)


def test_a_step_of_many_seconds_is_run_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device(0.0, 60.0)
    monkeypatch.setattr("validate.machine.measure.cases.steps.time.perf_counter", lambda: device.free_s)
    found = steady_interval(device, TimedRun(device.run), Patience())
    assert found.median == 60.0
    assert device.runs <= 2 + 3 + device.transient


def test_ranks_run_as_many_steps_whatever_each_of_them_takes() -> None:
    counts = []
    for device_s in (0.001, 0.5):
        device = _Device(0.0, device_s)
        counts.append(len(agreed_samples(device, TimedRun(device.run), Patience(), lambda _: 0.1)))
        assert device.runs == 3 + counts[-1] + device.transient * (counts[-1] // 6)
    assert counts[0] == counts[1] >= FEWEST


def test_a_cpu_is_timed_by_its_clock() -> None:
    clock = Clock(cuda=False)
    assert clock.between_s(clock.mark(), clock.mark()) >= 0
    found = steady_interval(clock, TimedRun(lambda: sum(range(10000))), Patience(longest_s=0.05, warmup_s=0.0))
    assert 0 < found.low <= found.median <= found.high


# -- several ranks ---------------------------------------------------------------------


def test_what_a_rank_sees_late_it_sees_short_the_next_time() -> None:
    """Two ranks that wait for each other see the ends of steps of 1 s each 0.1 s early or late."""
    one, other = [1.1, 0.9] * 4, [0.9, 1.1] * 4
    assert steps.of_all([one, other]).median == pytest.approx(1.0)


def test_steps_of_ranks_are_warmed_up_and_repeated_until_all_know_enough() -> None:
    told: list[float] = []

    def greatest(value: float) -> float:
        told.append(value)
        return max(value, 0.005 if len(told) > 40 else 0.5)  # another rank: half a second each at first

    device = _Device(0.0, 0.001)
    samples = agreed_samples(
        device, TimedRun(device.run), Patience(interval=0.01, longest_s=60.0, warmup_s=5.0), greatest
    )
    assert device.runs >= 10 + len(samples)  # ten warm-up steps of half a second
    assert len(samples) > 40  # more than one burst


def test_a_rank_measures_a_step_of_a_wrapped_module(tmp_path: Path) -> None:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        samples, memory = steps.rank_step(0, 1, MeasuredStep("lenet", 2, n_gpus=2), False)
    finally:
        dist.destroy_process_group()
    assert len(samples) >= FEWEST
    assert min(samples) > 0
    assert memory == {}


def test_a_rank_gives_a_network_back_before_the_next_one(tmp_path: Path) -> None:
    """A wrapped module is a reference cycle: it and its memory stay until the garbage collector runs."""

    def wrapped() -> int:
        return sum(type(thing) is torch.nn.parallel.DistributedDataParallel for thing in gc.get_objects())

    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    gc.collect()
    gc.disable()
    try:
        before = wrapped()
        steps.rank_step(0, 1, MeasuredStep("lenet", 2, n_gpus=2), False)
        after = wrapped()
    finally:
        gc.enable()
        dist.destroy_process_group()
    assert before == after == 0


def test_ranks_are_started_when_asked_and_ended_with_the_last_case(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Fake:
        def __init__(self, count: int, *, cuda: bool, start_s: float) -> None:
            told.append(("start", count, cuda))
            self.alive = True

        def run(self, function: Any, *arguments: Any, **_: Any) -> list[Any]:
            told.append(("run", arguments[0].model))
            held = ({"max_allocated_bytes": 5, "smi_bytes": 9}, {"max_allocated_bytes": 7, "smi_bytes": 8})
            return list(zip(([0.1, 0.3, 0.2], [0.2, 0.1, 0.2]), held, strict=True))

        def close(self) -> None:
            told.append("close")

    monkeypatch.setattr(ranks, "RankProcesses", Fake)
    shapes = tuple(parallel_steps(2, ("fp32", "tf32")))[:2]
    cases = steps.parallel_cases(shapes, gpus(monkeypatch, 2, 9))
    first = next(cases)
    assert not told
    work = first.build(open_bench("cpu", Path()))
    assert work.own is not None
    assert work.figures is not None
    found = work.own()
    cells = work.figures(found)
    assert (found.median, cells["max_allocated_bytes"], cells["smi_bytes"]) == (0.2, 7, 9)
    assert work.figures(found)["throughput"] == pytest.approx(2 * shapes[0].batch / 0.2)
    assert len(list(cases)) == 1
    assert told == [("start", 2, True), ("run", "resnet50"), "close"]


# -- one or all devices ----------------------------------------------------------------


def gpus(monkeypatch: pytest.MonkeyPatch, count: int, major: int, *, alone: bool = False) -> Bench:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    found = SimpleNamespace(major=major, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    return Bench(torch.device("cuda", 0), "gpu", 1 << 36, 1 << 26, Path(), alone=alone)


@pytest.mark.parametrize("count", [1, 8])
def test_steps_on_all_gpus_come_before_long_and_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    numbers = [case.columns["n_gpus"] for case in steps.cases(gpus(monkeypatch, count, 9))]
    if count == 1:
        assert set(numbers) == {1}
        return
    first = numbers.index(count)
    assert 5 <= first <= 20
    assert numbers[first : first + numbers.count(count)] == [count] * numbers.count(count)
    assert numbers.count(count) < numbers.count(1)


def test_a_gpu_that_was_named_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {case.columns["n_gpus"] for case in steps.cases(gpus(monkeypatch, 8, 9, alone=True))} == {1}


@pytest.mark.parametrize(
    ("major", "expected"), [(7, {"fp32", "amp-fp16"}), (9, {"fp32", "amp-fp16", "bf16", "amp-bf16", "tf32"})]
)
def test_a_gpu_is_asked_for_formats_that_it_has(
    monkeypatch: pytest.MonkeyPatch, major: int, expected: set[str]
) -> None:
    assert {case.columns["dtype"] for case in steps.cases(gpus(monkeypatch, 1, major))} == expected
