"""Map aten operators to the operators of this package.

Tables map them by name; torch's tags identify element-wise operators.  Data movement without arithmetic (padding,
gathering, interpolation) counts as a copy of its output.  A scan, random numbers and a sort count as one pass, which
is too little for a sort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, Literal

from simulator.workload import operators as ops
from simulator.workload.torch_import.call import Call, is_pointwise


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# No kernel runs: these only allocate memory, or pass a number to the next kernel.
FREE = _names("""
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided scalar_tensor lift_fresh
    _local_scalar_dense set_ resize_ as_strided set _assert_async _assert_scalar
""")
_COPIES = _names("""
    clone copy _to_copy cat stack hstack vstack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d roll flip repeat index_select index gather scatter
    scatter_add scatter_reduce slice_scatter select_scatter diagonal_scatter index_add index_copy index_put
    _unsafe_index _unsafe_index_put masked_scatter im2col col2im pixel_shuffle pixel_unshuffle channel_shuffle
    repeat_interleave narrow_copy view_copy permute_copy expand_copy slice_copy split_copy split_with_sizes_copy
    unbind_copy transpose_copy t_copy alias_copy diag_embed rot90 upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa
    _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d affine_grid_generator
""")
_FILLS = _names("""
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill zero eye arange linspace
    logspace tril_indices triu_indices
""")
_RANDOM = _names("""
    rand rand_like randn randn_like randint randint_like uniform normal normal_functional bernoulli exponential
    random cauchy log_normal geometric randperm
""")
_ELEMENTWISE = _names("""
    tril triu glu prelu _prelu_kernel rrelu_with_noise log_sigmoid_forward bucketize cumsum cumprod logcumsumexp
    cummax cummin isin floor_divide complex polar hardswish masked_fill where _weight_norm_interface
    _fused_moving_avg_obs_fq_helper fake_quantize_per_tensor_affine_cachemask nan_to_num sort histc searchsorted
""")
_REDUCTIONS = _names("""
    sum nansum mean nanmean var std var_mean std_mean amax amin aminmax max min argmax argmin any all prod logsumexp
    linalg_vector_norm norm count_nonzero topk native_norm frobenius_norm trace
""")
_LOSSES = _names("""
    mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss multilabel_margin_loss_forward
    multi_margin_loss
""")
# With a number as the second operand, these run another kernel.
_SCALAR = _names("""
    add sub mul div pow remainder fmod eq ne lt le gt ge
""")


def operators_of(call: Call) -> tuple[ops.Operator, ...] | None:
    """Return the operators that *call* runs, in order; None if it is unknown."""
    if call.func.namespace in ("aten", "prims"):
        made = _BY_NAME.get(call.name)
        if made is not None:
            operator = made(call)
            return (operator,) if operator is not None else ()
        if call.name in _LOSSES:
            return _loss(call)
        if call.name in _COPIES:
            return (ops.Copy(call.out.numel() if call.name != "copy" else call["self"].numel(), _transposed(call)),)
        if call.name in _FILLS or call.name in _RANDOM:
            return (ops.Elementwise("fill" if call.name in _FILLS else "random", call.out.numel(), 0),)
        compares_two = call.name in ("max", "min") and "other" in call.arguments
        if call.name in _REDUCTIONS and not compares_two:
            return (_reduction(call),)
    if call.outputs and (call.name in _ELEMENTWISE or is_pointwise(call)):
        return (_elementwise(call),)
    return None


def _elementwise(call: Call) -> ops.Elementwise:
    name = "sub" if call.name == "rsub" else call.name.strip("_")
    n = call.out.numel()
    whole = sum(tensor.numel() == n for tensor in call.inputs)
    if name in _SCALAR:
        second = next((call.arguments[key] for key in ("other", "exponent") if key in call.arguments), None)
        if getattr(second, "ndim", 0) == 0 and whole <= 1:
            name += "_scalar"
    return ops.Elementwise(name, n, max(1, whole))


def _transposed(call: Call) -> bool:
    """Return whether the copy reorders elements: the output's unit-stride dimension is strided in the input."""
    if call.name not in ("clone", "copy", "_to_copy"):
        return False
    source, target = (call["src"], call["self"]) if call.name == "copy" else (call.first, call.out)
    if source.shape != target.shape:
        return False
    for size, read, written in zip(source.shape, source.stride(), target.stride(), strict=True):
        if size > 1 and written == 1:
            return read not in (0, 1)
    return False


def _product(call: Call, a: Any, b: Any, bias: Any = None) -> ops.Operator:
    """Return the product ``a b``: a linear layer if one of the factors is a parameter."""
    (m, k), n = a.shape, b.shape[1]
    has_bias = bias is not None and call.is_weight(bias)
    if call.is_weight(b):
        return ops.Linear(m, k, n, has_bias)
    if call.is_weight(a):
        return ops.Linear(n, k, m, has_bias)
    return ops.MatMul(m, n, k, 1, _layout(a, b))


def _batched(a: Any, b: Any) -> ops.MatMul:
    batch, m, k = a.shape
    return ops.MatMul(m, b.shape[2], k, batch, _layout(a, b))


def _grouped(call: Call, rows: Any, experts: Any) -> ops.Operator | None:
    """Return the product of each row with its expert's matrix; the assignment depends on values, not shapes."""
    if rows.dim() != 2 or experts.dim() != 3:
        return None
    (m, k), n = rows.shape, experts.shape[2]
    return ops.Linear(m, k, n, bias=False) if call.is_weight(experts) else ops.MatMul(m, n, k)


def _layout(a: Any, b: Any) -> Literal["NN", "NT", "TN", "TT"]:
    if _is_turned(a):
        return "TT" if _is_turned(b) else "TN"
    return "NT" if _is_turned(b) else "NN"


def _is_turned(matrix: Any) -> bool:
    return bool(matrix.shape[-1] > 1 and matrix.stride(-1) != 1 and matrix.stride(-2) == 1)


def _linear(call: Call) -> ops.Linear:
    weight = call["weight"]
    return ops.Linear(
        call["input"].numel() // weight.shape[1], weight.shape[1], weight.shape[0], call["bias"] is not None
    )


def _convolution(call: Call) -> ops.Conv2d:
    """Return a convolution; 1-D ones have height 1, and in 3-D ones each output depth is an image of its own."""
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
    operator = ops.Conv2d(
        batch, channels, result.shape[1], height, width, kernel[-2], kernel[-1], stride[-2], stride[-1],
        pad[-2], pad[-1], call["groups"], call["bias"] is not None, dilation[-2], dilation[-1],
    )  # fmt: skip
    return replace(operator, transposed=True) if transposed else operator


def _sides(values: Any, dimensions: int, missing: int) -> tuple[int, ...]:
    """Return strides, paddings or sizes for at least two dimensions; *missing* stands for an absent height."""
    sides = tuple(int(value) for value in values)
    sides = sides * dimensions if len(sides) == 1 else sides
    return sides if len(sides) > 1 else (missing, *sides)


def _batch_norm(call: Call) -> ops.BatchNorm:
    batch, channels, *sizes = call["input"].shape
    return ops.BatchNorm(batch, channels, prod(sizes[:-1]), sizes[-1] if sizes else 1)


def _layer_norm(call: Call, kind: Literal["layer_norm", "rms_norm"] = "layer_norm") -> ops.LayerNorm:
    cols = prod(call["normalized_shape"])
    return ops.LayerNorm(call["input"].numel() // cols, cols, kind)


def _group_norm(call: Call) -> ops.LayerNorm:
    rows = call["N"] * call["group"]
    return ops.LayerNorm(rows, call["input"].numel() // rows)


def _softmax(call: Call) -> ops.Softmax:
    cols = call.first.shape[call["dim"]] if call.first.dim() else 1
    return ops.Softmax(call.first.numel() // cols, cols)


def _reduction(call: Call) -> ops.Operator:
    n, kept = call.first.numel(), max(1, call.out.numel())
    if call.name == "mean" and _is_global_pool(call):
        batch, channels, height, width = call.first.shape
        return ops.Pool("avg", batch, channels, height, width, 1, 1, height, width)
    if call.name == "topk":
        kept = n // max(1, call.first.shape[call["dim"]])
    return ops.Reduction(kept, n // kept)


def _is_global_pool(call: Call) -> bool:
    dims = call.arguments.get("dim")
    return call.first.dim() == 4 and dims is not None and sorted(d % 4 for d in dims) == [2, 3]


def _pool(call: Call, kind: Literal["max", "avg"]) -> ops.Pool:
    """Return pooling; in 3-D pooling, depth and height are merged into the height."""
    lead = 3 if "3d" in call.name else 2
    source, result = call.first, call.out
    batch, channels = (1, *source.shape[:-lead])[-2:]
    h_in, w_in = prod(source.shape[-lead:-1]), source.shape[-1]
    h_out, w_out = prod(result.shape[-lead:-1]), result.shape[-1]
    adaptive = -(-h_in // h_out), -(-w_in // w_out)
    kernel = call.pair("kernel_size") if "kernel_size" in call.arguments else adaptive
    return ops.Pool(kind, batch, channels, h_in, w_in, h_out, w_out, *kernel)


def _embedding(call: Call) -> ops.Embedding:
    vocabulary, cols = call["weight"].shape
    return ops.Embedding(call["indices"].numel(), cols, vocabulary)


def _attention(call: Call) -> ops.Attention:
    query, key, value = call["query"], call["key"], call["value"]
    batch, heads, length, size = query.shape
    size = (size + value.shape[-1]) // 2
    return ops.Attention(batch, heads, length, key.shape[2], size, key.shape[1], bool(call["is_causal"]))


def _loss(call: Call) -> tuple[ops.Operator, ...]:
    n = call["self"].numel()
    return (ops.Elementwise(call.name, n, 2), *((ops.Reduction(1, n),) if call["reduction"] else ()))


_BY_NAME: dict[str, Callable[[Call], ops.Operator | None]] = {
    "mm": lambda c: _product(c, c["self"], c["mat2"]),
    "addmm": lambda c: _product(c, c["mat1"], c["mat2"], c["self"]),
    "mv": lambda c: _product(c, c["self"], c["vec"].unsqueeze(1)),
    "addmv": lambda c: _product(c, c["mat"], c["vec"].unsqueeze(1), c["self"]),
    **dict.fromkeys(("dot", "vdot"), lambda c: ops.MatMul(1, 1, c.first.numel())),
    "_grouped_mm": lambda c: _grouped(c, c["self"], c["mat2"]),
    "bmm": lambda c: _batched(c["self"], c["mat2"]),
    "baddbmm": lambda c: _batched(c["batch1"], c["batch2"]),
    "linear": _linear,
    **dict.fromkeys(("convolution", "convolution_overrideable"), _convolution),
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"), _batch_norm),
    **dict.fromkeys(("_native_batch_norm_legit", "_batch_norm_with_update"), _batch_norm),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_fused_rms_norm": lambda c: _layer_norm(c, "rms_norm"),
    **dict.fromkeys(("_softmax", "_safe_softmax", "_log_softmax"), _softmax),
    **{f"max_pool{n}d_with_indices": lambda c: _pool(c, "max") for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": lambda c: _pool(c, "max") for n in (2, 3)},
    **{f"{kind}avg_pool{n}d": lambda c: _pool(c, "avg") for kind in ("", "_adaptive_") for n in (2, 3)},
    **dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only"), _embedding),
    **{
        f"_scaled_dot_product_{how}_attention{where}": _attention
        for how, where in (("flash", ""), ("flash", "_for_cpu"), ("efficient", ""), ("cudnn", ""))
    },
    "native_dropout": lambda c: ops.Elementwise("dropout", c["input"].numel()),
    **{f"nll_loss{n}_forward": lambda c: ops.Elementwise("nll_loss", c["target"].numel()) for n in ("", "2d")},
}
