"""Arithmetic rates of a device: the data sheet's peak at the clock that the device sustains."""

from __future__ import annotations

from simulator.devices.gpu.clock import sustained_clock, working_clock
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.units import computes_in_fp32, computes_on_tensor_cores, multiplies_bytes
from simulator.workload.precision import Precision

BYTES_AT_ONCE = 4.0  # int8 multiply-adds of a lane in the time of one in fp32 (dp4a)


def held(gpu: Gpu, peak_flops_per_s: float, precision: Precision, energy: float = 1.0) -> float:
    """Return a peak rate in *precision*, scaled to the sustained clock; *energy* as for :func:`compute_rate`."""
    return peak_flops_per_s * sustained_clock(gpu, precision, energy) / gpu.boost_clock_Hz


def compute_rate(gpu: Gpu, precision: Precision, energy: float = 1.0) -> float:
    """Return the peak rate, in FLOP/s, at the sustained clock; *energy*: per clock, relative to a large product's."""
    return held(gpu, gpu.peak(precision), precision, energy)


def tensor_rate(gpu: Gpu, precision: Precision) -> float:
    """Return the rate of tensor cores, in FLOP/s, at their working clock; 0 where none serve *precision*.

    Their energy is a separate limit (:func:`simulator.devices.gpu.clock.energy_time`).
    """
    if computes_in_fp32(gpu, precision) or multiplies_bytes(gpu, precision):
        return 0.0
    found = gpu.peak(precision) * working_clock(gpu, precision) / gpu.boost_clock_Hz
    return found if computes_on_tensor_cores(gpu, precision) else 0.0


def arithmetic_rate(gpu: Gpu, precision: Precision) -> float:
    """Return the peak rate of matrix products, in FLOP/s, at the boost clock.

    Precisions for which :func:`computes_in_fp32` holds have the rate of fp32.  AMD's matrix cores take fp32 too.

    Raises InputError where the data sheet has no figure for *precision* and no other unit computes it.
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
