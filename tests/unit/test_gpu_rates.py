"""Rates of GPUs: at the clock that is held, on tensor cores where these serve a format; and what bounds a time."""

from __future__ import annotations

import pytest

from simulator.devices.cost import bound_of
from simulator.devices.gpu.clock import sustained_clock
from simulator.devices.gpu.rates import arithmetic_rate, compute_rate, tensor_rate
from simulator.devices.kernels import Gemm
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from tests.devices import find_gpu


def test_tensor_cores_serve_narrow_formats_only_and_where_there_are_any() -> None:
    t4, p100 = find_gpu("t4"), find_gpu("p100-pcie-16gb")
    assert tensor_rate(t4, "fp32") == tensor_rate(p100, "fp16") == 0.0
    assert tensor_rate(t4, "fp16") == compute_rate(t4, "fp16") > compute_rate(t4, "fp32")
    with pytest.raises(InputError, match="no peak rate for fp8"):
        tensor_rate(t4, "fp8")


def test_a_card_of_70_watts_holds_a_part_of_its_rate_and_more_of_it_where_a_clock_takes_less_energy() -> None:
    t4 = find_gpu("t4")
    assert compute_rate(t4, "fp32") == t4.peak("fp32") * sustained_clock(t4, "fp32") / t4.boost_clock_Hz
    assert compute_rate(t4, "fp32") < compute_rate(t4, "fp32", 0.5) < t4.peak("fp32")


@pytest.mark.parametrize(
    ("time_s", "compute_s", "memory_s", "bound"),
    [(3.0, 2.0, 1.0, "compute"), (3.0, 1.0, 2.0, "memory"), (5.0, 2.0, 1.0, "latency"), (4.0, 2.0, 1.0, "compute")],
)
def test_latency_bounds_where_neither_explains_half(
    time_s: float, compute_s: float, memory_s: float, bound: str
) -> None:
    assert bound_of(time_s, compute_s, memory_s) == bound


def test_fp16_on_a_chip_with_one_unit_for_64_of_fp32_is_computed_in_fp32() -> None:
    few, half, tensor = find_gpu("gtx-1080"), find_gpu("p100-pcie-16gb"), find_gpu("v100-sxm2-16gb")
    assert few.peak("fp16") < few.peak("fp32") / 60
    assert arithmetic_rate(few, "fp16") == few.peak("fp32")
    assert tensor_rate(few, "fp16") == tensor_rate(find_gpu("gtx-980"), "fp16") == 0.0
    assert arithmetic_rate(half, "fp16") == half.peak("fp16") > half.peak("fp32")
    assert arithmetic_rate(tensor, "fp16") == tensor.peak("fp16")


def _before_tensor_cores() -> list[str]:
    parts = {name: load_part(name) for name in part_names("gpu")}
    return [n for n, p in parts.items() if isinstance(p, GpuPart) and p.architecture.startswith(("Pascal", "Maxwell"))]


@pytest.mark.parametrize("name", _before_tensor_cores())
def test_before_tensor_cores_a_product_in_fp16_takes_no_longer_than_in_fp32(name: str) -> None:
    gpu = find_gpu(name)
    times = [kernel_cost(gpu, Gemm(2048, 2048, 2048, precision)).time_s for precision in ("fp32", "fp16")]
    assert times[0] / 2.5 < times[1] <= times[0]
