"""The time of a measured operator: its kernels, and what a single call waits for where the measurement holds that."""

from __future__ import annotations

from dataclasses import replace

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_call_time
from simulator.devices.dispatch import dispatch_time, isolated_time
from simulator.devices.gpu.roofline import roofline_cost
from simulator.devices.kernels import Convolution, Kernel, Streaming
from simulator.devices.lowering import lower_operator
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import InputError, one_line
from simulator.workload.operators import Attention
from validate.operators.issuing import alone, in_graph
from validate.operators.query import OperatorQuery
from validate.operators.serving import REPLAY_S, kernels_besides, replays
from validate.score.query import NotScored

__all__ = ["as_issued", "operator_kernels", "predict_operator", "roofline_operator"]


def operator_kernels(query: OperatorQuery) -> tuple[Kernel, ...]:
    """Return the kernels of *query*; raises NoKernels where there is no model of it in its phase."""
    kernels = lower_operator(query.operator, query.phase, query.precision)
    if isinstance(query.operator, Attention):
        kernels = (*kernels_besides(query.operator, query.precision, query.software), *kernels)
    if not query.channels_last:
        return kernels
    return tuple(
        replace(kernel, channels_last=True) if isinstance(kernel, Convolution) else kernel for kernel in kernels
    )


def predict_operator(device: Device, query: OperatorQuery) -> float:
    """Return the predicted seconds of *query* on *device*; raises NotScored where the device cannot do it."""
    cold = 1.0 if query.is_cold else 0.0
    try:
        costs = [kernel_cost(device, kernel, cold) for kernel in operator_kernels(query)]
    except InputError as error:
        raise NotScored(one_line(error)) from None
    if not costs:
        raise NotScored(f"{query.op} has no kernels in phase {query.phase}")
    kernels_s = sum(as_issued(device, cost.time_s, query) for cost in costs)
    if isinstance(query.operator, Attention) and replays(query.software):
        kernels_s += REPLAY_S
    if not query.includes_dispatch:
        is_ahead = query.issued != "stream" or isinstance(device, Cpu)
        return kernels_s if is_ahead else max(kernels_s, dispatch_time(device, query.operator, query.phase))
    if isinstance(device, Cpu):
        return cpu_call_time(device) + kernels_s
    return isolated_time(device, query.operator, query.phase, kernels_s)


def as_issued(device: Device, kernel_s: float, query: OperatorQuery) -> float:
    """Return the seconds of a kernel that takes *kernel_s* in a stream, issued as *query* says."""
    if query.issued == "graph":
        return in_graph(device, kernel_s)
    return alone(device, kernel_s) if query.issued == "alone" else kernel_s


def roofline_operator(device: Device, query: OperatorQuery) -> float:
    """Return the roofline of the kernels of *query* at data sheet rates; raises as :func:`predict_operator`."""
    try:
        time_s = sum(_roofline(device, kernel) for kernel in operator_kernels(query))
    except InputError as error:
        raise NotScored(one_line(error)) from None
    if not time_s:
        raise NotScored("the roofline is zero")
    return time_s


def _roofline(device: Device, kernel: Kernel) -> float:
    """Return the longer of FLOPs at the peak rate and bytes at the bandwidth of memory, of a CPU all sockets'."""
    if not isinstance(device, Cpu):
        return roofline_cost(device, kernel).time_s
    compute_s = 0.0
    if kernel.flop and not isinstance(kernel, Streaming):
        compute_s = kernel.flop / device.peak(kernel.precision)
    return max(compute_s, kernel.bytes / (device.memory_bandwidth_Bps * device.sockets))
