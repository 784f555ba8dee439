"""The kernels that a library runs for an operator, forward and backward.

This follows an eager framework that calls cuDNN, cuBLAS and its own kernels, one operator after the other without
fusion.  The backward pass of a product is two products, one for each gradient.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

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
from simulator.devices.scan import scan_backward, scan_forward
from simulator.errors import InputError
from simulator.workload.operators import (
    Attention,
    BatchNorm,
    ChunkScan,
    Conv2d,
    Copy,
    CrossEntropy,
    Elementwise,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Phase,
    Pool,
    Recurrent,
    Reduction,
    Softmax,
)
from simulator.workload.precision import ELEMENT_BYTES, Precision

Kernels = tuple[Kernel, ...]


_DROPS = ("dropout", "dropout_add")  # these write a mask of one byte per element


class NoKernels(InputError):  # noqa: N818  the name says the fault
    """An operator that has no known kernels."""


@singledispatch
def lower_operator(operator: Operator, phase: Phase, precision: Precision) -> Kernels:
    """Return the kernels of *operator* in *phase*, in order.

    ``fwd`` is the forward pass, ``bwd_data`` the gradients of the inputs, ``bwd_weight`` those of the parameters, and
    ``bwd`` both.  An operator without parameters has no kernels in ``bwd_weight``.

    Raises NoKernels where no kernels are known for this type of operator.
    """
    raise NoKernels(f"no kernels are known of {type(operator).__name__} ({phase}, {precision})")


def _in(phase: Phase, part: Phase) -> bool:
    return phase == part or (phase == "bwd" and part != "fwd")


def _sum(rows: int, cols: int, precision: Precision) -> Rowwise:
    """Return the kernel that sums the gradient of a bias."""
    return Rowwise("sum", rows, cols, precision)


@lower_operator.register
def _(operator: Linear, phase: Phase, precision: Precision) -> Kernels:
    inputs, outputs = operator.inputs, operator.outputs
    rows, experts = operator.rows_each, operator.busy_experts  # a grouped product takes as long as a batched one
    wide = ELEMENT_BYTES["bf16"] if precision in ("fp8", "nvfp4") else 0  # only products read numbers so narrow
    if phase == "fwd":
        bias = outputs if operator.bias else 0
        return (Gemm(rows, outputs, inputs, precision, experts, "NT", epilogue_elements=bias, out_bytes=wide),)
    kernels: list[Kernel] = []
    if _in(phase, "bwd_data"):
        kernels.append(Gemm(rows, inputs, outputs, precision, experts, "NN", out_bytes=wide))
    if _in(phase, "bwd_weight"):
        kernels.append(Gemm(outputs, inputs, rows, precision, experts, "TN", out_bytes=wide))
        if operator.bias:
            kernels.append(_sum(outputs * experts, rows, "bf16" if wide else precision))
    return tuple(kernels)


@lower_operator.register
def _(operator: MatMul, phase: Phase, precision: Precision) -> Kernels:
    m, n, k, batch = operator.m, operator.n, operator.k, operator.batch
    if phase == "fwd":
        return (Gemm(m, n, k, precision, batch, operator.layout, plain=precision == "int8"),)
    if _in(phase, "bwd_data"):
        return (Gemm(m, k, n, precision, batch, "NT"), Gemm(k, n, m, precision, batch, "TN"))
    return ()


@lower_operator.register
def _(operator: Conv2d, phase: Phase, precision: Precision) -> Kernels:
    if operator.transposed:
        return _transposed(operator, phase, precision)
    out = operator.output_elements
    kernels: list[Kernel] = []
    if phase == "fwd":
        kernels.append(Convolution(operator, "fwd", precision))
        if operator.bias:
            size = ELEMENT_BYTES[precision]
            kernels.append(Streaming("add", out, out * size, out * size))
    if _in(phase, "bwd_data"):
        kernels.append(Convolution(operator, "bwd_data", precision))
    if _in(phase, "bwd_weight"):
        kernels.append(Convolution(operator, "bwd_weight", precision))
        if operator.bias:
            kernels.append(_sum(operator.c_out, out // operator.c_out, precision))
    return tuple(kernels)


def _transposed(operator: Conv2d, phase: Phase, precision: Precision) -> Kernels:
    """Return the kernels of a transposed convolution: those of the plain one with forward and bwd_data exchanged."""
    shape, out = replace(operator, transposed=False, bias=False), operator.output_elements
    kernels: list[Kernel] = []
    if phase == "fwd":
        kernels.append(Convolution(shape, "bwd_data", precision))
        if operator.bias:
            size = ELEMENT_BYTES[precision]
            kernels.append(Streaming("add", out, out * size, out * size))
    if _in(phase, "bwd_data"):
        kernels.append(Convolution(shape, "fwd", precision))
    if _in(phase, "bwd_weight"):
        kernels.append(Convolution(shape, "bwd_weight", precision))
        if operator.bias:
            kernels.append(_sum(operator.c_in, out // operator.c_in, precision))
    return tuple(kernels)


@lower_operator.register
def _(operator: Elementwise, phase: Phase, precision: Precision) -> Kernels:
    size, n = ELEMENT_BYTES[precision], operator.elements
    if phase == "fwd":
        mask = n if operator.function in _DROPS else 0
        return (Streaming(operator.function, n, operator.inputs * n * size, n * size + mask),)
    if not _in(phase, "bwd_data"):
        return ()
    return (*_elementwise_gradients(operator, precision), *_spread(operator, size))


def _spread(operator: Elementwise, size: int) -> Kernels:
    """Return the kernels that write the gradient of a slice into a zeroed tensor."""
    n, whole = operator.elements, operator.part_of
    return (Streaming("fill", whole, 0, whole * size), Streaming("copy", n, n * size, n * size)) if whole else ()


def _elementwise_gradients(operator: Elementwise, precision: Precision) -> Kernels:
    size, n = ELEMENT_BYTES[precision], operator.elements
    if operator.function in ("add", "sub", "add_scalar", "sub_scalar"):  # the gradient is passed on, or summed
        return (_sum(1, n, precision),) * operator.summed
    if operator.function in ("where", "masked_fill", "neg") or (operator.function == "mul" and operator.inputs == 1):
        return (Streaming(operator.function, n, n * size, n * size),)  # the other operand is small: a mask, a table
    if operator.function in ("mul", "div", "pow"):
        return tuple(Streaming("mul", n, 2 * n * size, n * size) for _ in range(operator.inputs))
    if operator.function in ("mul_scalar", "div_scalar"):
        return (Streaming(operator.function, n, n * size, n * size),)
    if operator.function == "pow_scalar":  # a power, times the exponent, times the gradient
        one = Streaming("mul_scalar", n, n * size, n * size)
        return (Streaming("pow_scalar", n, n * size, n * size), one, Streaming("mul", n, 2 * n * size, n * size))
    if operator.function in _DROPS:  # for dropout_add, the gradient of the other operand is passed on as it is
        return (Streaming("dropout_bwd", n, n * size + n, n * size),)
    return (Streaming(f"{operator.function}_bwd", n, 2 * n * size, n * size),)


@lower_operator.register
def _(operator: Softmax, phase: Phase, precision: Precision) -> Kernels:
    if operator.calls > 1:
        return _apart(operator, phase, precision)
    kind = f"{operator.kernel}_softmax" if operator.kernel else "softmax"
    if phase == "fwd":
        return (Rowwise(kind, operator.rows, operator.cols, precision),)
    if not _in(phase, "bwd_data"):
        return ()
    if operator.kernel:
        return (Rowwise(f"{kind}_bwd", operator.rows, operator.cols, precision),)
    n, size = operator.output_elements, ELEMENT_BYTES[precision]
    product = Streaming("mul", n, 2 * n * size, n * size)  # PyTorch first multiplies the gradient by the result
    return (product, Rowwise("softmax_bwd", operator.rows, operator.cols, precision))


def _apart(operator: Softmax, phase: Phase, precision: Precision) -> Kernels:
    """Return a softmax with separate kernels for its casts to fp32 and back, its scale and its mask."""
    n, size, wide = operator.output_elements, ELEMENT_BYTES[precision], ELEMENT_BYTES["fp32"]
    widen, narrow = Streaming("copy", n, n * size, n * wide), Streaming("copy", n, n * wide, n * size)
    scale = Streaming("mul_scalar", n, n * wide, n * wide)
    mask = Streaming("where", n, n * wide + n, n * wide)
    if phase == "fwd":
        return (widen, scale, mask, Rowwise("softmax", operator.rows, operator.cols, "fp32"), narrow)
    if not _in(phase, "bwd_data"):
        return ()
    return (widen, Rowwise("softmax_bwd", operator.rows, operator.cols, "fp32"), mask, scale, narrow)


@lower_operator.register
def _(operator: Reduction, phase: Phase, precision: Precision) -> Kernels:
    if phase == "fwd":
        return (Rowwise("sum", operator.rows, operator.cols, precision),)
    if _in(phase, "bwd_data"):  # the gradient of a row is written to every element of it
        n, size = operator.rows * operator.cols, ELEMENT_BYTES[precision]
        return (Streaming("fill", n, operator.rows * size, n * size),)
    return ()


@lower_operator.register
def _(operator: LayerNorm, phase: Phase, precision: Precision) -> Kernels:
    if phase == "fwd":
        return (Rowwise(operator.kind, operator.rows, operator.cols, precision),)
    kernels: list[Kernel] = []
    if _in(phase, "bwd_data"):
        kernels.append(Rowwise(f"{operator.kind}_bwd", operator.rows, operator.cols, precision))
    if _in(phase, "bwd_weight"):
        kernels.append(Rowwise(f"{operator.kind}_weight_bwd", operator.rows, operator.cols, precision))
    return tuple(kernels)


@lower_operator.register
def _(operator: BatchNorm, phase: Phase, precision: Precision) -> Kernels:
    shape = operator.channels, operator.batch * operator.height * operator.width
    if phase == "fwd":
        return (Rowwise("batch_norm", *shape, precision),)
    return (Rowwise("batch_norm_bwd", *shape, precision),) if _in(phase, "bwd_data") else ()


@lower_operator.register
def _(operator: Pool, phase: Phase, precision: Precision) -> Kernels:
    window = operator.kernel_h * operator.kernel_w
    if phase == "fwd":
        return (Pooling(operator.kind, "fwd", operator.input_elements, operator.output_elements, window, precision),)
    if _in(phase, "bwd_data"):
        return (Pooling(operator.kind, "bwd", operator.input_elements, operator.output_elements, window, precision),)
    return ()


@lower_operator.register
def _(operator: Embedding, phase: Phase, precision: Precision) -> Kernels:
    if phase == "fwd":
        return (Gather("fwd", operator.rows, operator.cols, operator.vocabulary, precision),)
    if _in(phase, "bwd_weight"):
        return (Gather("bwd", operator.rows, operator.cols, operator.vocabulary, precision),)
    return ()


@lower_operator.register
def _(operator: Recurrent, phase: Phase, precision: Precision) -> Kernels:
    sizes = operator.batch, operator.timesteps, operator.inputs, operator.hidden, precision
    if phase == "fwd":
        return (Recurrence(operator.cell, "fwd", *sizes),)
    kernels: list[Kernel] = []
    if _in(phase, "bwd_data"):
        kernels.append(Recurrence(operator.cell, "bwd_data", *sizes))
    if _in(phase, "bwd_weight"):
        kernels.append(Recurrence(operator.cell, "bwd_weight", *sizes))
    return tuple(kernels)


@lower_operator.register
def _(operator: Attention, phase: Phase, precision: Precision) -> Kernels:
    if phase == "bwd_weight":
        return ()
    return (
        FusedAttention(
            "fwd" if phase == "fwd" else "bwd",
            operator.batch,
            operator.heads,
            operator.kv_heads or operator.heads,
            operator.query_length,
            operator.key_length,
            (operator.head_size + (operator.value_size or operator.head_size)) // 2,  # as many FLOPs, as many bytes
            operator.causal,
            precision,
            operator.library,
            operator.window,
        ),
    )


@lower_operator.register
def _(operator: ChunkScan, phase: Phase, precision: Precision) -> Kernels:
    if phase == "fwd":
        return scan_forward(operator, precision)
    return scan_backward(operator, precision) if _in(phase, "bwd_data") else ()


@lower_operator.register
def _(operator: CrossEntropy, phase: Phase, precision: Precision) -> Kernels:
    if phase == "fwd":
        return (
            Rowwise("log_softmax", operator.rows, operator.cols, precision),
            Streaming("nll_loss", operator.rows, operator.rows * (8 + ELEMENT_BYTES[precision]), 4),
        )
    if _in(phase, "bwd_data"):
        n, size = operator.rows * operator.cols, ELEMENT_BYTES[precision]
        return (
            Streaming("fill", n, 0, n * size),
            Rowwise("log_softmax_bwd", operator.rows, operator.cols, precision),
        )
    return ()


@lower_operator.register
def _(operator: Copy, phase: Phase, precision: Precision) -> Kernels:
    if phase == "fwd" or _in(phase, "bwd_data"):
        n_bytes = operator.elements * ELEMENT_BYTES[precision]
        return (Streaming("copy", operator.elements, n_bytes, n_bytes, transposed=operator.transposed),)
    return ()
