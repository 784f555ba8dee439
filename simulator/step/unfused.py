"""Kernels that TensorFlow runs for transformer operators without fusion (no XLA).

Google's BERT (google-research/bert, ``modeling.py``), and programs derived from it, write GELU, normalisation and
dropout as formulas; each operation is a kernel that reads and writes memory.  The passes here are counted from the
formulas, and from the gradients in TensorFlow's graph.  A bias is a separate kernel (BiasAdd).

TensorFlow's automatic mixed precision keeps powers, means and softmax in fp32, and all operators after them up to the
next product (auto_mixed_precision_lists.h): all of GELU, and the dropout after softmax and normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.devices.kernels import Kernel, Streaming
from simulator.workload.operators import Elementwise, LayerNorm, Linear, Operator, Phase, Softmax
from simulator.workload.precision import ELEMENT_BYTES, Precision

_Passes = tuple[tuple[str, int, int], ...]  # per kernel: function, tensors read, tensors written

# x / 2 (1 + tanh(a (x + b x^3)))
_GELU: _Passes = (
    *(("pow", 1, 1), ("mul_scalar", 1, 1), ("add", 2, 1), ("mul_scalar", 1, 1), ("tanh", 1, 1)),
    *(("add_scalar", 1, 1), ("mul_scalar", 1, 1), ("mul", 2, 1)),
)
_GELU_BACKWARD: _Passes = (
    *(("mul", 2, 1), ("mul", 2, 1), ("mul_scalar", 1, 1), ("tanh_bwd", 2, 1), ("mul_scalar", 1, 1)),
    *(("mul_scalar", 1, 1), ("pow", 1, 1), ("mul_scalar", 1, 1), ("mul", 2, 1), ("add", 3, 1)),
)
# tf.nn.moments: mean, squared differences, mean.  tf.nn.batch_normalization: the scale of each element, its products
# with x and with the mean, the offset less the latter, and the sum.
_NORM: _Passes = (
    *(("sum", 1, 0), ("sub", 1, 1), ("sum", 1, 0), ("mul", 0, 1), ("mul", 2, 1), ("mul", 1, 1), ("sub", 1, 1)),
    ("add", 2, 1),
)
# The sum needs no kernel.  Each product with the scale multiplies the gradient by its other factors and sums for the
# mean, scale and offset.  The squared differences are doubled, and summed for the mean.  Three gradients of x are
# added.
_NORM_BACKWARD: _Passes = (
    *(("mul", 2, 1), ("mul", 2, 1), ("neg", 1, 1), ("mul", 2, 1), ("mul", 1, 1), ("add", 2, 1), ("sum", 1, 0)),
    *(("sum", 1, 0), ("mul", 1, 1), ("sum", 1, 0), ("fill", 0, 1), ("sub", 1, 1), ("mul", 2, 1), ("sum", 1, 0)),
    *(("fill", 0, 1), ("add", 3, 1)),
)
# Draw, compare and cast random numbers, then two products; backward, the same two products.
_DROPOUT: _Passes = (("dropout", 0, 1), ("greater", 1, 1), ("mul_scalar", 1, 1), ("mul", 2, 1))
_DROPOUT_BACKWARD: _Passes = (("mul", 2, 1), ("mul_scalar", 1, 1))
# The maximum of a row, the sum of its exponentials, and the quotients; backward, (g - sum(g y)) y.
_SOFTMAX: _Passes = (("max", 1, 0), ("exp", 1, 0), ("exp", 1, 1))
_SOFTMAX_BACKWARD: _Passes = (("mul", 2, 1), ("sum", 1, 0), ("sub", 1, 1), ("mul", 2, 1))
_BIAS: _Passes = (("add", 1, 1),)


def unfused(operator: Operator, phase: Phase, precision: Precision, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Return the kernels that TensorFlow runs instead of PyTorch's *kernels* for *operator* in *phase*.

    *precision* is that of products; formulas are computed in fp32 if *precision* is narrower.
    """
    backward = phase != "fwd"
    wide: Precision = "fp32" if ELEMENT_BYTES[precision] < ELEMENT_BYTES["fp32"] else precision
    match operator:
        case Linear() if operator.bias and not backward:
            return (*kernels, *_streamed(_BIAS, operator.output_elements, precision))
        case Elementwise(function="gelu"):
            passes = _GELU_BACKWARD if backward else _GELU
        case Elementwise(function="dropout"):
            passes = _DROPOUT_BACKWARD if backward else _DROPOUT
        case LayerNorm():
            passes = _NORM_BACKWARD if backward else _NORM
        case Softmax():
            passes = _SOFTMAX_BACKWARD if backward else _SOFTMAX
        case _:
            return tuple(kernels)
    if phase == "bwd_weight":  # included in the other phase
        return ()
    return _streamed(passes, operator.output_elements, wide)


def _streamed(passes: _Passes, elements: int, precision: Precision) -> tuple[Kernel, ...]:
    size = elements * ELEMENT_BYTES[precision]
    return tuple(Streaming(function, elements, reads * size, writes * size) for function, reads, writes in passes)
