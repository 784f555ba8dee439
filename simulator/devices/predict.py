"""The cost of a kernel or an operator on a device, dispatched by kernel class."""

import importlib
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from simulator.devices import Bound, KernelCost
from simulator.devices.cpu import Cpu
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import held
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.records import replace
from simulator.workload.kernels import Kernel, Product, kernel_class
from simulator.workload.operators import Convolution, Operator, Phase
from simulator.workload.precision import PACKED, Precision

Device = Gpu | Cpu

_CHANNELS_AT_ONCE = 4  # of tf32 in 16 bytes
_PACKED_IN: dict[Precision, Precision] = {"int4": "int8", "nvfp4": "fp8"}  # two elements in a byte


def allowed_ways(kernel: Kernel) -> tuple[Kernel, ...]:
    """Return *kernel* in the formats in which a library may compute it: tf32 is allowed, not demanded."""
    if not kernel.of_library or not isinstance(kernel, Product) or kernel.precision != "tf32":
        return (kernel,)
    on_lanes = replace(kernel, precision="fp32")
    if not isinstance(kernel, Convolution) or kernel.direction == "bwd_data" or kernel.channels_last:
        return kernel, on_lanes
    has_few = kernel.shape.c_in // kernel.shape.groups < _CHANNELS_AT_ONCE
    return (on_lanes,) if has_few else (kernel, on_lanes)


@lru_cache(maxsize=65536)
def kernel_cost(device: Device, kernel: Kernel, cold: float = 0.0) -> KernelCost:
    """Return the cost of *kernel* on *device*, corrected by measured neighbours; raises InputError without a figure.

    *cold*: share of the bytes moved that caches lack at the start, though they would fit, as parameters last used a
    step ago; the time is linear between 0 (all cached) and 1 (none).
    """
    cost = _cost_by_factors(device, kernel, cold)
    if not device.calibration.neighbours:
        return cost
    from simulator.devices.neighbours import correction, known_share, neighbours_of

    neighbours = neighbours_of(device.calibration.neighbours, kernel)
    if neighbours is None:
        return cost
    return replace(cost, time_s=cost.time_s * correction(neighbours, kernel), known=known_share(neighbours, kernel))


@lru_cache(maxsize=65536)
def _cost_by_factors(device: Device, kernel: Kernel, cold: float = 0.0) -> KernelCost:
    """Return the cost by the device's factors alone; parameters and errors as for :func:`kernel_cost`."""
    if kernel_class(kernel) in device.calibration.by_data_sheet:
        return _cost_by_factors(_by_data_sheet(device), kernel, cold)
    if cold > 0.0:
        warm = _cost_by_factors(device, kernel)
        whole = warm if _reads_memory(device, kernel) else _cost_by_factors(cold_device(device), kernel)
        if cold >= 1.0:
            return whole
        return replace(whole if cold > 0.5 else warm, time_s=warm.time_s + cold * (whole.time_s - warm.time_s))
    if isinstance(kernel, Product) and kernel.precision in _PACKED_IN:
        packed = kernel.packed(_PACKED_IN[kernel.precision], PACKED)
        if packed is not None:
            return _packed_cost(device, kernel, packed)
    cost = _cost_on(device, kernel)
    factor = device.calibration.by_class.get(kernel_class(kernel), 1.0)
    if isinstance(device, Gpu) and kernel.of_library:
        factor *= device.library_factor
    return cost if factor == 1.0 else replace(cost, time_s=cost.time_s * factor)


def _reads_memory(device: Device, kernel: Kernel) -> bool:
    """Return whether *kernel* takes as long whatever caches hold: GPUs' lanes convolve at the pace of the memory."""
    on_lanes = isinstance(kernel, Convolution) and kernel.precision == "fp32" and kernel.shape.groups == 1
    return on_lanes and isinstance(device, Gpu)


@cache
def _cost_of(where: str) -> Callable[[Any, Kernel], KernelCost]:
    module, _, function = where.partition(":")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _cost_on(device: Device, kernel: Kernel) -> KernelCost:
    """Return the cost of *kernel* by the fastest of the ways a library may take, without factors; or InputError."""
    on_cpu = isinstance(device, Cpu)
    where = kernel.cpu_cost if on_cpu else kernel.gpu_cost
    if not where:
        kind = "CPU" if on_cpu else "GPU"
        raise InputError(f"{device.name}: the cost of {kernel_class(kernel)} kernels on a {kind} is not modelled")
    cost = _cost_of(where)
    by_pixels = isinstance(kernel, Convolution) and kernel.channels_last and device.vendor == "nvidia"
    ways = (kernel,) if on_cpu or by_pixels else allowed_ways(kernel)
    return min((cost(device, way) for way in ways), key=lambda found: found.time_s)


def _packed_cost(device: Device, kernel: Product, packed: Kernel) -> KernelCost:
    """Return the cost of a product of 4-bit numbers: that of 8 bits with half the reduction, two numbers per byte.

    It takes at least the time at the 4-bit peak, which for nvfp4 may be more than twice that of fp8.  Raises InputError
    where the device has no such rate.
    """
    if isinstance(device, Cpu):
        raise InputError(f"{device.name}: a CPU does not compute in {kernel.precision}; int8 where it has that")
    precision, peak = _PACKED_IN[kernel.precision], device.peak(kernel.precision)
    least_s = kernel.flop / held(device, peak, precision)
    if kernel.precision == "nvfp4":
        device = _with_peak(device, precision, peak / PACKED)
    cost = _cost_by_factors(device, packed)
    bound: Bound = "compute" if least_s > cost.time_s else cost.bound
    return replace(cost, time_s=max(least_s, cost.time_s), bound=bound, flop=float(kernel.flop))


@lru_cache(maxsize=256)
def _with_peak(gpu: Gpu, precision: Precision, flops_per_s: float) -> Gpu:
    return replace(gpu, peak_flops_per_s={**gpu.peak_flops_per_s, precision: flops_per_s})


@lru_cache(maxsize=256)
def cold_device(device: Device) -> Device:
    """Return *device* with caches that hold none of a kernel's data when it starts."""
    return replace(device, is_cold=True)


@lru_cache(maxsize=256)
def steady_device(device: Device) -> Device:
    """Return *device* after minutes of load on numbers, when it is hot and draws no more than its power."""
    if not isinstance(device, Gpu) or device.is_rested:
        return device
    bursts = device.burst_s > 0.0 and (device.burst > 1.0 or device.calibration.clocks)
    is_steady = not bursts and (device.is_hot or not (device.above_boost or device.traits.fed_lanes))
    return device if is_steady else replace(device, is_hot=True, burst_s=0.0)


@lru_cache(maxsize=256)
def rested_device(gpu: Gpu) -> Gpu:
    """Return *gpu* as in the first milliseconds after rest, in steps too; without a burst, at its boost clock."""
    bursts = gpu.above_boost or gpu.burst > 1.0
    return replace(gpu, is_rested=True, board_power_W=gpu.board_power_W if bursts else 0.0)


@lru_cache(maxsize=256)
def drawing_device(device: Gpu, power: float) -> Gpu:
    """Return *device* when its products draw *power* times the board's limit in a long run."""
    return replace(device, drawn=power)


@lru_cache(maxsize=256)
def looped_device(device: Device) -> Device:
    """Return *device* in a loop of calls, each with its share of what the board gives beyond its limit."""
    if isinstance(device, Gpu) and device.burst > 1.0:
        costs = device.constants["power"]
        return replace(device, burst_s=costs.limiter_s / costs.loop_calls)
    return device


@lru_cache(maxsize=256)
def _by_data_sheet(device: Device) -> Device:
    """Return *device* without the factors of its calibration; what its board holds was measured apart."""
    return replace(device, calibration=Calibration(clocks=device.calibration.clocks))


def operator_costs(device: Device, operator: Operator, phase: Phase, precision: Precision) -> tuple[KernelCost, ...]:
    """Return the costs of the kernels of *operator* in *phase*, in order; raises as :func:`kernel_cost` does."""
    return tuple(kernel_cost(device, kernel) for kernel in operator.kernels(phase, precision))


def roofline_s(device: Device, kernel: Kernel) -> float:
    """Return the roofline time in seconds: FLOPs at the peak rate or bytes at the memory bandwidth (of all sockets).

    Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009.  Raises InputError
    where the device has no figure for the kernel's precision.
    """
    compute_s = 0.0
    if isinstance(kernel, Product) and kernel.flop:
        compute_s = kernel.flop / device.peak(kernel.precision)
    sockets = device.sockets if isinstance(device, Cpu) else 1
    return max(compute_s, kernel.bytes / (device.memory_bandwidth_Bps * sockets))
