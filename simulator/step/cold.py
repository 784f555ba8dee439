"""The bytes that a kernel of a step cannot find in a cache.

A benchmark of one operator repeats it, so its operands stay in the last-level cache if they fit.  In a step, only the
output of the preceding kernel does.  Parameters were last used a step ago, and activations saved for the backward pass
are as old: all data that the step has touched since then has passed through the cache.
"""

from __future__ import annotations

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.memory import held_share
from simulator.devices.gpu.memory import resident_share
from simulator.devices.kernels import Convolution, FusedAttention, Gather, Gemm, Kernel, Recurrence, Rowwise, Streaming
from simulator.devices.predict import Device
from simulator.workload.operators import Phase
from simulator.workload.precision import ELEMENT_BYTES

_READ_FIRST = ("layer_norm_bwd", "rms_norm_bwd", "batch_norm_bwd", "log_softmax_bwd")


def forgotten_share(device: Device, step_bytes: float) -> float:
    """Return the share of old data that is no longer cached after *step_bytes* have passed through the cache."""
    kept = held_share(device, step_bytes) if isinstance(device, Cpu) else resident_share(device, step_bytes)
    return 1.0 - kept


def old_bytes(kernel: Kernel, phase: Phase, has_parameters: bool) -> float:
    """Return the bytes that *kernel* reads that the preceding kernels neither read nor wrote.

    In the forward pass these are parameters, if the operator has any; in the backward pass, parameters or saved
    activations.
    """
    forward = phase == "fwd"
    match kernel:
        case Gemm():
            left, right = kernel.m * kernel.k, kernel.k * kernel.n
            if has_parameters:  # C = A B: B is the weight or, for the weight's gradient, the saved input
                elements = kernel.batch * right
            elif forward:
                return 0.0
            else:  # the other factor, saved by the forward pass
                elements = kernel.batch * (left if kernel.layout == "TN" else right)
        case Convolution():
            shape = kernel.shape
            elements = shape.input_elements if kernel.direction == "bwd_weight" else shape.weight_elements
        case Recurrence():
            rows = kernel.timesteps * kernel.batch if kernel.direction == "bwd_weight" else kernel.gates * kernel.hidden
            elements = rows * (kernel.inputs + kernel.hidden)
        case Gather():
            elements = kernel.rows * kernel.cols if kernel.direction == "fwd" else 0
        case Rowwise():  # backward, the saved input or output; a softmax's was just read by the product before it
            elements = 0 if forward or kernel.kind not in _READ_FIRST else kernel.rows * kernel.cols
        case Streaming():  # backward, all but the gradient, which is as large as the output
            return 0.0 if forward else float(max(0, kernel.read_bytes - kernel.written_bytes))
        case FusedAttention():  # backward, queries, keys, values and result: half of the bytes
            return 0.0 if forward else kernel.bytes / 2
        case _:
            return 0.0
    return float(elements * ELEMENT_BYTES[kernel.precision])
