"""How fast a device multiplies: the peak of the data sheet, at the clock that it holds."""

from __future__ import annotations

from simulator.devices.gpu.clock import sustained_clock, working_clock
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.units import computes_in_fp32, computes_on_tensor_cores, multiplies_bytes
from simulator.workload.precision import Precision

__all__ = [
    "BYTES_AT_ONCE",
    "arithmetic_rate",
    "compute_rate",
    "held",
    "tensor_rate",
]

BYTES_AT_ONCE = 4.0  # that a lane multiplies and adds in place of two numbers of fp32 (dp4a)


def held(gpu: Gpu, peak_flops_per_s: float, precision: Precision, energy: float = 1.0) -> float:
    """Return what is left of a peak rate in *precision* at the clock that is held; *energy* as :func:`compute_rate`."""
    return peak_flops_per_s * sustained_clock(gpu, precision, energy) / gpu.boost_clock_Hz


def compute_rate(gpu: Gpu, precision: Precision, energy: float = 1.0) -> float:
    """Return the peak rate, in FLOP/s, at the clock that is held; *energy*: of a clock, against a large product's."""
    return held(gpu, gpu.peak(precision), precision, energy)


def tensor_rate(gpu: Gpu, precision: Precision) -> float:
    """Return the rate of tensor cores, in FLOP/s, at the clock they work at; 0 where none serve *precision*.

    Their energy counts besides (:func:`simulator.devices.gpu.clock.energy_time`).

    Raises InputError where the device has no figure for *precision*.
    """
    if computes_in_fp32(gpu, precision) or multiplies_bytes(gpu, precision):
        return 0.0
    found = gpu.peak(precision) * working_clock(gpu, precision) / gpu.boost_clock_Hz
    return found if computes_on_tensor_cores(gpu, precision) else 0.0


def arithmetic_rate(gpu: Gpu, precision: Precision) -> float:
    """Return the peak rate of products in FLOP/s at the boost clock.

    What :func:`computes_in_fp32` says is computed at that rate.  AMD's matrix cores take fp32 too.

    Raises InputError where the data sheet has no figure for *precision*, and no other way is known.
    """
    peak = gpu.peak_flops_per_s
    if precision == "fp32" and "fp32_matrix" in peak:
        return peak["fp32_matrix"]
    if "fp32" in peak:
        if multiplies_bytes(gpu, precision):
            return BYTES_AT_ONCE * peak["fp32"]
        if computes_in_fp32(gpu, precision):
            return peak["fp32"]
    return gpu.peak(precision)
