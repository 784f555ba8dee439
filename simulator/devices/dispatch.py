"""The host's part: how long a framework takes to issue an operator.

In a training loop the host runs ahead of the device, and only the rate counts at which it issues.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

from simulator.constants import constants
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_dispatch_time
from simulator.devices.gpu.gpu import Gpu
from simulator.questions.options import Framework
from simulator.workload.operators import (
    BatchNorm,
    Conv2d,
    CrossEntropy,
    Elementwise,
    Linear,
    MatMul,
    Operator,
    Phase,
    Recurrent,
    Softmax,
)

__all__ = [
    "HOST_TIMES",
    "DispatchCosts",
    "dispatch_time",
    "framework_scale",
    "gradient_time",
    "graph_launch_time",
    "host_costs",
    "product_time",
    "update_time",
]


@constants("dispatch")
@dataclass(frozen=True, slots=True)
class DispatchCosts:
    """Constants of an eager framework (PyTorch 2) on a server's processor, the same for all hosts."""

    forward_s: float
    backward_s: float
    product_s: float
    convolution_s: float
    batch_norm_s: float
    recurrent_s: float
    gradient_s: float
    update_s: float
    graph_launch_s: float
    megatron: float


HOST_TIMES = tuple(field.name for field in fields(DispatchCosts) if field.name.endswith("_s"))
"""Those of them that are seconds: what the calibration of one device's host may know better."""


@lru_cache(maxsize=1024)
def host_costs(device: Gpu | Cpu) -> DispatchCosts:
    """Return the constants, with those of them in place that the calibration of *device* knows of its own host."""
    costs = device.constants(DispatchCosts)
    return replace(costs, **{name: value for name, value in device.calibration.host.items() if name in HOST_TIMES})


def framework_scale(device: Gpu | Cpu, framework: Framework) -> float:
    """Return how many times as long *framework* takes to issue an operator as plain modules of PyTorch."""
    return host_costs(device).megatron if framework == "megatron" and isinstance(device, Gpu) else 1.0


def graph_launch_time(device: Gpu | Cpu) -> float:
    """Return the seconds of the one call that launches a captured graph."""
    return host_costs(device).graph_launch_s


def dispatch_time(gpu: Gpu | Cpu, operator: Operator, phase: Phase) -> float:
    """Return the seconds for which the host is busy until an eager framework has issued *operator* in *phase*.

    On a CPU nothing is issued ahead: they come on top of the operator's own time.
    """
    if isinstance(gpu, Cpu):
        return cpu_dispatch_time(gpu, phase)
    costs = host_costs(gpu)
    if isinstance(operator, Linear | MatMul):
        besides_s = costs.product_s
    elif isinstance(operator, Conv2d):
        besides_s = costs.convolution_s
    elif isinstance(operator, BatchNorm):
        besides_s = costs.batch_norm_s
    else:
        besides_s = costs.recurrent_s if isinstance(operator, Recurrent) else 0.0
    if phase == "fwd":
        time_s = costs.forward_s + besides_s
    else:
        both = phase == "bwd"
        calls = 2 if both and isinstance(operator, Linear | MatMul) else 1
        picks = 2 if both and isinstance(operator, Conv2d) else 1  # one call, but a kernel for each gradient
        time_s = calls * (costs.backward_s + picks * besides_s)
    if isinstance(operator, CrossEntropy):
        time_s *= 2.0  # log-softmax, then the loss
    elif isinstance(operator, Softmax):
        time_s *= operator.calls
    elif isinstance(operator, Elementwise) and operator.function == "dropout_add":
        time_s *= 2.0  # TorchScript saves a kernel, and not the time to issue what it joined
    return time_s * gpu.calibration.dispatch


def product_time(device: Gpu | Cpu, phase: Phase) -> float:
    """Return the seconds for which the host is busy with one more product of a layer in *phase*, in the library alone.

    Transformer Engine's GroupedLinear calls cuBLAS for each expert, in several streams (Megatron-LM,
    ``--moe-grouped-gemm``).
    """
    if isinstance(device, Cpu):
        return 0.0
    return (2 if phase == "bwd" else 1) * host_costs(device).product_s * device.calibration.dispatch


def gradient_time(device: Gpu | Cpu, parameters: int) -> float:
    """Return the seconds in which the host keeps the gradients of so many parameters, as tensors."""
    return 0.0 if isinstance(device, Cpu) else parameters * host_costs(device).gradient_s * device.calibration.dispatch


def update_time(device: Gpu | Cpu, parameters: int) -> float:
    """Return the seconds in which the host gathers so many parameters, as tensors, for an update of all at once."""
    return 0.0 if isinstance(device, Cpu) else parameters * host_costs(device).update_s * device.calibration.dispatch
