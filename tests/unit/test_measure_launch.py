"""Launch costs: host time alone, and one row for each kind of call."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clocked_cuda import ClockedBench, clocked_bench, clocked_gpus  # noqa: E402
from validate.machine.measure import bench as benches  # noqa: E402
from validate.machine.measure.bench import (  # noqa: E402
    Bench,
    GraphStopwatch,
    Sensors,
)
from validate.machine.measure.cases import launch  # noqa: E402
from validate.machine.measure.timing import median_interval  # noqa: E402

pytestmark = pytest.mark.torch


def _cpu(folder: Path) -> Bench:
    return Bench(torch.device("cpu"), "cpu", 1 << 30, 1 << 20, folder)


def _key(case: Any) -> tuple[Any, ...]:
    return tuple(case.columns.items())


def test_every_kind_of_call_runs_and_no_two_rows_are_the_same(tmp_path: Path) -> None:
    bench = _cpu(tmp_path)
    cases = list(launch.cases(bench))
    assert len({_key(case) for case in cases}) == len(cases)
    for case in cases:
        work = case.build(bench)
        seconds = (work.watch or bench.stopwatch()).sample(work.call, 2)
        assert 0 < seconds < 5, case.title


def test_a_gpu_has_graphs_and_events_besides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = clocked_bench(monkeypatch, tmp_path)
    cases = list(launch.cases(bench))
    assert len({_key(case) for case in cases}) == len(cases)
    metrics = [str(case.columns["metric"]) for case in cases]
    for words in ("graph of 1 kernel", "graph of 10 kernels", "graph of 100 kernels", "recording an event"):
        assert any(words in metric for metric in metrics)
    for case in cases:
        work = case.build(bench)
        assert (work.watch or bench.stopwatch()).sample(work.call, 1) >= 0, case.title
    replays = [case for case in cases if "graph of 100" in str(case.columns["metric"])]
    assert {case.build(bench).mode for case in replays} == {"stream", "single"}
    assert not any(isinstance(case.build(bench).watch, GraphStopwatch) for case in replays)


@pytest.mark.slow
def test_what_a_graph_writes_to_lives_as_long_as_its_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph stores addresses and keeps no tensors alive."""
    bench = clocked_bench(monkeypatch, tmp_path)
    captured: list[Any] = []

    def capture(call: Any, calls: int) -> Any:
        del calls
        captured.append(weakref.ref(call))
        return SimpleNamespace(replay=lambda: None)

    monkeypatch.setattr(launch, "capture", capture)
    work = launch._replay(10, "stream", bench)
    gc.collect()
    assert captured[0]() is not None
    work.call(0)


def test_the_host_s_time_leaves_out_waiting_for_the_device() -> None:
    log: list[str] = []

    class Slow:
        sensors = Sensors()

        def settle(self) -> None:
            time.sleep(0.05)
            log.append("settled")

    seconds = benches.HostStopwatch(Slow()).sample(lambda i: log.append(f"call {i}"), 3)  # type: ignore[arg-type]
    assert seconds < 0.04
    assert log == ["settled", "call 0", "call 1", "call 2"]  # idle before, not waited for after


def test_a_layer_s_share_of_a_chain_is_a_sixteenth(tmp_path: Path) -> None:
    bench = _cpu(tmp_path)
    (case,) = [c for c in launch.cases(bench) if c.columns["metric"] == "host time of relu, forward, recorded"]
    figures = case.build(bench).figures
    assert figures is not None
    assert figures(median_interval([16e-6] * 6)) == {"time_s": pytest.approx(1e-6)}


def test_the_device_s_time_is_taken_again_where_the_host_was_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clocked_gpus(monkeypatch, issue_s=50e-6)  # more than the first and the second allowance per call
    bench = ClockedBench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, tmp_path)
    held: list[int] = []
    sleep = torch.cuda._sleep
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: (held.append(cycles), sleep(cycles)))
    watch = benches.QueuedStopwatch(bench)
    calls: list[int] = []

    def call(i: int) -> None:
        calls.append(i)
        clock.kernel(1e-6)

    watch.sample(call, 2)
    assert calls == [0, 1] * 3
    assert held == [held[0], 2 * held[0], 4 * held[0]]
    watch.sample(call, 1)
    assert held[3] == held[2] / 2  # the larger allowance is kept


def test_without_a_way_to_hold_the_stream_a_sample_is_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = clocked_bench(monkeypatch, tmp_path)
    monkeypatch.setattr(
        benches,
        "torch",
        SimpleNamespace(
            cuda=SimpleNamespace(Event=torch.cuda.Event, device=torch.cuda.device, synchronize=torch.cuda.synchronize),
            device=torch.device,
        ),
    )
    calls: list[int] = []
    assert benches.QueuedStopwatch(bench).sample(calls.append, 2) >= 0
    assert calls == [0, 1]
