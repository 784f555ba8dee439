"""The figures behind a predicted time, to compare with a measurement: :class:`Account`."""

from __future__ import annotations

import contextlib

from simulator.devices.dispatch import dispatch_time
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import sustained_clock
from simulator.devices.predict import Device, kernel_cost, steady_device
from simulator.errors import InputError
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass, replace
from simulator.results.step import StepResult
from simulator.step.operator import operator_kernels
from simulator.step.precision import product_precision
from simulator.workload.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Figures behind a prediction; 0 and "" if unknown.

    ``bound`` and ``detail`` are the limiter of most of the time (compute, memory, latency, host), and the tile or
    algorithm used; ``kernels_s`` and ``host_s`` the seconds of the kernels on the device, and of the host to launch
    them; ``sustained_s`` those of an operator's kernels in a run of seconds, which power and heat limit.
    ``waiting_share`` is the fraction of a step in which the device waits for the host.  ``working_set_bytes`` are
    accessed; ``cache_bytes`` and ``memory_bytes`` are the sizes of the device's last-level cache and memory,
    ``clock_Hz`` its clock in the model, ``sm_count`` its streaming multiprocessors.
    """

    is_gpu: bool = False
    bound: str = ""
    detail: str = ""
    kernels_s: float = 0.0
    host_s: float = 0.0
    sustained_s: float = 0.0
    waiting_share: float = 0.0
    working_set_bytes: float = 0.0
    cache_bytes: float = 0.0
    memory_bytes: float = 0.0
    clock_Hz: float = 0.0
    sm_count: int = 0


def device_account(device: Device) -> Account:
    """Return the figures of *device* alone."""
    memory_bytes = device.memory_bytes if device.memory_bytes < float("inf") else 0.0
    if isinstance(device, Gpu):
        return Account(is_gpu=True, cache_bytes=device.l2_bytes, memory_bytes=memory_bytes, sm_count=device.sm_count)
    return Account(cache_bytes=device.caches[-1].size_bytes if device.caches else 0.0, memory_bytes=memory_bytes)


def operator_account(question: OperatorQuestion, device: Device) -> Account:
    """Return the account of an operator on *device*; raises InputError if it cannot be predicted."""
    cold = 1.0 if question.is_cold else 0.0
    costs = [kernel_cost(device, kernel, cold) for kernel in operator_kernels(question)]
    longest = max(costs, key=lambda cost: cost.time_s)
    kernels_s = sum(cost.time_s for cost in costs)
    steady = steady_device(device)
    sustained_s = sum(kernel_cost(steady, kernel, cold).time_s for kernel in operator_kernels(question))
    clock_Hz = 0.0
    if isinstance(device, Gpu):
        is_product = longest.bound == "compute"
        clock_Hz = _sustained_Hz(device, question.precision) if is_product else device.boost_clock_Hz
    return replace(
        device_account(device),
        bound=longest.bound,
        detail=longest.detail,
        kernels_s=kernels_s,
        sustained_s=sustained_s,
        host_s=dispatch_time(device, question.operator, question.phase),
        working_set_bytes=max(cost.bytes for cost in costs),
        clock_Hz=clock_Hz,
    )


def step_account(result: StepResult, device: Device) -> Account:
    """Return the account of a step on *device*."""
    precision = product_precision(result.options.precision, device)
    steady = steady_device(device)
    return Account(
        is_gpu=isinstance(device, Gpu),
        bound=result.bound,
        kernels_s=result.busy_s,
        host_s=result.host_s,
        waiting_share=result.waiting_s / result.step_time_s if result.step_time_s > 0 else 0.0,
        working_set_bytes=result.memory.total_bytes,
        memory_bytes=result.memory.available_bytes or 0.0,
        clock_Hz=_sustained_Hz(steady, precision) if isinstance(steady, Gpu) else 0.0,
    )


def _sustained_Hz(gpu: Gpu, precision: Precision) -> float:  # noqa: N802  units keep their case
    """Return the sustained clock of matrix products in *precision*, in Hz; 0 if the part has no figure for them."""
    with contextlib.suppress(InputError):
        return sustained_clock(gpu, precision)
    return 0.0
