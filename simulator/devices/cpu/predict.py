"""The cost of a kernel on a CPU, dispatched by kernel class, and the framework's overhead per call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.constants import constants
from simulator.devices.cost import KernelCost
from simulator.devices.cpu.convolution import convolution_products
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.gemm import attention_products, gemm_product, recurrence_products
from simulator.devices.cpu.passes import gather_pass, pooling_pass, rowwise_pass, streaming_pass
from simulator.devices.kernels import (
    Convolution,
    FusedAttention,
    Gather,
    Gemm,
    Kernel,
    NoCost,
    Pooling,
    Recurrence,
    Rowwise,
    Streaming,
)
from simulator.workload.operators import Phase


@constants("cpu_calls")
@dataclass(frozen=True, slots=True)
class CallCosts:
    """Overhead of a framework's calls on a CPU, in seconds beyond their kernels; nothing is issued ahead."""

    forward_s: float
    backward_s: float
    call_s: float


_COSTS: dict[type, Callable[[Cpu, Any], KernelCost]] = {
    Gemm: gemm_product,
    Streaming: streaming_pass,
    Rowwise: rowwise_pass,
    Pooling: pooling_pass,
    Gather: gather_pass,
    Convolution: convolution_products,
    Recurrence: recurrence_products,
    FusedAttention: attention_products,
}


def cpu_kernel_cost(cpu: Cpu, kernel: Kernel) -> KernelCost:
    """Return the cost of *kernel* on *cpu*.

    Raises InputError where the CPU does not support its precision, NoCost where kernels of its class are not modelled.
    """
    cost = _COSTS.get(type(kernel))
    if cost is None:
        raise NoCost(kernel, cpu.name, "CPU")
    return cost(cpu, kernel)


def cpu_dispatch_time(cpu: Cpu, phase: Phase) -> float:
    """Return the seconds that the framework takes before an operator's first kernel starts."""
    costs = cpu.constants(CallCosts)
    return (costs.forward_s if phase == "fwd" else costs.backward_s) * cpu.calibration.dispatch


def cpu_call_time(cpu: Cpu) -> float:
    """Return the seconds that a call of a framework's function takes beyond its kernels, without autograd."""
    return cpu.constants(CallCosts).call_s * cpu.calibration.dispatch
