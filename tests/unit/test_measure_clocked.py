"""Stopwatches on simulated GPUs: they show device time, and report when a queue ran dry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clocked_cuda import Clock, clocked_gpus  # noqa: E402
from validate.machine.measure import ranks  # noqa: E402
from validate.machine.measure.bench import Bench, CudaStopwatch, GraphStopwatch, HostStopwatch, QueuedStopwatch  # noqa: E402  # noqa: E402
from validate.machine.measure.case import TimedRun  # noqa: E402
from validate.machine.measure.cases import collectives  # noqa: E402
from validate.machine.measure.cases import steps as stepping  # noqa: E402
from validate.machine.measure.cases.steps import Patience, agreed_samples, steady_interval  # noqa: E402
from validate.machine.measure.timing import Effort, time_call  # noqa: E402

pytestmark = pytest.mark.torch

KERNEL_S = 20e-6


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, tmp_path)


# -- the clock itself ------------------------------------------------------------------


def test_a_stream_runs_in_order_and_streams_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clocked_gpus(monkeypatch, 2, issue_s=0.0)
    one, other = torch.cuda.Stream(0), torch.cuda.Stream(1)
    began, both, after = (torch.cuda.Event() for _ in range(3))
    began.record()
    for stream in (one, other):
        with torch.cuda.stream(stream):
            clock.kernel(1.0)
            clock.kernel(1.0)
    both.record(one)
    other.wait_event(both)
    with torch.cuda.stream(other):
        clock.kernel(3.0)
    after.record(other)
    assert not both.query()
    with pytest.raises(RuntimeError, match="not ready"):
        began.elapsed_time(after)
    after.synchronize()
    assert both.query()
    assert began.elapsed_time(both) == pytest.approx(2000)
    assert began.elapsed_time(after) == pytest.approx(5000)


def test_the_host_does_not_wait_for_what_it_issues(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=1e-6)
    before_s = clock.now_s
    for _ in range(10):
        clock.kernel(1.0)
    assert clock.now_s - before_s == pytest.approx(10e-6)
    torch.cuda.synchronize()
    assert clock.now_s - before_s == pytest.approx(10, rel=1e-4)


@pytest.mark.parametrize(("waits", "expected"), [(False, 0.0), (True, 1.0)])
def test_work_that_does_not_wait_reads_what_was_there_before(
    monkeypatch: pytest.MonkeyPatch, waits: bool, expected: float
) -> None:
    clocked_gpus(monkeypatch, issue_s=0.0)
    source, copied = torch.empty(8, device="cuda:0"), torch.empty(8, device="cuda:0")
    source.fill_(0.0)
    torch.cuda.synchronize()
    source.fill_(1.0)
    stream = torch.cuda.Stream(0)
    if waits:
        stream.wait_stream(torch.cuda.current_stream(0))
    with torch.cuda.stream(stream):
        copied.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    assert copied[:4].tolist() == [expected] * 4


# -- stopwatches -----------------------------------------------------------------------


def call_of(clock: Clock, seconds: float = KERNEL_S) -> Any:
    return lambda _: clock.kernel(seconds)


@pytest.mark.parametrize("issue_s", [5e-6, 19e-6, 60e-6, 200e-6])
def test_a_queue_that_is_held_up_shows_the_devices_time_alone(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, issue_s: float
) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=issue_s)
    watch = QueuedStopwatch(bench)
    assert watch.sample(call_of(clock), 32) / 32 == pytest.approx(KERNEL_S, rel=1e-6)
    assert not watch.ran_dry


def test_a_host_that_is_too_slow_for_any_hold_is_told(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=2e-3)
    watch = QueuedStopwatch(bench)
    assert watch.sample(call_of(clock), 8) / 8 > 10 * KERNEL_S
    assert watch.ran_dry
    assert time_call(watch, call_of(clock), Effort(longest_s=0.1)).ran_dry
    clock.issue_s = 2e-6
    assert not time_call(watch, call_of(clock), Effort(longest_s=0.1)).ran_dry


def test_a_sample_is_tried_five_times_however_much_a_call_is_allowed(
    monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=25e-3)
    watch, calls = QueuedStopwatch(bench, most_issue_s=30e-3), []

    def call(i: int) -> None:
        calls.append(i)
        clock.kernel(KERNEL_S)

    watch.sample(call, 4)
    assert watch.ran_dry
    assert calls == [0, 1, 2, 3] * 5
    for _ in range(2):  # goes on from the last allowance
        watch.sample(call, 4)
    assert not watch.ran_dry


def test_calls_in_a_stream_show_who_is_slower(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    for issue_s, expected_s in ((1e-6, KERNEL_S), (50e-6, 50e-6)):
        with monkeypatch.context() as patch:
            clock = clocked_gpus(patch, issue_s=issue_s)
            found_s = CudaStopwatch(bench).sample(call_of(clock), 1000) / 1000
        assert found_s == pytest.approx(expected_s, rel=0.01)


def test_the_hosts_part_is_what_it_takes_to_issue(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr(Bench, "settle", lambda self: torch.cuda.synchronize())
    clock = clocked_gpus(monkeypatch, issue_s=3e-6)
    assert HostStopwatch(bench).sample(call_of(clock, 1.0), 100) / 100 == pytest.approx(3e-6, rel=0.01)


@pytest.mark.parametrize(("launch_s", "dry"), [(10e-6, False), (150e-6, False), (5e-3, False), (50e-3, True)])
def test_a_graph_is_launched_behind_a_hold(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, launch_s: float, dry: bool
) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=100e-6)
    watch = GraphStopwatch(bench)
    clock.launch_s = launch_s
    found_s = watch.sample(call_of(clock), 16) / 16
    assert watch.ran_dry is dry
    if not dry:  # issuing the calls one by one would take five times as long
        assert found_s == pytest.approx(KERNEL_S, rel=1e-6)


class Alone:
    """torch.distributed of a group whose other ranks are never slower."""

    class ReduceOp:
        MAX = None

    @staticmethod
    def all_reduce(*_: object) -> None:
        return None


@pytest.mark.parametrize(("issue_s", "dry"), [(5e-6, False), (40e-6, False), (400e-6, True)])
def test_what_ranks_do_together_says_where_a_stream_ran_dry(
    monkeypatch: pytest.MonkeyPatch, issue_s: float, dry: bool
) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=issue_s)
    for module in (ranks, collectives):
        monkeypatch.setattr(module, "dist", Alone)
    found = collectives.time_together(call_of(clock), Effort(longest_s=0.05, warmup_s=1e-3), cuda=True)
    assert found.ran_dry is dry
    if not dry:
        assert found.median == pytest.approx(KERNEL_S, rel=1e-6)
    else:
        assert found.median > 2 * KERNEL_S


# -- steps -----------------------------------------------------------------------------


class Network:
    """A step of 50 kernels of 20 us; in its first runs the device takes 5 ms each to choose kernels."""

    def __init__(self, clock: Clock, slow_runs: int = 5) -> None:
        self.clock, self.slow_runs = clock, slow_runs
        self.runs = self.warm_runs = 0

    def run(self) -> None:
        self.runs += 1
        for _ in range(50):
            self.clock.kernel(KERNEL_S)
        if self.runs <= self.slow_runs:
            self.clock.kernel(5e-3)

    def begin(self) -> None:
        self.warm_runs = self.runs


@pytest.mark.parametrize("issue_s", [4e-6, 40e-6])
def test_steps_of_one_and_of_several_gpus_are_warm_and_as_long(monkeypatch: pytest.MonkeyPatch, issue_s: float) -> None:
    expected_s = 50 * max(KERNEL_S, issue_s)
    found = []
    for several in (False, True):
        with monkeypatch.context() as patch:
            clock = clocked_gpus(patch, issue_s=issue_s)
            network = Network(clock)
            step = TimedRun(network.run, None, network.begin)
            if several:
                samples = agreed_samples(stepping.Clock(cuda=True), step, Patience(), lambda seconds: seconds)
                assert all(sample == pytest.approx(expected_s, rel=0.01) for sample in samples)
                found.append(sum(samples) / len(samples))
            else:
                found.append(steady_interval(stepping.Clock(cuda=True), step, Patience()).median)
            assert network.warm_runs > network.slow_runs
    assert found == pytest.approx([expected_s, expected_s], rel=0.01)


def test_a_burst_begins_only_when_the_host_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first steps of a burst wait for the host and do not count."""
    clock = clocked_gpus(monkeypatch, issue_s=10e-6)
    network = Network(clock, slow_runs=0)
    samples = agreed_samples(stepping.Clock(cuda=True), TimedRun(network.run), Patience(), lambda seconds: seconds)
    assert max(samples) == pytest.approx(min(samples), rel=1e-3)


def test_ranks_go_on_until_the_slowest_knows_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for noisy in (False, True):
        with monkeypatch.context() as patch:
            clock = clocked_gpus(patch)
            network = Network(clock, slow_runs=0)
            worst = (lambda figure: figure or 0.5) if noisy else (lambda figure: figure)
            counts.append(len(agreed_samples(stepping.Clock(cuda=True), TimedRun(network.run), Patience(), worst)))
    assert counts[0] < counts[1]
