"""Timing of GPU calls, tested on a fake device that follows CUDA's rules for streams, events and capture."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from validate.machine.measure import bench as benches  # noqa: E402  needs torch
from validate.machine.measure import run as runs  # noqa: E402
from validate.machine.measure.bench import (  # noqa: E402
    QueuedStopwatch,
    Readings,
    recorded,
)
from validate.machine.measure.case import Case, TimedWork  # noqa: E402
from validate.machine.measure.host import slug  # noqa: E402
from validate.machine.measure.timing import Effort, Interval, time_call  # noqa: E402
from validate.tables.cells import nccl_of  # noqa: E402

BENCH = benches.Bench(torch.device("cuda", 0), "fake", 1 << 30, 1 << 20, Path())


class Device:
    """A host that launches and a device that follows, each with its own time; a replay runs the captured work."""

    KERNEL_S = 3e-6
    LAUNCH_S = 10e-6  # host time to launch a kernel or a graph

    def __init__(self) -> None:
        self.host_s = 0.0
        self.device_s = 0.0  # when all its work so far is done
        self.capturing: list[int] | None = None
        self.synchronised = False
        self.captures: list[int] = []

    def run(self, seconds: float) -> None:
        self.device_s = max(self.host_s, self.device_s) + seconds

    def kernel(self, _: int) -> None:
        self.synchronised = False
        if self.capturing is not None:
            self.capturing.append(1)
        else:
            self.host_s += self.LAUNCH_S
            self.run(self.KERNEL_S)

    def sleep(self, cycles: int) -> None:
        self.run(cycles / 1.5e9)

    def synchronize(self, *_: Any) -> None:
        assert self.capturing is None, "synchronisation is not permitted while a stream is captured"
        self.synchronised = True
        self.host_s = max(self.host_s, self.device_s)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            self.at_s: float | None = None
            self.waited = False

        def record(self) -> None:
            self.at_s, self.waited = max(found.host_s, found.device_s), False

        def query(self) -> bool:
            assert self.at_s is not None
            return found.host_s >= self.at_s

        def synchronize(self) -> None:
            assert self.at_s is not None, "not recorded"
            self.waited = True
            found.host_s = max(found.host_s, self.at_s)

        def elapsed_time(self, end: Event) -> float:
            assert end.waited, "the end is not reached yet"
            assert self.at_s is not None
            assert end.at_s is not None
            return (end.at_s - self.at_s) * 1000

    class Graph:
        def __init__(self) -> None:
            self.kernels: list[int] = []

        def replay(self) -> None:
            found.host_s += found.LAUNCH_S
            found.run(found.KERNEL_S * len(self.kernels))

    @contextmanager
    def graph(one: Graph, pool: object = None) -> Any:
        assert found.synchronised, "work is under way on another stream"
        found.capturing = []
        yield
        one.kernels, found.capturing = found.capturing, None
        found.captures.append(len(one.kernels))

    @contextmanager
    def stream(_: Any) -> Any:
        yield

    waiting = SimpleNamespace(wait_stream=lambda _: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: waiting)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: waiting)
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    monkeypatch.setattr(torch.cuda, "_sleep", found.sleep)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    return found


def test_events_enclose_the_calls_and_sensors_look_meanwhile(device: Device) -> None:
    looks: list[float] = []
    sensors: Any = SimpleNamespace(look=lambda: looks.append(device.host_s))
    watch = benches.CudaStopwatch(replace(BENCH, sensors=sensors))
    assert watch.sample(device.kernel, 4) == pytest.approx(4 * 10e-6 + 3e-6)
    assert len(looks) == 1


@pytest.mark.parametrize("launch_s", [10e-6, 3e-3])
def test_a_graph_has_no_launch_in_its_time_and_is_captured_once(device: Device, launch_s: float) -> None:
    """Also where the host takes longer than the first allowance."""
    device.LAUNCH_S = launch_s
    watch = benches.GraphStopwatch(BENCH)
    for _ in range(3):
        assert watch.sample(device.kernel, 8) == pytest.approx(8 * 3e-6)
    assert device.captures == [8]
    watch.sample(device.kernel, 16)
    watch.sample(device.kernel, 32)
    assert watch.sample(device.kernel, 8) == pytest.approx(24e-6)  # two graphs are kept: this one is captured again
    assert device.captures == [8, 16, 32, 8]


class Torch:
    """torch 2.11's state of a capture: stream, memory pool, generator mode; a fault at its end leaves it in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = "default"
        self.under_way: list[object] = []  # pools with a capture under way, for the allocator
        self.held: list[object] = []  # pools whose memory is not released
        self.generator_captures = False
        zeros = torch.zeros
        for name, value in {
            "graph": self.graph,
            "graph_pool_handle": object,
            "CUDAGraph": object,
            "current_device": lambda: 0,
            "default_stream": lambda: "default",
            "set_stream": lambda stream: setattr(self, "stream", stream),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch, "zeros", lambda *sizes, device: zeros(*sizes, device=device.replace("cuda", "cpu")))
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda _, pool: self.held.remove(pool), raising=False)

    @contextmanager
    def graph(self, one: object, pool: object = None) -> Any:
        pool, before = pool or object(), self.stream
        self.stream, self.generator_captures = "capture", True
        self.under_way.append(pool)
        self.held.append(pool)
        try:
            yield
        except RuntimeError as error:
            if "capturing" in str(error):  # CUDA has ended the capture, so ending it is the next fault
                raise RuntimeError("operation failed due to a previous error during capture") from error
            self.end(0, pool)
            self.stream, self.generator_captures = before, False
            raise
        self.end(0, pool)
        self.held.remove(pool)  # released with the graph
        self.stream, self.generator_captures = before, False

    def end(self, _: int, pool: object) -> None:
        if pool not in self.under_way:
            raise RuntimeError("not currently recording to mempool_id")
        self.under_way.remove(pool)


def _fail(text: str) -> None:
    with recorded(object()):
        raise RuntimeError(text)


def test_a_capture_that_fails_leaves_torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each later case would fail: random numbers are refused, and memory stays allocated."""
    state = Torch(monkeypatch)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        _fail("operation not permitted when stream is capturing")
    assert state.stream == "default"
    assert not state.under_way
    assert not state.held
    assert not state.generator_captures


def test_a_fault_within_a_capture_that_ends_well_gives_nothing_back_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """In that case the graph releases its pool."""
    state = Torch(monkeypatch)
    with pytest.raises(RuntimeError, match="out of memory"):
        _fail("out of memory")
    assert len(state.held) == 1
    assert (state.stream, state.under_way, state.generator_captures) == ("default", [], False)


def test_a_device_that_is_lost_in_a_capture_tells_its_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Torch(monkeypatch)

    def lost(*_: Any, **__: Any) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch, "zeros", lost)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        _fail("operation not permitted when stream is capturing")
    assert state.stream == "default"


def test_a_capture_goes_through_what_undoes_its_faults(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[object] = []
    monkeypatch.setattr(benches, "_recover", chosen.append)

    def fail(i: int) -> None:
        if device.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        device.kernel(i)

    with pytest.raises(RuntimeError, match="not permitted"):
        benches.capture(fail, 2)
    assert len(chosen) == 1


def test_a_gpu_is_opened_with_what_it_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        uuid="6f1d5f0c-0000-0000-0000-0123456789ab",
        L2_cache_size=50 << 20,
        total_memory=80 << 30,
    )
    asked: list[str] = []
    monkeypatch.setattr(benches, "Sensors", asked.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60 << 30, 80 << 30))
    found = benches.open_bench("cuda", Path())
    assert found.device == torch.device("cuda:0")
    assert not found.alone
    assert benches.open_bench("cuda:1", Path()).alone
    asked.pop()
    assert found.name == "nvidia-h100-80gb-hbm3"
    assert (found.memory_bytes, found.cache_bytes) == (int((60 << 30) * 0.9), 50 << 20)
    assert asked == ["6f1d5f0c-0000-0000-0000-0123456789ab"]
    with pytest.raises(ValueError, match="no device 'cuda:2' here; there is cuda:0, cuda:1, cpu"):
        benches.open_bench("cuda:2", Path())


def test_names() -> None:
    assert slug("Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz") == "intel-xeon-cpu-e5-2630-v3-2-40ghz"
    assert slug("Tesla V100-SXM2-16GB") == "tesla-v100-sxm2-16gb"


def test_a_gpu_is_alive_while_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = benches.Bench(SimpleNamespace(type="cuda"), "d", 0, 0, Path())
    monkeypatch.setattr(torch, "ones", lambda *_, device: 1.0)
    assert bench.alive()

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch, "ones", fail)
    assert not bench.alive()


def test_what_cublas_keeps_for_streams_is_given_back_before_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the peak memory of a step would include what other cases' streams left behind."""
    told: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: told.append("wait"))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: told.append("clear"), raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: told.append("empty"))
    benches.Bench(SimpleNamespace(type="cuda"), "d", 0, 0, Path()).release()
    assert told == ["wait", "clear", "empty"]
    benches.Bench(SimpleNamespace(type="cpu"), "d", 0, 0, Path()).release()
    assert len(told) == 3


@pytest.mark.parametrize(("launch_s", "ran_dry"), [(10e-6, False), (2e-3, True)])
def test_calls_that_a_host_cannot_issue_in_time_say_so(device: Device, launch_s: float, ran_dry: bool) -> None:
    """At 2 ms per call no block is long enough; the sample is used, and marked as including host time."""
    device.LAUNCH_S = launch_s
    watch = QueuedStopwatch(BENCH)
    found = time_call(watch, device.kernel, Effort(sample_s=1e-6, warmup_s=0.0, longest_s=0.1), at_least=4)
    assert found.ran_dry == ran_dry
    assert (found.median == pytest.approx(device.KERNEL_S)) == (not ran_dry)


def test_a_graph_that_is_launched_too_slowly_says_so(device: Device) -> None:
    device.LAUNCH_S = 50e-3
    watch = benches.GraphStopwatch(BENCH)
    watch.sample(device.kernel, 2)
    assert watch.ran_dry


@pytest.mark.parametrize(
    ("ran_dry", "throttled", "trust", "note"),
    [
        (False, "", "A", "said"),
        (False, "power cap", "A", "said"),  # as in training
        (False, "power cap; software thermal", "B", "said"),
        (False, "hardware slowdown", "B", "said"),
        (True, "", "B", "said; the queue ran dry: some of the host's time is in it"),
    ],
)
def test_what_was_disturbed_is_not_graded_best(ran_dry: bool, throttled: str, trust: str, note: str) -> None:
    case = Case("ops.csv", {"note": "said"}, lambda _: TimedWork(lambda _: None))
    interval = Interval(1.0, 0.999, 1.001, 10, ran_dry)
    cells = runs._known(case, interval, Readings(throttled=throttled))
    assert (cells["trust"], cells["note"]) == (trust, note)


def test_the_version_of_nccl_is_written_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's costs depend on the version that `software` names."""

    def software() -> str:
        case = Case("ops.csv", {}, lambda _: TimedWork(lambda _: None))
        return str(runs._known(case, Interval(1.0, 0.999, 1.001, 10), Readings())["software"])

    assert "nccl" not in software()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 21, 5))
    assert software().endswith(", nccl 2.21.5")
    assert nccl_of(software(), "7.0") == (2, 21)
