"""Self-attention of transformers, in the variants that frameworks run (docs/decisions/zoo.md)."""

from collections.abc import Callable
from typing import Literal, get_args

from simulator.workload.operators import Attention, AttentionLibrary, Copy, Elementwise, Reduction
from simulator.workload.zoo import FUSED
from simulator.workload.zoo.builder import SizeError, Tensor, weights

AttentionKind = Literal["eager", "fused-softmax", "fused", "fused-first", "fused-native", "fused-fourth"]
ATTENTIONS: tuple[AttentionKind, ...] = get_args(AttentionKind)
Activation = Callable[[Tensor, str], Tensor]
_LIBRARIES: dict[str, AttentionLibrary] = dict(zip(FUSED, ("flash2", "flash1", "native", "flash4"), strict=True))
_MOST_FUSED = 16384  # longest rows, in keys, of Megatron-LM's softmax kernels (FusedScaleMaskSoftmax)
# How the mask is applied to the scores: not at all; added (padding or causal); selected with where (causal); added and
# then bounded below (causal; OPT).
Mask = Literal["none", "add-padding", "add-causal", "where-causal", "bounded-causal"]


def attention_of(library: AttentionLibrary | None) -> AttentionKind:
    """Return the kind whose kernel is of *library*; None: the kind that fuses the softmax alone."""
    return next((kind for kind in ATTENTIONS if library and _LIBRARIES.get(kind) == library), "fused-softmax")


def self_attention(
    qkv: tuple[Tensor, Tensor, Tensor],
    name: str,
    *,
    heads: int,
    kind: AttentionKind,
    mask: Mask,
    kv_heads: int = 0,
    dropout: bool = False,
    window: int = 0,
    sinks: bool = False,
    documents: tuple[int, ...] = (),
) -> Tensor:
    """Return the attention output of *qkv*, as ``(batch, length, heads * value size)``.

    Queries are ``(batch, length, heads * size)``; keys and values have *kv_heads* heads (0: as many), values of any
    size.  Eager attention copies permuted views before its products if the batch has more than one sequence; OPT always
    does.

    *window*: keys that a query sees, with a causal mask; 0: all.  *documents*: lengths of those that a sequence packs,
    each of which attends to itself alone.  Kernels that write the scores compute all of them.  *sinks*: a learned
    number per head takes part in its softmax, as one more column (gpt-oss).  Raises SizeError for kinds that have
    neither windows nor sinks, and where heads do not divide what they share.
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
    padded = mask in ("none", "add-padding")
    if kind in _LIBRARIES:
        sizes = batch, heads, length, length, size, kv_heads, not padded, _LIBRARIES[kind]
        seen = window * (window < length)
        operator = Attention(*sizes, of_values * (of_values != size), seen, documents=documents)
        own, shape = f"{name}.attention", (batch, length, heads * of_values)
        return query.layer(own, operator, shape, weights(own, sinks=heads * sinks), key, value)
    if kv_heads != heads:  # keys and values are repeated for each query head of their group
        key, value = key.copy(f"{name}.repeat_k", *split), value.copy(f"{name}.repeat_v", *value_split)
    if kind == "fused-softmax":
        scores = query.view(*split).matmul(key.view(*split), f"{name}.scores", "NT")
        masked: Literal["masked", "causal"] = "masked" if padded else "causal"
        shares = scores.softmax(f"{name}.softmax", masked if length <= _MOST_FUSED else "")
        value = value.view(*value_split)
    else:
        shares, value = _eager((query, key, value), name, split, of_values, mask, sinks=sinks)
    shares = shares.dropout(f"{name}.dropout") if dropout else shares
    return shares.matmul(value, f"{name}.context").copy(f"{name}.merge", batch, length, heads * of_values)


def _eager(
    qkv: tuple[Tensor, Tensor, Tensor], name: str, split: tuple[int, ...], of_values: int, mask: Mask, *, sinks: bool
) -> tuple[Tensor, Tensor]:
    """Return the attention weights (before dropout), and the values split into heads, of so many elements each."""
    query, key, value = qkv
    batch, heads, length, size = split
    value_split = batch, heads, length, of_values
    if mask == "bounded-causal":  # OPT, which scales the queries
        query, key, value = (x.copy(f"{name}.split_{letter}", *split) for x, letter in zip(qkv, "qkv", strict=True))
        scores = query.matmul(key, f"{name}.scores", "NT").apply(f"{name}.mask", "add")
        scores = scores.apply(f"{name}.bound", "maximum")
    else:
        if batch > 1:
            query = query.copy(f"{name}.split_q", *split)
            key = key.copy(f"{name}.split_k", batch, heads, size, length, transposed=True)
            value = value.copy(f"{name}.split_v", *value_split)
            scores = query.matmul(key, f"{name}.scores")
        else:
            value = value.view(*value_split)
            scores = query.view(*split).matmul(key.view(*split), f"{name}.scores", "NT")
        scores = scores.apply(f"{name}.scale", "div_scalar")
        if mask != "none":  # it stays in the cache
            scores = scores.apply(f"{name}.mask", "where" if mask == "where-causal" else "add")
    if not sinks:
        return scores.softmax(f"{name}.softmax"), value
    # The sinks are joined as one more column, the largest score of each row is subtracted, and the column is dropped.
    rows, wider = batch * heads * length, (batch, heads, length, length + 1)
    learned = weights(f"{name}.attention", sinks=heads)
    scores = scores.layer(f"{name}.sinks", Copy(rows * (length + 1)), wider, learned)
    most = scores.layer(f"{name}.most", Reduction(rows, length + 1), (rows,))
    scores = scores.layer(f"{name}.below", Elementwise("sub", scores.elements), None, (), most)
    return scores.softmax(f"{name}.softmax").view(*split[:3], length), value


def attended(
    x: Tensor,
    name: str,
    heads: int,
    mask: Mask,
    kind: AttentionKind = "eager",
    source: Tensor | None = None,
    *,
    dropout: bool = True,
) -> Tensor:
    """Return the attention of *x*, to itself or to *source*, between projections with biases as wide as *x*."""
    hidden = x.shape[-1]
    with x.net.part("attention"):
        query, key, value = (
            y.linear(f"{name}.{letter}", hidden, split="columns")
            for letter, y in zip("qkv", (x, source or x, source or x), strict=True)
        )
        y = self_attention((query, key, value), name, heads=heads, kind=kind, mask=mask, dropout=dropout)
        return y.linear(f"{name}.out", hidden, split="rows")


def feed_forward(
    x: Tensor, name: str, inner: int, function: str | Activation, *, bias: bool = True, dropped: bool = False
) -> Tensor:
    """Return two linear layers with *function* between, and its dropout if *dropped*; *inner*: the width there."""
    with x.net.part("feed-forward"):
        y = x.linear(f"{name}.up", inner, bias=bias, split="columns")
        y = y.apply(f"{name}.{function}", function) if isinstance(function, str) else function(y, name)
        y = y.dropout(f"{name}.{function}_dropout") if dropped else y
        return y.linear(f"{name}.down", x.shape[-1], bias=bias, split="rows")


def embed_positions(x: Tensor, name: str, positions: int) -> Tensor:
    """Return *x* plus a learned row for each position, the same for all sequences."""
    _, length, hidden = x.shape
    return x.add_small(f"{name}.add", x.net.input(length).embedding(name, positions, hidden))


def rotate(x: Tensor, name: str, share: int = 1) -> Tensor:
    """Return *x* with rotary positions: ``x cos + rotate_half(x) sin``, one kernel per operation.

    With a *share* of 2, half of each head is rotated and concatenated with the rest.
    """
    *outer, size = x.shape
    turning, half = x.view(*outer, size // share), x.view(*outer, size // (2 * share))
    turned = half.apply(f"{name}.neg", "neg").gather(f"{name}.cat", turning.shape, turning)
    cosine, sine = turning.apply(f"{name}.cos", "mul"), turned.apply(f"{name}.sin", "mul")
    rotated = cosine.add(sine, f"{name}.add")
    return rotated if share == 1 else rotated.gather(f"{name}.join", x.shape, x)
