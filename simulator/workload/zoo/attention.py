"""Self-attention of transformers, in the variants that frameworks run.

``eager``: one kernel per operation, as Hugging Face's ``attn_implementation="eager"``.  ``fused-softmax``: scale, mask
and softmax are one kernel, and the products need no copies, as in Megatron-LM.  ``fused``: one kernel that never
writes the scores (FlashAttention 2).  ``fused-first``: the same before July 2023 (FlashAttention 1).  ``fused-native``:
the same, written for the GPU's own generation (FlashAttention 3, cuDNN 9; see
:class:`simulator.workload.operators.Attention`).  ``fused-fourth``: the same since 2026 (FlashAttention 4, cuDNN 9.14).
"""

from __future__ import annotations

from typing import Literal, get_args

from simulator.records import replace
from simulator.workload.network import Parameter
from simulator.workload.operators import AttentionLibrary, Copy, Elementwise, Reduction
from simulator.workload.zoo import FUSED
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError

AttentionKind = Literal["eager", "fused-softmax", "fused", "fused-first", "fused-native", "fused-fourth"]
ATTENTIONS: tuple[AttentionKind, ...] = get_args(AttentionKind)
_LIBRARIES: dict[str, AttentionLibrary] = dict(zip(FUSED, ("flash2", "flash1", "native", "flash4"), strict=True))
_MOST_FUSED = 16384  # longest rows, in keys, of Megatron-LM's softmax kernels (FusedScaleMaskSoftmax)
# How the mask is applied to the scores: not at all; added (padding or causal); selected with where (causal); added and
# then bounded below (causal; OPT).
Mask = Literal["none", "add-padding", "add-causal", "where-causal", "bounded-causal"]


def attention_of(library: AttentionLibrary | None) -> AttentionKind:
    """Return the kind whose kernel is of *library*; None: the kind that fuses the softmax alone."""
    return next(
        (kind for kind in ATTENTIONS if library is not None and _LIBRARIES.get(kind) == library), "fused-softmax"
    )


def self_attention(
    b: NetworkBuilder,
    qkv: tuple[LayerOutput, LayerOutput, LayerOutput],
    name: str,
    *,
    heads: int,
    kind: AttentionKind,
    mask: Mask,
    kv_heads: int = 0,
    dropout: bool = True,
    window: int = 0,
    sinks: bool = False,
) -> LayerOutput:
    """Return the attention output of *qkv*, as ``(batch, length, heads * value size)``.

    Queries are ``(batch, length, heads * size)``; keys and values have *kv_heads* heads (0: as many), values of any
    size.  Eager attention copies permuted views before its products if the batch has more than one sequence; OPT always
    does.

    *window*: keys that a query sees, with a causal mask; 0: all.  A kernel that writes the scores computes the others
    too.  *sinks*: a learned number per head takes part in its softmax, as one more column (gpt-oss).  Raises SizeError
    for kinds that have neither, and where heads do not divide what they share.
    """
    query, key, value = qkv
    batch, length, hidden = query.shape
    size, kv_heads = hidden // heads, kv_heads or heads
    if hidden % heads:
        raise SizeError(f"{heads} heads do not divide a hidden size of {hidden}")
    if heads % kv_heads or value.shape[-1] % kv_heads:
        raise SizeError(f"{kv_heads} heads of keys and values do not divide {heads} heads, or {value.shape[-1]} values")
    of_values = value.shape[-1] // kv_heads
    split, value_split = (batch, heads, length, size), (batch, heads, length, of_values)
    if (window or sinks) and kind in ("fused-first", "fused-softmax"):
        raise SizeError(f"attention={kind} has neither windows nor sinks; eager, fused and fused-native have both")
    if kind in _LIBRARIES:
        query, key = b.view(query, *split), b.view(key, batch, kv_heads, length, size)
        value = b.view(value, batch, kv_heads, length, of_values)
        is_causal = mask not in ("none", "add-padding")
        return b.attention(
            query,
            key,
            value,
            f"{name}.attention",
            causal=is_causal,
            library=_LIBRARIES[kind],
            window=window,
            sinks=sinks,
        )
    if kv_heads != heads:  # keys and values are repeated for each query head of their group
        key, value = b.copy(key, f"{name}.repeat_k", split), b.copy(value, f"{name}.repeat_v", value_split)
    if kind == "fused-softmax":
        scores = b.matmul(b.view(query, *split), b.view(key, *split), f"{name}.scores", "NT")
        masked: Literal["masked", "causal"] = "masked" if mask in ("none", "add-padding") else "causal"
        weights = b.softmax(scores, f"{name}.softmax", masked if length <= _MOST_FUSED else "")
        value = b.view(value, *value_split)
    else:
        weights, value = _eager(b, (query, key, value), name, split, value_split, mask, sinks=sinks)
    if dropout:
        weights = b.dropout(weights, f"{name}.dropout")
    context = b.matmul(weights, value, f"{name}.context")
    return b.copy(context, f"{name}.merge", (batch, length, heads * of_values))


def _eager(
    b: NetworkBuilder,
    qkv: tuple[LayerOutput, LayerOutput, LayerOutput],
    name: str,
    split: tuple[int, ...],
    value_split: tuple[int, ...],
    mask: Mask,
    *,
    sinks: bool,
) -> tuple[LayerOutput, LayerOutput]:
    """Return the attention weights (before dropout), and the values split into heads."""
    query, key, value = qkv
    batch, heads, length, size = split
    bounded = mask == "bounded-causal"
    if bounded:
        query, key, value = (b.copy(t, f"{name}.split_{c}", split) for t, c in zip(qkv, "qkv", strict=True))
        scores = b.matmul(query, key, f"{name}.scores", "NT")
    elif batch > 1:
        query = b.copy(query, f"{name}.split_q", split)
        key = b.copy(key, f"{name}.split_k", (batch, heads, size, length), transposed=True)
        value = b.copy(value, f"{name}.split_v", value_split)
        scores = b.matmul(query, key, f"{name}.scores")
    else:
        value = b.view(value, *value_split)
        scores = b.matmul(b.view(query, *split), b.view(key, *split), f"{name}.scores", "NT")
    if not bounded:  # OPT scales the queries instead
        scores = b.elementwise(f"{name}.scale", "div_scalar", scores)
    if mask == "where-causal":
        scores = b.elementwise(f"{name}.mask", "where", scores)
    elif mask != "none":
        scores = b.elementwise(f"{name}.mask", "add", scores)  # the mask stays in the cache
    if bounded:
        scores = b.elementwise(f"{name}.bound", "maximum", scores)
    if not sinks:
        return b.softmax(scores, f"{name}.softmax"), value
    # The sinks are joined as one more column, the largest score of each row is subtracted, and the column is dropped.
    rows, wider = batch * heads * length, (*scores.shape[:-1], length + 1)
    learned = (Parameter(f"{name}.attention.sinks", heads),)
    scores = b.add_layer(f"{name}.sinks", Copy(rows * (length + 1)), (scores,), wider, learned)
    most = b.add_layer(f"{name}.most", Reduction(rows, length + 1), (scores,), (rows,))
    scores = b.add_layer(f"{name}.below", Elementwise("sub", scores.elements), (scores, most), wider)
    return b.view(b.softmax(scores, f"{name}.softmax"), batch, heads, length, length), value


def rotate(b: NetworkBuilder, x: LayerOutput, name: str, share: int = 1) -> LayerOutput:
    """Return *x* with rotary positions: ``x cos + rotate_half(x) sin``, one kernel per operation.

    With a *share* of 2, half of each head is rotated and concatenated with the rest.
    """
    turning = replace(x, shape=(*x.shape[:-1], x.shape[-1] // share))
    half = replace(x, shape=(*x.shape[:-1], x.shape[-1] // (2 * share)))
    negated = b.add_layer(f"{name}.neg", Elementwise("neg", half.elements), (half,), half.shape)
    turned = b.add_layer(f"{name}.cat", Copy(turning.elements), (negated, turning), turning.shape)
    cosine = b.elementwise(f"{name}.cos", "mul", turning)
    sine = b.elementwise(f"{name}.sin", "mul", turned)
    rotated = b.add(cosine, sine, f"{name}.add")
    return rotated if share == 1 else b.add_layer(f"{name}.join", Copy(x.elements), (rotated, x), x.shape)
