"""GPU rates at the sustained clock and on tensor cores where they support a format, and the bound of a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.devices import bound_of
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.gpu.rates import (
    arithmetic_rate,
    compute_rate,
    computes_in_fp32,
    multiplies_bytes,
    sustained_clock,
    tensor_rate,
)
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from simulator.workload.kernels import Gemm
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


# -- power limits ----------------------------------------------------------------------


def test_a_board_holds_more_the_more_it_may_draw() -> None:
    l4 = find_gpu("l4")
    clocks = [sustained_clock(replace(l4, board_power_W=watts, base_clock_Hz=0.0), "fp32") for watts in (40, 72, 150)]
    assert clocks[0] < clocks[1] < clocks[2] <= l4.boost_clock_Hz


def test_the_voltage_of_small_transistors_has_a_floor_that_a_card_of_72_watts_meets() -> None:
    """8.9 TFLOP/s were measured, where tiles leave three quarters of the peak (NeuSight)."""
    l4 = find_gpu("l4")
    assert 0.35 * l4.boost_clock_Hz < sustained_clock(l4, "fp32") < 0.45 * l4.boost_clock_Hz
    # Below the floor, power is proportional to the clock: 24 W go to memory, regulators and fans.
    half, whole = (replace(l4, board_power_W=watts, base_clock_Hz=0.0) for watts in (44.0, 68.0))
    assert sustained_clock(whole, "fp32") == pytest.approx(2 * sustained_clock(half, "fp32"), rel=0.05)


def test_matrix_units_draw_less_than_lanes_in_a_clock() -> None:
    """A T4 in fp16: 39 TFLOP/s in the median of large products, 46 at most (DeepBench)."""
    t4 = find_gpu("t4")
    assert 39e12 < compute_rate(t4, "fp16") < 55e12
    assert sustained_clock(t4, "fp32") < 0.8 * sustained_clock(t4, "fp16")


def test_tensor_cores_multiply_bytes_where_there_are_such() -> None:
    for name in ("t4", "a100-sxm4-80gb"):
        gpu = find_gpu(name)
        assert not multiplies_bytes(gpu, "int8")
        assert tensor_rate(gpu, "int8") > tensor_rate(gpu, "fp16")
    assert multiplies_bytes(find_gpu("titan-xp"), "int8")


@pytest.mark.parametrize(("device", "on_lanes"), [("rtx-4090", True), ("l40s", False), ("a100-sxm4-80gb", False)])
def test_tf32_is_never_slower_than_fp32(device: str, on_lanes: bool) -> None:
    gpu = find_gpu(device)
    assert computes_in_fp32(gpu, "tf32") is on_lanes
    tf32, fp32 = (kernel_cost(gpu, Gemm(4096, 4096, 4096, precision)).time_s for precision in ("tf32", "fp32"))
    assert tf32 == fp32 if on_lanes else tf32 < fp32


@pytest.mark.parametrize(("device", "least", "most"), [("b200", 1.5, 1.9), ("h100-sxm5-80gb", 2.1, 2.6)])
def test_blackwell_takes_operands_of_32_bits_as_they_lie(device: str, least: float, most: float) -> None:
    """Compared with bf16: B200 reaches 702 of 1,161 TFLOP/s in tf32, H100 302 of 688 (XLA, medians)."""
    tf32, bf16 = (kernel_cost(find_gpu(device), Gemm(8192, 8192, 8192, p)).time_s for p in ("tf32", "bf16"))  # type: ignore[arg-type]
    assert least < tf32 / bf16 < most


# -- check bits ------------------------------------------------------------------------


@pytest.mark.parametrize(("read_share", "least", "most"), [(1.0, 0.92, 0.97), (0.5, 0.72, 0.78)])
def test_check_bits_in_memory_cost_what_reads_and_writes_in_turn(read_share: float, least: float, most: float) -> None:
    """A T4 reads at 96 % of its data sheet's bandwidth and copies at 74 % (DeepBench, NeuSight)."""
    t4 = find_gpu("t4")
    assert least < achieved_bandwidth(t4, read_share) / t4.memory_bandwidth_Bps < most
    without = replace(t4, inline_ecc=False)
    assert achieved_bandwidth(without, 0.5) > 0.9 * t4.memory_bandwidth_Bps
