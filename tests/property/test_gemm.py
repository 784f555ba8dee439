"""Matrix products of any size on any device: never faster than physics, never faster for more work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.constants import DEFAULT
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.gemm import gemm_cost, product_time
from simulator.devices.gpu.rates import arithmetic_rate, sustained_clock
from simulator.workload.kernels import Gemm
from tests.devices import find_gpu
from tests.examples import few

POWER = DEFAULT["power"]

_NAMES = ("m40", "p4", "p100-pcie-16gb", "t4", "v100-sxm2-16gb", "a100-sxm4-80gb", "l4", "h100-sxm5-80gb", "mi210")
GPUS = [find_gpu(name) for name in _NAMES]
sizes = st.integers(1, 20000)
layouts = st.sampled_from(("NN", "NT", "TN"))
gpus = st.sampled_from(GPUS)


@given(gpus, sizes, sizes, sizes, st.integers(1, 300), layouts)
@settings(max_examples=few(300))
def test_no_product_beats_the_peak_at_the_sustained_clock(
    gpu: Gpu, m: int, n: int, k: int, batch: int, layout: str
) -> None:
    kernel = Gemm(m, n, k, "fp32", batch, layout)  # type: ignore[arg-type]
    cost = gemm_cost(gpu, kernel)
    rate = arithmetic_rate(gpu, "fp32") * sustained_clock(gpu, "fp32") / gpu.boost_clock_Hz
    assert cost.time_s > cost.flop / rate
    assert cost.time_s > 1e-6


@given(gpus, sizes, sizes, sizes, layouts)
@settings(max_examples=few(200))
def test_twice_the_depth_takes_longer(gpu: Gpu, m: int, n: int, k: int, layout: str) -> None:
    once, twice = (product_time(gpu, Gemm(m, n, depth, "fp32", layout=layout)).time_s for depth in (k, 2 * k))
    assert twice >= once * (1.0 - 1e-9)


@given(gpus, sizes, sizes, st.integers(64, 4096))
@settings(max_examples=few(200))
def test_four_times_the_rows_take_no_less(gpu: Gpu, m: int, n: int, k: int) -> None:
    few, many = (product_time(gpu, Gemm(rows, n, k, "fp32")).time_s for rows in (m, 4 * m))
    assert many >= 0.99 * few


@given(gpus, st.integers(1, 64), sizes, sizes)
@settings(max_examples=few(100))
def test_more_memory_bandwidth_never_slows(gpu: Gpu, m: int, n: int, k: int) -> None:
    faster = replace(gpu, memory_bandwidth_Bps=2.0 * gpu.memory_bandwidth_Bps)
    slow, fast = (product_time(g, Gemm(m, n, k, "fp32")).time_s for g in (gpu, faster))
    assert fast <= slow * (1.0 + 1e-9)


@given(gpus, st.floats(20.0, 1000.0), st.floats(1.01, 3.0))
def test_more_power_never_lowers_the_clock(gpu: Gpu, power_W: float, factor: float) -> None:
    low, high = (
        sustained_clock(replace(gpu, board_power_W=watt, base_clock_Hz=0.0), "fp32")
        for watt in (power_W, power_W * factor)
    )
    assert 0.0 < low <= high <= POWER.headroom * gpu.boost_clock_Hz
    if gpu.name != "p4":  # the only one of these boards that exceeds it
        assert high <= gpu.boost_clock_Hz


def test_a_small_card_of_many_lanes_does_not_hold_its_boost_clock() -> None:
    by_name = {gpu.name: sustained_clock(gpu, "fp32") / gpu.boost_clock_Hz for gpu in GPUS}
    assert 0.4 < by_name["t4"] < 0.65
    assert 0.4 < by_name["l4"] < 0.65
    assert by_name["p4"] > 0.8
    assert by_name["p100-pcie-16gb"] == by_name["a100-sxm4-80gb"] == by_name["h100-sxm5-80gb"] == 1.0


def test_a_card_never_falls_below_its_base_clock() -> None:
    t4 = next(gpu for gpu in GPUS if gpu.name == "t4")
    starved = replace(t4, board_power_W=25.0)
    assert sustained_clock(starved, "fp32") == pytest.approx(t4.base_clock_Hz)
