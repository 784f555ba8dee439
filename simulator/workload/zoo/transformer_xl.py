"""Transformer-XL (Dai et al., arXiv 1901.02860), as NVIDIA's DeepLearningExamples train it on WikiText-103.

Queries come from the current segment; keys and values also from the remembered states of the previous one.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Copy, Elementwise
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError


def transformer_xl(
    b: NetworkBuilder,
    tokens: LayerOutput,
    hidden: int,
    heads: int,
    layers: int,
    inner: int,
    memory: int,
    vocabulary: int,
) -> LayerOutput:
    """Return the logits of each next word (no adaptive softmax), ``(batch, length, vocabulary)``.

    Raises SizeError if *heads* do not divide *hidden*.
    """
    if hidden % heads:
        raise SizeError(f"hidden {hidden} is no multiple of {heads} heads")
    batch, length = tokens.shape
    words = b.embedding(tokens, "word_emb", vocabulary, hidden)
    table, _ = b.embedding_of(words)
    x = b.dropout(b.elementwise("word_emb.scale", "mul_scalar", words, in_place=True), "dropout")
    positions = b.dropout(b.input(memory + length, hidden), "pos_emb.dropout")
    for i in range(layers):
        x = _attend(b, x, b.input(batch, memory, hidden), positions, f"layers.{i}", heads)
        x = _feed_forward(b, x, f"layers.{i}", inner)
    return b.linear(b.dropout(x, "out.dropout"), "out", vocabulary, tied=table)


def _attend(
    b: NetworkBuilder, x: LayerOutput, before: LayerOutput, positions: LayerOutput, name: str, heads: int
) -> LayerOutput:
    """Return the normalised sum of *x* and its attention, by content and by distance (section 3.3)."""
    batch, length, hidden = x.shape
    reach, size = before.shape[1] + length, hidden // heads
    with b.part("attention"):
        seen = b.add_layer(f"{name}.join", Copy(batch * reach * hidden), (before, x), (batch, reach, hidden))
        qkv = b.linear(seen, f"{name}.qkv", 3 * hidden, bias=False)
        distances = b.linear(positions, f"{name}.r", hidden, bias=False)
        query = b.view(qkv, *x.shape)
        # Two vectors, shared by all layers, replace the query's absolute position (u and v in the paper).
        content = _plus(b, query, f"{name}.content", "r_w_bias")
        place = _plus(b, query, f"{name}.place", "r_r_bias")
        keys = b.copy(b.view(qkv, *seen.shape), f"{name}.split_k", (batch, heads, reach, size))
        by_content = b.matmul(b.view(content, batch, heads, length, size), keys, f"{name}.scores", "NT")
        far = b.view(distances, heads, reach, size)
        by_place = b.matmul(b.view(place, heads, batch * length, size), far, f"{name}.distances", "NT")
        # Padding each row by one element shifts the rows against each other.
        moved = b.copy(b.view(by_place, *by_content.shape), f"{name}.shift", by_content.shape)
        scores = b.add_layer(
            f"{name}.sum", Elementwise("add", by_content.elements, 2), (by_content, moved), by_content.shape
        )
        scores = b.elementwise(f"{name}.mask", "masked_fill", scores, in_place=True)
        weights = b.dropout(b.softmax(scores, f"{name}.softmax"), f"{name}.dropatt")
        values = b.copy(b.view(qkv, *seen.shape), f"{name}.split_v", (batch, heads, reach, size))
        context = b.matmul(weights, values, f"{name}.context")
        context = b.copy(context, f"{name}.merge", x.shape)
        y = b.dropout(b.linear(context, f"{name}.o", hidden, bias=False), f"{name}.dropout")
    return b.layer_norm(b.add(x, y, f"{name}.add"), f"{name}.norm")


def _plus(b: NetworkBuilder, x: LayerOutput, name: str, bias: str) -> LayerOutput:
    return b.add_layer(name, Elementwise("add", x.elements, summed=1), (x,), x.shape, (Parameter(bias, x.shape[-1]),))


def _feed_forward(b: NetworkBuilder, x: LayerOutput, name: str, inner: int) -> LayerOutput:
    with b.part("feed-forward"):
        y = b.relu(b.linear(x, f"{name}.ff1", inner), f"{name}.relu")
        y = b.linear(b.dropout(y, f"{name}.ff1.dropout"), f"{name}.ff2", x.shape[-1])
        y = b.dropout(y, f"{name}.ff2.dropout")
    return b.layer_norm(b.add(x, y, f"{name}.ff.add"), f"{name}.ff.norm")
