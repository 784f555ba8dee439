"""Which of our operators an aten operator is.

By name, in tables; what works element by element is known by torch's own tag.  What moves data
without computing (padding, gathering, interpolation) counts as a copy of what it writes; a scan, a sort
(which is too little) or random numbers as one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, Literal

from simulator.workload.operators import (
    Attention,
    BatchNorm,
    Conv2d,
    Copy,
    Elementwise,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Pool,
    Reduction,
    Softmax,
)
from simulator.workload.torch_import.call import Call, is_pointwise
from simulator.workload.torch_import.names import COPIES, ELEMENTWISE, FILLS, LOSSES, RANDOM, REDUCTIONS, SCALAR

__all__ = ["operators_of"]


def operators_of(call: Call) -> tuple[Operator, ...] | None:
    """Return what *call* runs, in order; None where it is not known."""
    if call.func.namespace in ("aten", "prims"):
        made = _BY_NAME.get(call.name)
        if made is not None:
            operator = made(call)
            return (operator,) if operator is not None else ()
        if call.name in LOSSES:
            return _loss(call)
        if call.name in COPIES:
            return (Copy(call.out.numel() if call.name != "copy" else call["self"].numel(), _transposed(call)),)
        if call.name in FILLS:
            return (Elementwise("fill", call.out.numel(), 0),)
        if call.name in RANDOM:
            return (Elementwise("random", call.out.numel(), 0),)
        if call.name in REDUCTIONS and not _of_two(call):
            return (_reduction(call),)
    if call.outputs and (call.name in ELEMENTWISE or is_pointwise(call)):
        return (_elementwise(call),)
    return None


def _of_two(call: Call) -> bool:
    """Whether ``max`` and ``min`` compare two tensors."""
    return call.name in ("max", "min") and "other" in call.arguments


def _elementwise(call: Call) -> Elementwise:
    name = "sub" if call.name == "rsub" else call.name.strip("_")
    n = call.out.numel()
    whole = sum(tensor.numel() == n for tensor in call.inputs)
    if name in SCALAR:
        second = next((call.arguments[key] for key in ("other", "exponent") if key in call.arguments), None)
        if getattr(second, "ndim", 0) == 0 and whole <= 1:
            name += "_scalar"
    return Elementwise(name, n, max(1, whole))


def _transposed(call: Call) -> bool:
    """Whether neighbours in what is written were none in what is read."""
    if call.name not in ("clone", "copy", "_to_copy"):
        return False
    source, target = (call["src"], call["self"]) if call.name == "copy" else (call.first, call.out)
    if source.shape != target.shape:
        return False
    for size, read, written in zip(source.shape, source.stride(), target.stride(), strict=True):
        if size > 1 and written == 1:
            return read not in (0, 1)
    return False


def _product(call: Call, a: Any, b: Any, bias: Any = None) -> Operator:
    """Return ``a b``: a linear layer where one of them is a parameter."""
    (m, k), n = a.shape, b.shape[1]
    has_bias = bias is not None and call.is_weight(bias)
    if call.is_weight(b):
        return Linear(m, k, n, has_bias)
    if call.is_weight(a):
        return Linear(n, k, m, has_bias)
    return MatMul(m, n, k, 1, _layout(a, b))


def _batched(a: Any, b: Any) -> MatMul:
    batch, m, k = a.shape
    return MatMul(m, b.shape[2], k, batch, _layout(a, b))


def _grouped(call: Call, rows: Any, experts: Any) -> Operator | None:
    """Return the product of rows, each with its expert's matrix; which row is whose only numbers tell."""
    if rows.dim() != 2 or experts.dim() != 3:
        return None
    (m, k), n = rows.shape, experts.shape[2]
    return Linear(m, k, n, bias=False) if call.is_weight(experts) else MatMul(m, n, k)


def _layout(a: Any, b: Any) -> Literal["NN", "NT", "TN", "TT"]:
    if _is_turned(a):
        return "TT" if _is_turned(b) else "TN"
    return "NT" if _is_turned(b) else "NN"


def _is_turned(matrix: Any) -> bool:
    return bool(matrix.shape[-1] > 1 and matrix.stride(-1) != 1 and matrix.stride(-2) == 1)


def _linear(call: Call) -> Linear:
    weight = call["weight"]
    return Linear(call["input"].numel() // weight.shape[1], weight.shape[1], weight.shape[0], call["bias"] is not None)


def _convolution(call: Call) -> Conv2d:
    """Return a convolution; of one dimension it has height 1, of three each depth is an image of its own."""
    images, weight, result = call["input"], call["weight"], call.out
    transposed = call["transposed"]
    if transposed:
        images, result = result, images
    n = images.dim() - 2
    stride, pad, dilation = _sides(call["stride"], n, 1), _sides(call["padding"], n, 0), _sides(call["dilation"], n, 1)
    kernel = _sides(weight.shape[2:], n, 1)
    batch, channels, *sizes = images.shape
    height, width = _sides(sizes, n, 1)[-2:]
    if n == 3:
        batch, channels = batch * result.shape[2], channels * kernel[0]
    operator = Conv2d(
        batch, channels, result.shape[1], height, width, kernel[-2], kernel[-1], stride[-2], stride[-1],
        pad[-2], pad[-1], call["groups"], call["bias"] is not None, dilation[-2], dilation[-1],
    )  # fmt: skip
    return replace(operator, transposed=True) if transposed else operator


def _sides(values: Any, dimensions: int, missing: int) -> tuple[int, ...]:
    """Return stride, padding or size for at least two dimensions, *missing* for a height that is not there."""
    sides = tuple(int(value) for value in values)
    sides = sides * dimensions if len(sides) == 1 else sides
    return sides if len(sides) > 1 else (missing, *sides)


def _batch_norm(call: Call) -> BatchNorm:
    batch, channels, *sizes = call["input"].shape
    return BatchNorm(batch, channels, prod(sizes[:-1]), sizes[-1] if sizes else 1)


def _layer_norm(call: Call, kind: Literal["layer_norm", "rms_norm"] = "layer_norm") -> LayerNorm:
    cols = prod(call["normalized_shape"])
    return LayerNorm(call["input"].numel() // cols, cols, kind)


def _group_norm(call: Call) -> LayerNorm:
    rows = call["N"] * call["group"]
    return LayerNorm(rows, call["input"].numel() // rows)


def _softmax(call: Call) -> Softmax:
    cols = call.first.shape[call["dim"]] if call.first.dim() else 1
    return Softmax(call.first.numel() // cols, cols)


def _reduction(call: Call) -> Operator:
    n, kept = call.first.numel(), max(1, call.out.numel())
    if call.name == "mean" and _is_global_pool(call):
        batch, channels, height, width = call.first.shape
        return Pool("avg", batch, channels, height, width, 1, 1, height, width)
    if call.name == "topk":
        kept = n // max(1, call.first.shape[call["dim"]])
    return Reduction(kept, n // kept)


def _is_global_pool(call: Call) -> bool:
    dims = call.arguments.get("dim")
    return call.first.dim() == 4 and dims is not None and sorted(d % 4 for d in dims) == [2, 3]


def _pool(call: Call, kind: Literal["max", "avg"]) -> Pool:
    """Return pooling; of three dimensions, depth counts as height."""
    lead = 3 if "3d" in call.name else 2
    source, result = call.first, call.out
    batch, channels = (1, *source.shape[:-lead])[-2:]
    h_in, w_in = prod(source.shape[-lead:-1]), source.shape[-1]
    h_out, w_out = prod(result.shape[-lead:-1]), result.shape[-1]
    adaptive = -(-h_in // h_out), -(-w_in // w_out)
    kernel = call.pair("kernel_size") if "kernel_size" in call.arguments else adaptive
    return Pool(kind, batch, channels, h_in, w_in, h_out, w_out, *kernel)


def _embedding(call: Call) -> Embedding:
    vocabulary, cols = call["weight"].shape
    return Embedding(call["indices"].numel(), cols, vocabulary)


def _attention(call: Call) -> Attention:
    query, key, value = call["query"], call["key"], call["value"]
    batch, heads, length, size = query.shape
    size = (size + value.shape[-1]) // 2
    return Attention(batch, heads, length, key.shape[2], size, key.shape[1], bool(call["is_causal"]))


def _loss(call: Call) -> tuple[Operator, ...]:
    n = call["self"].numel()
    return (Elementwise(call.name, n, 2), *((Reduction(1, n),) if call["reduction"] else ()))


_BY_NAME: dict[str, Callable[[Call], Operator | None]] = {
    "mm": lambda c: _product(c, c["self"], c["mat2"]),
    "addmm": lambda c: _product(c, c["mat1"], c["mat2"], c["self"]),
    "mv": lambda c: _product(c, c["self"], c["vec"].unsqueeze(1)),
    "addmv": lambda c: _product(c, c["mat"], c["vec"].unsqueeze(1), c["self"]),
    "dot": lambda c: MatMul(1, 1, c.first.numel()),
    "vdot": lambda c: MatMul(1, 1, c.first.numel()),
    "_grouped_mm": lambda c: _grouped(c, c["self"], c["mat2"]),
    "bmm": lambda c: _batched(c["self"], c["mat2"]),
    "baddbmm": lambda c: _batched(c["batch1"], c["batch2"]),
    "linear": _linear,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "miopen_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_batch_norm_with_update": _batch_norm,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_fused_rms_norm": lambda c: _layer_norm(c, "rms_norm"),
    "_softmax": _softmax,
    "_safe_softmax": _softmax,
    "_log_softmax": _softmax,
    "max_pool2d_with_indices": lambda c: _pool(c, "max"),
    "max_pool3d_with_indices": lambda c: _pool(c, "max"),
    "adaptive_max_pool2d": lambda c: _pool(c, "max"),
    "adaptive_max_pool3d": lambda c: _pool(c, "max"),
    "avg_pool2d": lambda c: _pool(c, "avg"),
    "avg_pool3d": lambda c: _pool(c, "avg"),
    "_adaptive_avg_pool2d": lambda c: _pool(c, "avg"),
    "_adaptive_avg_pool3d": lambda c: _pool(c, "avg"),
    "embedding": _embedding,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "native_dropout": lambda c: Elementwise("dropout", c["input"].numel()),
    "nll_loss_forward": lambda c: Elementwise("nll_loss", c["target"].numel()),
    "nll_loss2d_forward": lambda c: Elementwise("nll_loss", c["target"].numel()),
}
