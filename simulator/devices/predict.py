"""The cost of a kernel or an operator on a device, dispatched by kernel class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from simulator.devices.cost import Bound, KernelCost
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_kernel_cost
from simulator.devices.gpu.attention import attention_cost
from simulator.devices.gpu.convolution import convolution_cost
from simulator.devices.gpu.gather import gather_cost
from simulator.devices.gpu.gemm import gemm_cost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.pooling import pooling_cost
from simulator.devices.gpu.rates import held
from simulator.devices.gpu.recurrence import recurrence_cost
from simulator.devices.gpu.rowwise import rowwise_cost
from simulator.devices.gpu.streaming import streaming_cost
from simulator.devices.kernels import (
    Convolution,
    FusedAttention,
    Gather,
    Gemm,
    Kernel,
    Pooling,
    Recurrence,
    Rowwise,
    Streaming,
)
from simulator.devices.lowering import lower_operator
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.workload.operators import Operator, Phase
from simulator.workload.precision import PACKED, Precision

__all__ = ["KERNEL_CLASSES", "Device", "cold_device", "kernel_class", "kernel_cost", "operator_costs", "steady_device"]

Device = Gpu | Cpu

_COSTS: dict[type, Callable[[Gpu, Any], KernelCost]] = {
    Gemm: gemm_cost,
    Streaming: streaming_cost,
    Rowwise: rowwise_cost,
    Pooling: pooling_cost,
    Gather: gather_cost,
    Convolution: convolution_cost,
    Recurrence: recurrence_cost,
    FusedAttention: attention_cost,
}
KERNEL_CLASSES = tuple(kind.__name__.lower() for kind in _COSTS)


def kernel_class(kernel: Kernel) -> str:
    """Return the name of *kernel*'s class in a calibration."""
    return type(kernel).__name__.lower()


@lru_cache(maxsize=65536)
def kernel_cost(device: Device, kernel: Kernel, cold: float = 0.0) -> KernelCost:
    """Return the cost of *kernel* on *device*, from its start to its end on the device.

    Parameters
    ----------
    cold : float
        Share of the bytes moved that caches do not hold at the start, though they would fit: parameters last used
        a step ago, or operands of a measurement that cycles through more buffers than caches hold.  The time is
        linear between 0 (all cached) and 1 (none cached).

    Raises InputError where the device has no figure for the kernel's precision.
    """
    if kernel_class(kernel) in device.calibration.by_data_sheet:
        return kernel_cost(_by_data_sheet(device), kernel, cold)
    if cold > 0.0:
        warm, whole = kernel_cost(device, kernel), kernel_cost(cold_device(device), kernel)
        if cold >= 1.0:
            return whole
        return replace(whole if cold > 0.5 else warm, time_s=warm.time_s + cold * (whole.time_s - warm.time_s))
    if isinstance(kernel, Gemm | Convolution) and kernel.precision == "int4":
        return _packed_cost(device, kernel)
    cost = cpu_kernel_cost(device, kernel) if isinstance(device, Cpu) else _COSTS[type(kernel)](device, kernel)
    factor = device.calibration.by_class.get(kernel_class(kernel), 1.0)
    return cost if factor == 1.0 else replace(cost, time_s=cost.time_s * factor)


def _packed_cost(device: Device, kernel: Gemm | Convolution) -> KernelCost:
    """Return the cost of a product of 4-bit numbers: that of int8 with half the reduction, two numbers per byte.

    It takes at least the time at the 4-bit peak rate; raises InputError where the device has no such rate.
    """
    if isinstance(device, Cpu):
        raise InputError(f"{device.name}: a CPU does not compute in int4; int8 where it has that")
    least_s = kernel.flop / held(device, device.peak("int4"), "int8")
    halved: Kernel
    if isinstance(kernel, Gemm):
        halved = replace(kernel, precision="int8", k=-(-kernel.k // PACKED))
    else:
        shape = kernel.shape
        channels = -(-shape.c_in // (PACKED * shape.groups)) * shape.groups
        halved = replace(kernel, precision="int8", shape=replace(shape, c_in=channels))
    cost = kernel_cost(device, halved)
    bound: Bound = "compute" if least_s > cost.time_s else cost.bound
    return replace(cost, time_s=max(least_s, cost.time_s), bound=bound, flop=float(kernel.flop))


@lru_cache(maxsize=256)
def cold_device(device: Device) -> Device:
    """Return *device* with caches that hold none of a kernel's data when it starts."""
    return replace(device, is_cold=True)


@lru_cache(maxsize=256)
def steady_device(device: Device) -> Device:
    """Return *device* after minutes of load, when it is hot and does not exceed its boost clock.

    A board that may exceed its boost clock does so while it is cool, as in a measurement of one operator; the boost
    clock is the vendor's figure for sustained load.
    """
    return replace(device, above_boost=False) if isinstance(device, Gpu) and device.above_boost else device


@lru_cache(maxsize=256)
def _by_data_sheet(device: Device) -> Device:
    """Return *device* without its calibration."""
    return replace(device, calibration=Calibration())


def operator_costs(device: Device, operator: Operator, phase: Phase, precision: Precision) -> tuple[KernelCost, ...]:
    """Return the costs of the kernels of *operator* in *phase*, in order; raises as :func:`kernel_cost` does."""
    return tuple(kernel_cost(device, kernel) for kernel in lower_operator(operator, phase, precision))
