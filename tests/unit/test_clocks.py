"""What a board's power holds: measured on a simulated GPU with a limiter, carried by calibrations, predicted with."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.api import Session
from simulator.api.calibrations import load_calibration
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import holds_back, sustained_clock
from simulator.devices.predict import kernel_cost, rested_device, steady_device
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training_run import StepClock
from simulator.step.issue import budgeted
from simulator.workload.kernels import Gemm
from simulator.workload.precision import PRECISIONS, Precision
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu
from validate.compare.calibrating import clock_factors
from validate.compare.folder import read_folder
from validate.machine.measure.table import COLUMNS

PRODUCT = Gemm(8192, 8192, 8192, "fp16")


def held(gpu: Gpu, **clocks: float) -> Gpu:
    return replace(gpu, calibration=Calibration(clocks=clocks))


def folder_of(path: Path, rows: list[dict[str, Any]]) -> Path:
    with (path / "clocks.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS["clocks.csv"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def factors(path: Path, gpu: Gpu) -> dict[str, float]:
    return clock_factors(read_folder(str(path)), Session(), Where(gpu.name), gpu.name)


@pytest.mark.parametrize("name", ["t4", "a100-sxm4-80gb", "l40s", "h100-sxm5-80gb", "b200"])
@pytest.mark.parametrize("power", [0.7, 0.9])
def test_a_board_of_less_power_is_found_by_its_product(tmp_path: Path, name: str, power: float) -> None:
    gpu = find_gpu(name)
    long_s = kernel_cost(steady_device(held(gpu, power=power)), PRODUCT).time_s
    rows = [{"work": "product", "side": 8192, "time_s": long_s, "burst_s": long_s / 1.3, "interval": 0.01}]
    found = factors(folder_of(tmp_path, rows), gpu)
    assert found["burst"] == pytest.approx(1.3, rel=1e-3)
    again = kernel_cost(steady_device(held(gpu, **found)), PRODUCT).time_s
    assert again == pytest.approx(long_s, rel=5e-3)


def test_streams_in_turn_with_products_leave_what_they_do_not_draw(tmp_path: Path) -> None:
    """Products of 2 ms alone, 1.6 ms in turn with streams of 1 ms: of 2 units of energy a step of 2.6 has 2.6 - w."""
    rows = [
        {"work": "product", "side": 8192, "time_s": 2e-3, "burst_s": 1.4e-3},
        {"work": "stream", "time_s": 0.25e-3, "burst_s": 0.25e-3},
        {"work": "mixture", "side": 8192, "repeats": 4, "time_s": 2.6e-3, "burst_s": 2.4e-3},
    ]
    gpu = find_gpu("b200")
    found = factors(folder_of(tmp_path, rows), gpu)
    assert found["stream"] == pytest.approx(0.6)
    device = held(gpu, **found)
    product = kernel_cost(steady_device(device), PRODUCT)
    waits = replace(product, bound="memory", time_s=product.time_s / 2)
    assert budgeted(device, [product, waits]).drawn == pytest.approx(2.0 / 1.6, abs=0.01)


def test_a_board_that_holds_its_clock_keeps_it(tmp_path: Path) -> None:
    gpu = find_gpu("h100-pcie")
    free_s = kernel_cost(replace(gpu, board_power_W=2000.0), PRODUCT).time_s
    rows = [{"work": "product", "side": 8192, "time_s": free_s, "burst_s": free_s}]
    found = factors(folder_of(tmp_path, rows), gpu)
    assert kernel_cost(steady_device(held(gpu, **found)), PRODUCT).time_s == pytest.approx(free_s, rel=0.03)
    assert found["burst"] == 1.0


def test_a_measured_burst_replaces_that_of_the_generation() -> None:
    hopper, blackwell = find_gpu("h100-sxm5-80gb"), find_gpu("b200")
    assert kernel_cost(held(hopper, burst=1.2), PRODUCT).time_s < kernel_cost(hopper, PRODUCT).time_s
    calm = held(blackwell, burst=1.0)
    assert kernel_cost(calm, PRODUCT).time_s == kernel_cost(steady_device(calm), PRODUCT).time_s


@pytest.mark.parametrize("name", ["k80", "gtx-1080-ti", "p4", "v100-pcie-32gb", "t4", "mi25", "mi100"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_before_ampere_no_kernel_gains_more_than_the_clock(name: str, precision: Precision) -> None:
    gpu = find_gpu(name)
    steady, rested = steady_device(gpu), rested_device(gpu)
    slower = min(sustained_clock(steady, each) / sustained_clock(rested, each) for each in PRECISIONS)
    assert holds_back(steady, rested, 0.0) == (slower < 1.0)
    operators = {
        layer.operator for name in ("efficientnet-b0", "bert-base") for layer in build_network(name, batch=8).layers
    }
    for operator in operators:
        for phase in ("fwd", "bwd_data", "bwd_weight"):
            for kernel in operator.kernels(phase, precision):  # type: ignore[arg-type]
                gained_s = kernel_cost(rested, kernel).time_s
                assert gained_s >= kernel_cost(steady, kernel).time_s * slower * (1.0 - 1e-12)


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "v100-sxm2-32gb"])
def test_a_v100_multiplies_numbers_at_less_than_its_boost_clock(name: str) -> None:
    """DeepBench multiplies zeros, up to 15 % faster than numbers (baidu-research/DeepBench issue 104)."""
    gpu = find_gpu(name)
    steady = steady_device(gpu)
    assert isinstance(steady, Gpu)
    assert sustained_clock(gpu, "fp16") == gpu.boost_clock_Hz
    assert sustained_clock(steady, "fp16") == pytest.approx(gpu.boost_clock_Hz / 1.15, rel=5e-3)
    assert sustained_clock(steady, "fp32") == sustained_clock(gpu, "fp32")
    assert kernel_cost(steady, PRODUCT).time_s > 1.1 * kernel_cost(gpu, PRODUCT).time_s
    on_numbers = replace(gpu, calibration=Calibration(by_class={"gemm": 1.1}))
    assert kernel_cost(steady_device(on_numbers), PRODUCT).time_s == kernel_cost(on_numbers, PRODUCT).time_s


def test_a_step_says_which_clock_its_kernels_have_and_how_much_it_costs() -> None:
    def advised(name: str, precision: Any = "fp16", **clocks: float) -> StepClock | None:
        session = Session({name: Calibration(clocks=clocks)} if clocks else {})
        options, sizes = StepOptions(precision=precision), (("layers", 1),)
        question = StepQuestion(where=Where(name), workload="llama2-7b", batch=1, options=options, sizes=sizes)
        return session.advised(question).clock

    for name, state in (("b200", "sustained"), ("l40s", "held"), ("gtx-1080-ti", "sustained")):
        clock = advised(name)
        assert clock is not None
        assert clock.state == state
        assert clock.rested_s < 0.97 * clock.kernels_s
    measured = advised("b200", power=0.5)
    assert measured is not None
    assert measured.state == "measured"
    assert measured.kernels_s > 1.1 * measured.rested_s
    assert advised("v100-sxm2-16gb", "fp32") is None  # its power holds the boost clock


def test_clocks_of_a_file_are_named_and_few(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema_version: 1\ndevices:\n  b200:\n    clocks: {power: 0.9, burst: 1.3}\n", encoding="utf-8")
    assert load_calibration(path)["b200"].clocks == {"power": 0.9, "burst": 1.3}
    path.write_text("schema_version: 1\ndevices:\n  b200:\n    clocks: {powr: 0.9}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"mine.yaml:4:14: .*'powr'.*power"):
        load_calibration(path)


torch = pytest.importorskip("torch")
from tests.clocked_cuda import ClockedBench, clocked_bench  # noqa: E402
from validate.machine.measure import run  # noqa: E402
from validate.machine.measure.case import Unavailable, cases_of  # noqa: E402
from validate.machine.measure.cases import clocks  # noqa: E402
from validate.machine.measure.cases.shapes import CallLimits  # noqa: E402

_PRODUCT_S, _STREAM_S, _LIMITER_S, _SLOWED = 1e-3, 0.5e-3, 5e-3, 1.5


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ClockedBench:
    """A GPU whose products take half as long again after 5 ms of work; each second of rest fills the store."""
    found = clocked_bench(monkeypatch, tmp_path)
    kernel_s = torch.cuda._sleep
    worked = {"s": 0.0}
    rested = clocks.time.sleep

    def takes(seconds: float, slowed: float) -> None:
        seconds *= slowed if worked["s"] >= _LIMITER_S else 1.0
        worked["s"] += seconds
        kernel_s(seconds * 1.5e9)

    def rest(seconds: float) -> None:
        worked["s"] = 0.0
        rested(seconds)

    monkeypatch.setattr(clocks.time, "sleep", rest)
    seconds = {torch.mm: (_PRODUCT_S, _SLOWED), torch.add: (_STREAM_S, 1.0)}
    monkeypatch.setattr(clocks, "_into", lambda function, *_: takes(*seconds[function]))
    monkeypatch.setattr(clocks, "_SIDE", 16)
    monkeypatch.setattr(clocks, "_LEAST_SIDE", 16)
    monkeypatch.setattr(clocks, "_ELEMENTS", 64)
    monkeypatch.setattr(clocks, "call_limits", lambda _: CallLimits(1e9, 1e9, ("fp32", "fp16", "bf16")))
    return found


def test_ten_seconds_show_burst_and_sustained_times(
    bench: ClockedBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "open_bench", lambda device, scratch: bench)
    monkeypatch.setattr(run, "environment", lambda bench: {"device": bench.name})
    out, said = tmp_path / "out", list[str]()
    began_s = clocks.time.perf_counter()
    assert run.measure(run.Settings(out, ("clocks",), "cuda:0"), said.append) == 0
    assert clocks.time.perf_counter() - began_s < 12.0
    assert json.loads((out / "run.json").read_text())["left"] == []
    rows = {row["work"]: row for row in csv.DictReader((out / "clocks.csv").read_text(encoding="utf-8").splitlines())}
    assert {work: row["dtype"] for work, row in rows.items()} == {
        "product": "bf16",
        "stream": "fp32",
        "mixture": "bf16",
    }
    assert float(rows["product"]["burst_s"]) == pytest.approx(_PRODUCT_S, rel=0.03)
    assert float(rows["product"]["time_s"]) == pytest.approx(_SLOWED * _PRODUCT_S, rel=0.03)
    assert float(rows["stream"]["time_s"]) == pytest.approx(_STREAM_S, rel=0.08)
    turns = int(rows["mixture"]["repeats"])
    assert turns == round(_SLOWED * _PRODUCT_S / _STREAM_S)
    assert float(rows["mixture"]["time_s"]) == pytest.approx(_SLOWED * _PRODUCT_S + turns * _STREAM_S, rel=0.05)


def test_a_cpu_has_no_clocks_to_measure(bench: ClockedBench) -> None:
    with pytest.raises(Unavailable, match="CPU"):
        cases_of("clocks", run.Bench(torch.device("cpu"), "cpu", 1 << 30, 1 << 20, bench.scratch))
