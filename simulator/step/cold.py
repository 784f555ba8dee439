"""What a kernel of a step reads that no cache holds any more.

A measurement of one operator repeats it, and finds its operands in the last-level cache where they fit.  In a step
that holds for what the kernel before has just written.  Parameters were last used a step ago, and what the forward
pass kept for the backward pass lies as far back: all that the step goes through has passed the cache since.
"""

from __future__ import annotations

from functools import singledispatch

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.memory import held_share
from simulator.devices.gpu.memory import resident_share
from simulator.devices.kernels import Convolution, FusedAttention, Gather, Gemm, Kernel, Recurrence, Rowwise, Streaming
from simulator.devices.predict import Device
from simulator.workload.operators import Phase
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["forgotten_share", "old_bytes"]


def forgotten_share(device: Device, step_bytes: float) -> float:
    """Return the share of what a step used before that is in no cache, *step_bytes* having been gone through since."""
    kept = held_share(device, step_bytes) if isinstance(device, Cpu) else resident_share(device, step_bytes)
    return 1.0 - kept


@singledispatch
def old_bytes(kernel: Kernel, phase: Phase, has_parameters: bool) -> float:
    """Return the bytes that *kernel* reads and that nothing just before it has read or written.

    It is of an operator in *phase*: forward these are parameters, if it has any; backward parameters too, or what
    the forward pass kept.
    """
    del kernel, phase, has_parameters
    return 0.0


@old_bytes.register
def _(kernel: Gemm, phase: Phase, has_parameters: bool) -> float:
    element = ELEMENT_BYTES[kernel.precision] * kernel.batch
    right = float(kernel.k * kernel.n * element)
    if has_parameters:  # C = A B: forward and for the data's gradient B is the weight, for the weight's what was kept
        return right
    if phase == "fwd":
        return 0.0
    return float(kernel.m * kernel.k * element) if kernel.layout == "TN" else right  # the other factor, as it was kept


@old_bytes.register
def _(kernel: Convolution, phase: Phase, has_parameters: bool) -> float:
    del phase, has_parameters
    kept = kernel.shape.input_elements if kernel.direction == "bwd_weight" else kernel.shape.weight_elements
    return float(kept * ELEMENT_BYTES[kernel.precision])


@old_bytes.register
def _(kernel: Recurrence, phase: Phase, has_parameters: bool) -> float:
    del phase, has_parameters
    elements = kernel.gates * kernel.hidden * (kernel.inputs + kernel.hidden)
    if kernel.direction == "bwd_weight":
        elements = kernel.timesteps * kernel.batch * (kernel.inputs + kernel.hidden)
    return float(elements * ELEMENT_BYTES[kernel.precision])


@old_bytes.register
def _(kernel: Gather, phase: Phase, has_parameters: bool) -> float:
    del phase, has_parameters
    return float(kernel.rows * kernel.cols * ELEMENT_BYTES[kernel.precision]) if kernel.direction == "fwd" else 0.0


@old_bytes.register
def _(kernel: Streaming, phase: Phase, has_parameters: bool) -> float:
    """Backward, all but the gradient, which is as large as what is written."""
    del has_parameters
    return 0.0 if phase == "fwd" else float(max(0, kernel.read_bytes - kernel.written_bytes))


@old_bytes.register
def _(kernel: Rowwise, phase: Phase, has_parameters: bool) -> float:
    """Backward, what came in or went out; of a softmax the product before has just read it."""
    del has_parameters
    is_first = phase != "fwd" and kernel.kind in ("layer_norm_bwd", "rms_norm_bwd", "batch_norm_bwd", "log_softmax_bwd")
    return float(kernel.rows * kernel.cols * ELEMENT_BYTES[kernel.precision]) if is_first else 0.0


@old_bytes.register
def _(kernel: FusedAttention, phase: Phase, has_parameters: bool) -> float:
    """Backward, queries, keys, values and result: half of what is moved."""
    del has_parameters
    return 0.0 if phase == "fwd" else kernel.bytes / 2
