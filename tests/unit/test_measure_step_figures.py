"""Step results besides time: peak memory, and rejection of samples with skipped updates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from validate.kinds.kind import ALL_COLUMNS  # noqa: E402
from validate.machine.measure.case import Unavailable  # noqa: E402
from validate.machine.measure.cases import stepping  # noqa: E402  they import torch
from validate.machine.measure.cases.step_shapes import MeasuredStep  # noqa: E402
from validate.machine.measure.cases.stepping import Stepper, make_step  # noqa: E402
from validate.machine.measure.cases.steps import Clock, Patience, steady_interval  # noqa: E402
from validate.machine.measure.table import COLUMNS  # noqa: E402
from validate.machine.measure.timing import median_interval  # noqa: E402

CPU = torch.device("cpu")
LENET = MeasuredStep("lenet", 2)


@pytest.fixture(autouse=True)
def _settings_as_before() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False


def test_the_most_memory_is_that_of_the_steps_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class OnGpu(Stepper):
        def __init__(self, shape: MeasuredStep, device: Any, wrap: Any = None) -> None:
            super().__init__(shape, device, wrap)
            self.device = type("Device", (), {"type": "cuda"})()

        def train(self) -> None:
            told.append("step")

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: told.append("forget"))
    monkeypatch.setattr(stepping, "Stepper", OnGpu)
    steady_interval(Clock(cuda=False), make_step(LENET, CPU), Patience(longest_s=0.01, warmup_s=0.0))
    assert told[:4] == ["step", "step", "step", "forget"]
    assert set(told[4:]) == {"step"}


def test_the_memory_of_a_gpu_is_told_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 1)
    shown = {"max_memory_allocated": 3, "max_memory_reserved": 5, "mem_get_info": (30, 37)}
    for name, value in shown.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value if device == gpu else None)
    figures = {"max_allocated_bytes": 3, "max_reserved_bytes": 5, "smi_bytes": 7}
    assert stepping.gpu_memory(gpu) == figures
    assert stepping.gpu_memory(CPU) == {}
    cells = stepping.step_figures(LENET, median_interval([0.5]), [figures])
    assert set(cells) <= set(COLUMNS["training.csv"])
    assert {name: cells[name] for name in figures} == figures
    assert set(figures) <= set(ALL_COLUMNS)  # as tables of steps are read


def test_settings_that_torch_has_newer_ones_for_are_no_news_to_whoever_measures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warn(_: str) -> None:
        warnings.warn("Please use the new API settings to control TF32 behavior, such as", UserWarning, stacklevel=2)

    monkeypatch.setattr(torch, "set_float32_matmul_precision", warn)
    stepping.set_precision("tf32")  # warnings are errors here


HALVED = MeasuredStep("lenet", 2, "amp-fp16")


def test_a_loss_is_scaled_by_so_little_that_no_update_is_left_out() -> None:
    stepper = Stepper(HALVED, CPU)
    scale = stepper.scaler.get_scale()
    stepper.begin()
    for _ in range(3):
        before = [p.detach().clone() for p in stepper.example.module.parameters()]
        stepper.train()
        after = stepper.example.module.parameters()
        assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    stepper.end()
    assert stepper.scaler.get_scale() == scale <= 1024


def test_steps_count_from_a_scale_that_nothing_overflows_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "_SCALE", 2.0**24)
    made: list[Stepper] = []
    settle = Stepper.settle_scale
    monkeypatch.setattr(Stepper, "settle_scale", lambda self: made.append(self) or settle(self))
    step = make_step(HALVED, CPU)
    scale = made[0].scaler.get_scale()
    assert scale < 2.0**24  # some steps have overflowed
    step.begin()
    step.run()
    step.end()
    assert made[0].scaler.get_scale() == scale


def test_no_scale_at_all_and_an_update_left_out_later_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "_SCALE", 2.0**100)
    with pytest.raises(Unavailable, match="overflow even where the loss is scaled by"):
        make_step(HALVED, CPU)
    stepper = Stepper(HALVED, CPU)
    stepper.begin()
    stepper.train()
    with pytest.raises(Unavailable, match="updates were left out"):
        stepper.end()
