"""Rates of GPUs: at the clock that is held, on tensor cores where these serve a format; and what bounds a time."""

from __future__ import annotations

import pytest

from simulator.devices.cost import bound_of
from simulator.devices.gpu.clock import sustained_clock
from simulator.devices.gpu.rates import compute_rate, tensor_rate
from simulator.errors import InputError
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
