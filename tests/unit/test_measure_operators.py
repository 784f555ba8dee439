"""Measured operators, and the sensor readings meanwhile."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from validate.machine.measure import bench as benches  # noqa: E402  needs torch
from validate.machine.measure import run as runs  # noqa: E402
from validate.machine.measure.case import (  # noqa: E402
    GROUPS,
    Unavailable,
)
from validate.machine.measure.cases.operators import cases as operator_cases  # noqa: E402
from validate.machine.measure.cases.shapes import CallLimits, Cells, shapes, sized  # noqa: E402
from validate.machine.measure.table import COLUMNS  # noqa: E402


@pytest.fixture
def cpu_bench(tmp_path: Path) -> benches.Bench:
    bench = benches.open_bench("cpu", tmp_path)
    return replace(bench, cache_bytes=min(bench.cache_bytes, 16 << 20))  # cold cases need three times the cache


@pytest.mark.slow
def test_every_class_of_operator_runs(cpu_bench: benches.Bench) -> None:
    """Run one case of each operator, phase and mode, with warm and cold caches."""
    seen: set[tuple[str, ...]] = set()
    for case in operator_cases(cpu_bench):
        kind = tuple(str(case.columns.get(name)) for name in ("op", "phase", "cache"))
        if kind in seen or case.needs_bytes > 2e8:
            continue
        seen.add(kind)
        work = case.build(cpu_bench)
        for i in range(min(work.at_least, 3)):
            assert work.call(i) is not None
        assert set(case.columns) <= set(COLUMNS["ops.csv"])
    ops = {op for op, _, _ in seen}
    assert ops >= {"linear", "matmul", "bmm", "conv2d", "layer_norm", "softmax", "elementwise", "batch_norm"}
    assert ops >= {"embedding", "attention", "lstm", "gru"}
    assert {phase for op, phase, _ in seen if op == "conv2d"} == {"fwd", "bwd_data", "bwd_weight"}
    assert {cache for _, _, cache in seen} == {"warm", "cold"}


def test_shapes_are_the_same_everywhere_and_their_beginning_is_a_fair_sample() -> None:
    limits = CallLimits(1e12, 1e9, ("fp32", "tf32", "fp16", "bf16", "fp8"))
    first = [shape.cells for shape in shapes(limits, 300)]
    assert first == [shape.cells for shape in shapes(limits, 300)]
    assert len({json.dumps(cells, sort_keys=True) for cells in first}) == 300
    beginning = {str(cells["op"]) for cells in first[:40]}
    assert beginning >= {"linear", "conv2d", "bmm", "matmul", "softmax", "layer_norm", "elementwise"}
    assert {str(cells["dtype"]) for cells in first[:60]} >= {"fp32", "tf32", "fp16", "bf16"}
    for shape in shapes(limits, 300):
        assert shape.flop <= 1e12
        assert shape.bytes <= 1e9


def test_an_image_has_a_height_and_a_width() -> None:
    cells: Cells = {"op": "conv2d", "phase": "fwd", "dtype": "fp32", "batch": 2, "c_in": 3, "c_out": 8}
    cells |= {"h_in": 10, "w_in": 30, "kernel_h": 1, "kernel_w": 5, "stride": 1, "stride_w": 2, "pad": 0, "pad_w": 2}
    found = sized(cells)
    assert found.flop == 2 * 2 * 8 * (10 * 15) * (3 * 5)
    assert found.bytes == 3 * 4 * (2 * (3 * 10 * 30 + 8 * 10 * 15) + 8 * 3 * 5)


def test_a_gpu_is_measured_from_graphs_alone_and_with_cold_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    gpu = benches.Bench(SimpleNamespace(type="cuda"), "gpu", 70 << 30, 50 << 20, Path())
    found = list(operator_cases(gpu))
    assert {c.columns["dtype"] for c in found} == {"fp32", "tf32", "fp16", "bf16", "fp8"}
    ways = [(c.columns["includes_dispatch"], c.columns["cache"]) for c in found]
    assert min(ways.count(way) for way in ((0, "warm"), (1, "warm"), (0, "cold"))) > 20
    assert max(c.needs_bytes for c in found) < gpu.memory_bytes
    keys = [json.dumps(dict(c.columns), sort_keys=True) for c in found]
    assert len(set(keys)) == len(keys)


def test_all_groups_have_a_module(cpu_bench: benches.Bench) -> None:
    for name in GROUPS:
        try:
            cases = list(itertools.islice(runs.cases_of(name, cpu_bench), 3))
        except Unavailable:  # a single device has no collectives, for example
            continue
        for case in cases:
            assert set(case.columns) <= set(COLUMNS[case.table])


def test_sensors_that_are_not_there_say_nothing() -> None:
    from validate.machine.measure.bench import Readings, Sensors

    sensors = Sensors("")
    sensors.look()
    assert sensors.limits() == {}
    assert sensors.take() == Readings()
    assert sensors.limits() == {}


def test_sensors_read_and_never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a fake NVML that has no functions that set anything."""
    import ctypes

    from validate.machine.measure import bench as module

    class Nvml:  # its functions have the names that the library gives them
        def nvmlInit_v2(self) -> int:  # noqa: N802
            return 0

        def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
            return 0 if uuid == b"GPU-6f1d" else 6

        def nvmlDeviceGetFieldValues(self, handle: Any, count: int, field: Any) -> int:  # noqa: N802
            assert (count, field._obj.fieldId, ctypes.sizeof(field._obj)) == (1, 186, 40)
            field._obj.value, field._obj.nvmlReturn = self.instant_mw, 0 if self.instant_mw else 3
            return 0

        instant_mw = 0

        def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:  # noqa: N802
            value._obj.value = 651_000
            return 0

        def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, value: Any) -> int:  # noqa: N802
            value._obj.value = {1: 1755, 2: 2619}[kind]
            return 0

        def nvmlDeviceGetTemperature(self, handle: Any, kind: int, value: Any) -> int:  # noqa: N802
            return 3  # not supported

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:  # noqa: N802
            value._obj.value = 0x4 | 0x40
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Nvml())
    found = module.Sensors("6f1d")
    module.Sensors("7f1d").look()  # reads nothing: there is no such GPU
    found.look()
    readings = found.take()
    assert (readings.sm_clock_MHz, readings.memory_clock_MHz, readings.power_W) == (1755, 2619, 651)
    assert readings.temperature_C is None
    assert readings.throttled == "hardware thermal; power cap"
    assert found.take().power_W is None
    monkeypatch.setattr(Nvml, "instant_mw", 702_000)
    found._last_s = 0.0
    found.look()
    assert found.take().power_W == 702
    assert found.limits() == {}

    def most(_: Any, handle: Any, kind: int, value: Any) -> int:
        value._obj.value = {1: 1980, 2: 2619}[kind]
        return 0

    monkeypatch.setattr(Nvml, "nvmlDeviceGetMaxClockInfo", most, raising=False)
    assert found.limits() == {"max_sm_clock_MHz": 1980, "max_memory_clock_MHz": 2619}

    def limit(_: Any, handle: Any, value: Any) -> int:
        value._obj.value = 700_000
        return 0

    monkeypatch.setattr(Nvml, "nvmlDeviceGetEnforcedPowerLimit", limit, raising=False)
    for power_w, throttled in ((702, "hardware thermal; power cap"), (122, "hardware thermal")):
        monkeypatch.setattr(Nvml, "instant_mw", 1000 * power_w)
        found._last_s = 0.0
        found.look()
        assert found.take().throttled == throttled, "a board far below its limit remembers the work before"
