"""T5 (Raffel et al., arXiv 1910.10683, section 2.1), an encoder and a decoder, as in Hugging Face's model.

Positions are biases of the scores: one number for each head and distance, shared by all layers of a stack.
"""

from __future__ import annotations

from simulator.records import dataclass
from simulator.workload.network import Parameter
from simulator.workload.operators import Copy, Elementwise, Embedding
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder

_BUCKETS = 32  # of distances


@dataclass(frozen=True, slots=True)
class T5:
    """Sizes of both stacks; ``target_length``: tokens of the decoder (114: arXiv 1910.10683, section 3.1.4)."""

    hidden: int
    heads: int
    layers: int
    inner: int
    head_size: int = 64
    vocabulary: int = 32128
    target_length: int = 114


def t5(b: NetworkBuilder, tokens: LayerOutput, t: T5) -> LayerOutput:
    """Return the logits of each token of the decoder."""
    source = _stack(b, _embed(b, tokens, "encoder", t), "encoder", t)
    written = b.input(tokens.shape[0], t.target_length)
    x = _stack(b, _embed(b, written, "decoder", t), "decoder", t, source)
    x = b.elementwise("scale", "mul_scalar", x)
    return b.linear(x, "lm_head", t.vocabulary, bias=False, tied=_words(t), split="columns")


def _words(t: T5) -> Parameter:
    return Parameter("embed.weight", t.vocabulary * t.hidden)


def _embed(b: NetworkBuilder, tokens: LayerOutput, name: str, t: T5) -> LayerOutput:
    operator = Embedding(tokens.elements, t.hidden, t.vocabulary)
    x = b.add_layer(f"{name}.embed", operator, (tokens,), (*tokens.shape, t.hidden), (_words(t),))
    return b.dropout(x, f"{name}.embed_dropout")


def _stack(b: NetworkBuilder, x: LayerOutput, name: str, t: T5, source: LayerOutput | None = None) -> LayerOutput:
    length = x.shape[1]
    bias = b.embedding(b.input(length, length), f"{name}.positions", _BUCKETS, t.heads)
    for i in range(t.layers):
        block = f"{name}.{i}"
        x = _attention(b, x, None, f"{block}.self", t, bias)
        if source is not None:
            x = _attention(b, x, source, f"{block}.cross", t, None)
        y = b.layer_norm(x, f"{block}.norm", kind="rms_norm")
        with b.part("feed-forward"):
            y = b.elementwise(f"{block}.relu", "relu", b.linear(y, f"{block}.up", t.inner, bias=False, split="columns"))
            y = b.dropout(y, f"{block}.relu_dropout")
            y = b.linear(y, f"{block}.down", t.hidden, bias=False, split="rows")
        x = b.add(x, b.dropout(y, f"{block}.down_dropout"), f"{block}.add")
    return b.dropout(b.layer_norm(x, f"{name}.norm", kind="rms_norm"), f"{name}.dropout")


def _attention(
    b: NetworkBuilder, x: LayerOutput, source: LayerOutput | None, name: str, t: T5, bias: LayerOutput | None
) -> LayerOutput:
    """Return *x* plus its attention to itself or, if given, to *source*."""
    batch, length, _ = x.shape
    inner = t.heads * t.head_size
    y = b.layer_norm(x, f"{name}.norm", kind="rms_norm")
    read = y if source is None else source
    of_keys = read.shape[1]
    queries, keys = (batch, t.heads, length, t.head_size), (batch, t.heads, of_keys, t.head_size)
    with b.part("attention"):
        query = b.linear(y, f"{name}.q", inner, bias=False, split="columns")
        key = b.linear(read, f"{name}.k", inner, bias=False, split="columns")
        value = b.linear(read, f"{name}.v", inner, bias=False, split="columns")
        if batch > 1:  # products need permuted views copied if there is more than one sequence
            turned = batch, t.heads, t.head_size, of_keys
            query, value = b.copy(query, f"{name}.split_q", queries), b.copy(value, f"{name}.split_v", keys)
            scores = b.matmul(query, b.copy(key, f"{name}.split_k", turned, transposed=True), f"{name}.scores")
        else:
            scores = b.matmul(b.view(query, *queries), b.view(key, *keys), f"{name}.scores", "NT")
            value = b.view(value, *keys)
        biased = (scores,) if bias is None else (scores, bias)  # the bias stays in the cache
        scores = b.add_layer(f"{name}.bias", Elementwise("add", scores.elements), biased, scores.shape)
        weights = b.dropout(b.softmax(scores, f"{name}.softmax"), f"{name}.dropout")
        context = b.matmul(weights, value, f"{name}.context")
        y = b.add_layer(f"{name}.merge", Copy(context.elements), (context,), (batch, length, inner))
        y = b.linear(y, f"{name}.out", t.hidden, bias=False, split="rows")
    return b.add(x, b.dropout(y, f"{name}.out_dropout"), f"{name}.add")
