"""The host's part: how long a framework takes to issue an operator.

In a training loop the host runs ahead of the device, and only the rate counts at which it issues
(:func:`dispatch_time`).  A single operator between two events on an idle device is different
(:func:`isolated_time`): the clock starts before the host has issued anything, and it does not stop
before the host has come back and recorded the second event, however short the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_dispatch_time
from simulator.devices.gpu.gpu import Gpu
from simulator.workload.operators import (
    BatchNorm,
    Conv2d,
    CrossEntropy,
    Elementwise,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Phase,
    Recurrent,
    Softmax,
)

__all__ = [
    "DISPATCH",
    "DispatchCosts",
    "dispatch_time",
    "gradient_time",
    "graph_launch_time",
    "host_costs",
    "isolated_time",
    "update_time",
]


@dataclass(frozen=True, slots=True)
class DispatchCosts:
    """Constants of an eager framework (PyTorch 2) on a server's processor, the same for all hosts."""

    # In a loop.  Estimates between hosts, whose networks take no less at batch 1 than to issue: forward, ResNet-18
    # 2.1 ms and ResNeXt-50 6.7 ms (pytorch/benchmark 549 and 550, three steps each), ResNet-50 10.4 ms on DGX-1's
    # Xeons of 2.2 GHz (NVIDIA/DeepLearningExamples, ConvNets); a step of ResNet-50 about 20 ms, besides an Adam
    # that goes from tensor to tensor (pytorch/benchmark 706).  Half and double of this are both common.
    forward_s: float = 20e-6  # an operator from Python, with what the tape remembers of it
    backward_s: float = 18e-6  # a call of the backward pass, from C++
    product_s: float = 8e-6  # besides, where cuBLAS picks its kernel
    convolution_s: float = 25e-6  # besides, where cuDNN does
    batch_norm_s: float = 35e-6  # besides, its checks and the count of batches
    recurrent_s: float = 100e-6  # besides, a recurrent layer: weights gathered, a descriptor made
    gradient_s: float = 4e-6  # of each parameter, its gradient put where the optimiser looks for it
    update_s: float = 5e-6  # of each parameter, put on the lists of the optimiser, and its gradient let go
    graph_launch_s: float = 10e-6  # one call that launches a captured graph
    # Alone between two events, from the first to the kernel's start.  Elementwise, softmax, norm and the end are
    # fitted by validate.fit.operators.memory_bound; the others are the least that was measured, less the end.
    isolated_elementwise_s: float = 2.04e-05
    isolated_softmax_s: float = 2.52e-05
    isolated_norm_s: float = 4.18e-05
    isolated_linear_s: float = 44e-6
    isolated_matmul_s: float = 22e-6
    # Where PyTorch 2.1 has tried cuDNN's algorithms: 0.05 to 0.65 ms was measured, by no property of a shape, though
    # for the same shapes on all devices; as if it looked through all shapes that it has met.  A middle of all hosts.
    isolated_convolution_s: float = 200e-6
    isolated_other_s: float = 30e-6
    isolated_backward_s: float = 20e-6  # of any operator: called from C++
    isolated_end_s: float = 1.16e-05  # from a kernel's start to the second event, at the earliest


DISPATCH = DispatchCosts()
_ISOLATED: dict[type, str] = {
    Elementwise: "isolated_elementwise_s",
    Softmax: "isolated_softmax_s",
    LayerNorm: "isolated_norm_s",
    BatchNorm: "isolated_norm_s",
    Linear: "isolated_linear_s",
    MatMul: "isolated_matmul_s",
    Conv2d: "isolated_convolution_s",
}


@lru_cache(maxsize=1024)
def host_costs(device: Gpu | Cpu, costs: DispatchCosts = DISPATCH) -> DispatchCosts:
    """Return *costs* with those of them in place that the calibration of *device* knows of its own host."""
    known = {field.name for field in fields(costs)}
    return replace(costs, **{name: value for name, value in device.calibration.host.items() if name in known})


def graph_launch_time(device: Gpu | Cpu, costs: DispatchCosts = DISPATCH) -> float:
    """Return the seconds of the one call that launches a captured graph."""
    return host_costs(device, costs).graph_launch_s


def dispatch_time(gpu: Gpu | Cpu, operator: Operator, phase: Phase, costs: DispatchCosts = DISPATCH) -> float:
    """Return the seconds for which the host is busy until an eager framework has issued *operator* in *phase*.

    On a CPU nothing is issued ahead: they come on top of the operator's own time.
    """
    if isinstance(gpu, Cpu):
        return cpu_dispatch_time(gpu, phase)
    costs = host_costs(gpu, costs)
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
    return time_s * gpu.calibration.dispatch


def gradient_time(device: Gpu | Cpu, parameters: int, costs: DispatchCosts = DISPATCH) -> float:
    """Return the seconds in which the host keeps the gradients of so many parameters, as tensors."""
    return (
        0.0
        if isinstance(device, Cpu)
        else parameters * host_costs(device, costs).gradient_s * device.calibration.dispatch
    )


def update_time(device: Gpu | Cpu, parameters: int, costs: DispatchCosts = DISPATCH) -> float:
    """Return the seconds in which the host gathers so many parameters, as tensors, for an update of all at once."""
    return (
        0.0
        if isinstance(device, Cpu)
        else parameters * host_costs(device, costs).update_s * device.calibration.dispatch
    )


def isolated_time(
    gpu: Gpu, operator: Operator, phase: Phase, kernels_s: float, costs: DispatchCosts = DISPATCH
) -> float:
    """Return the seconds that two events around one operator show, whose kernels take *kernels_s*."""
    field = _ISOLATED.get(type(operator), "isolated_other_s") if phase == "fwd" else "isolated_backward_s"
    costs = host_costs(gpu, costs)
    before_s: float = getattr(costs, field)
    return before_s * gpu.calibration.dispatch + max(kernels_s, costs.isolated_end_s * gpu.calibration.dispatch)
