"""Capture of a step as one graph, on a fake device that records the calls."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
pytestmark = pytest.mark.torch

from validate.machine.measure import bench as benches  # noqa: E402  it imports torch
from validate.machine.measure.cases.step_shapes import MeasuredStep  # noqa: E402
from validate.machine.measure.cases.stepping import Stepper  # noqa: E402

CPU = torch.device("cpu")
_PEAK = "reset_peak_memory_stats"


class _Recorder:
    """Replaces ``torch.cuda``."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = ("Stream", "current_stream", "synchronize", "CUDAGraph", "stream", "graph", "graph_pool_handle")
        for name in (*names, _PEAK):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def Stream(self) -> Any:  # noqa: N802  torch's name
        return _Stream(self)

    def current_stream(self) -> Any:
        return _Stream(self)

    def synchronize(self) -> None:
        self.told.append("synchronize")

    def reset_peak_memory_stats(self, device: Any) -> None:
        self.told.append("forget")

    def CUDAGraph(self) -> Any:  # noqa: N802
        return _Stream(self)

    def stream(self, stream: Any) -> Any:
        return _Scope(self, "side stream")

    def graph(self, graph: Any, pool: object = None) -> Any:
        return _Scope(self, "capture")

    def graph_pool_handle(self) -> object:
        return object()


class _Stream:
    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder

    def wait_stream(self, other: Any) -> None:
        self.recorder.told.append("wait")

    def replay(self) -> None:
        self.recorder.told.append("replay")


class _Scope:
    def __init__(self, recorder: _Recorder, name: str) -> None:
        self.recorder, self.name = recorder, name

    def __enter__(self) -> None:
        self.recorder.told.append(f"begin {self.name}")

    def __exit__(self, *_: object) -> None:
        self.recorder.told.append(f"end {self.name}")


def test_a_capture_has_one_step_after_some_on_another_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Recorder()
    stepper = Stepper(MeasuredStep("lenet", 2, issue="graph"), CPU)
    recorder.stand_in(monkeypatch)
    monkeypatch.setattr(stepper, "device", type("Device", (), {"type": "cuda"})())
    monkeypatch.setattr(stepper, "train", lambda: recorder.told.append("step"))
    clear = stepper.clear
    monkeypatch.setattr(stepper, "clear", lambda: (recorder.told.append("clear"), clear()))
    stepper.captured()()
    assert recorder.told == [
        *("wait", "begin side stream", "step", "step", "step", "end side stream", "wait"),
        *("clear", "synchronize", "forget", "begin capture", "step", "end capture", "replay"),
    ]


def test_a_step_whose_capture_fails_leaves_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Recorder()
    stepper = Stepper(MeasuredStep("lenet", 2, issue="graph"), CPU)
    recorder.stand_in(monkeypatch)
    recovered: list[object] = []
    monkeypatch.setattr(benches, "_recover", recovered.append)

    def step() -> None:
        if recorder.told[-1] == "begin capture":
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(stepper, "device", type("Device", (), {"type": "cuda"})())
    monkeypatch.setattr(stepper, "train", step)
    with pytest.raises(RuntimeError, match="not permitted"):
        stepper.captured()
    assert len(recovered) == 1
