"""The time of a kernel, and of an operator, on a device: which file knows which class."""

from __future__ import annotations

from functools import lru_cache

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.gemm import gemm_cost
from simulator.devices.kernels import Gemm, Kernel
from simulator.devices.lowering import lower_operator
from simulator.workload.operators import Operator, Phase
from simulator.workload.precision import Precision

__all__ = ["kernel_cost", "operator_costs"]


def kernel_cost(gpu: Gpu, kernel: Kernel) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    if isinstance(kernel, Gemm):
        return gemm_cost(gpu, kernel)
    raise TypeError(f"no cost of {type(kernel).__name__}")


@lru_cache(maxsize=65536)
def operator_costs(gpu: Gpu, operator: Operator, phase: Phase, precision: Precision) -> tuple[KernelCost, ...]:
    """Return the costs of the kernels of *operator* in *phase*, in order."""
    return tuple(kernel_cost(gpu, kernel) for kernel in lower_operator(operator, phase, precision))
