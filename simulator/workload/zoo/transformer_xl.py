"""Transformer-XL (Dai et al., arXiv 1901.02860), as NVIDIA's DeepLearningExamples train it on WikiText-103.

Queries come from the current segment; keys and values also from the remembered states of the previous one.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.zoo.builder import SizeError, Tensor


def transformer_xl(
    tokens: Tensor, hidden: int, heads: int, layers: int, inner: int, memory: int, vocabulary: int
) -> Tensor:
    """Return the logits of each next word (no adaptive softmax), ``(batch, length, vocabulary)``.

    Raises SizeError if *heads* do not divide *hidden*.
    """
    if hidden % heads:
        raise SizeError(f"hidden {hidden} is no multiple of {heads} heads")
    net, (batch, length) = tokens.net, tokens.shape
    words = tokens.embedding("word_emb", vocabulary, hidden)
    x = words.apply("word_emb.scale", "mul_scalar", in_place=True).dropout("dropout")
    positions = net.input(memory + length, hidden).dropout("pos_emb.dropout")
    for i in range(layers):
        name = f"layers.{i}"
        x = _attend(x, net.input(batch, memory, hidden), positions, name, heads)
        with net.part("feed-forward"):
            y = x.linear(f"{name}.ff1", inner).relu(f"{name}.relu").dropout(f"{name}.ff1.dropout")
            y = y.linear(f"{name}.ff2", hidden).dropout(f"{name}.ff2.dropout")
        x = x.add(y, f"{name}.ff.add").layer_norm(f"{name}.ff.norm")
    return x.dropout("out.dropout").linear("out", vocabulary, tied=net.embedding_of(words)[0])


def _attend(x: Tensor, before: Tensor, positions: Tensor, name: str, heads: int) -> Tensor:
    """Return the normalised sum of *x* and its attention, by content and by distance (section 3.3)."""
    batch, length, hidden = x.shape
    reach, size = before.shape[1] + length, hidden // heads
    with x.net.part("attention"):
        qkv = before.gather(f"{name}.join", (batch, reach, hidden), x).linear(f"{name}.qkv", 3 * hidden, bias=False)
        distances = positions.linear(f"{name}.r", hidden, bias=False)
        # Two vectors, shared by all layers, replace the query's absolute position (u and v in the paper).
        query = qkv.view(*x.shape)
        content = query.add_small(f"{name}.content", parameters=(Parameter("r_w_bias", hidden),))
        place = query.add_small(f"{name}.place", parameters=(Parameter("r_r_bias", hidden),))
        keys = qkv.view(batch, reach, hidden).copy(f"{name}.split_k", batch, heads, reach, size)
        by_content = content.view(batch, heads, length, size).matmul(keys, f"{name}.scores", "NT")
        far = distances.view(heads, reach, size)
        by_place = place.view(heads, batch * length, size).matmul(far, f"{name}.distances", "NT")
        # Padding each row by one element shifts the rows against each other.
        moved = by_place.copy(f"{name}.shift", *by_content.shape)
        scores = by_content.add(moved, f"{name}.sum").apply(f"{name}.mask", "masked_fill", in_place=True)
        shares = scores.softmax(f"{name}.softmax").dropout(f"{name}.dropatt")
        values = qkv.view(batch, reach, hidden).copy(f"{name}.split_v", batch, heads, reach, size)
        y = shares.matmul(values, f"{name}.context").copy(f"{name}.merge", *x.shape)
        y = y.linear(f"{name}.o", hidden, bias=False).dropout(f"{name}.dropout")
    return x.add(y, f"{name}.add").layer_norm(f"{name}.norm")
