"""The time of a kernel on a CPU: which function knows which class; and the framework's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    Pooling,
    Recurrence,
    Rowwise,
    Streaming,
)
from simulator.workload.operators import Phase

__all__ = ["cpu_call_time", "cpu_dispatch_time", "cpu_kernel_cost"]

# An operator from Python with its tape, and a node of the backward pass: PyTorch 2 on a Zen 4 server; nothing
# is issued ahead, so these add to the operator's own time.
FORWARD_S = 3e-6
BACKWARD_S = 5e-6
# A call of a framework's function from Python without a tape, beyond its kernel: 0.3 to 0.8 us there.
CALL_S = 0.5e-6

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
    """Return the cost of *kernel* on *cpu*; raises InputError where it does not compute in the precision."""
    return _COSTS[type(kernel)](cpu, kernel)


def cpu_dispatch_time(cpu: Cpu, phase: Phase) -> float:
    """Return the seconds that the framework takes to come to an operator's first kernel."""
    return (FORWARD_S if phase == "fwd" else BACKWARD_S) * cpu.calibration.dispatch


def cpu_call_time(cpu: Cpu) -> float:
    """Return the seconds that a call of a framework's function takes beyond its kernels, where no tape is kept."""
    return CALL_S * cpu.calibration.dispatch
