"""Networks of sequences, as NVIDIA's DeepLearningExamples train them: GNMT and Transformer-XL.

GNMT: Wu et al., arXiv 1609.08144 (PyTorch/Translation).  Transformer-XL: Dai et al., arXiv 1901.02860, on WikiText-103;
queries come from the current segment, keys and values also from the remembered states of the previous one.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise, Reduction
from simulator.workload.zoo.builder import SizeError, Tensor


def gnmt(tokens: Tensor, hidden: int, layers: int, vocabulary: int) -> Tensor:
    """Return the logits of each word of a translation that is as long as its source.

    The encoder's first layer is bidirectional.  The decoder's first layer attends to the encoder's result by
    normalised Bahdanau attention (arXiv 1409.0473); the context is an input of each further layer.  Both languages
    share one table.

    Raises SizeError if there is only one layer.
    """
    if layers < 2:
        raise SizeError(f"an encoder and a decoder have two layers at least; got {layers}")
    x = tokens.embedding("encoder.embed", vocabulary, hidden, "embed").dropout("encoder.0.dropout")
    forward, back = (x.recurrent(f"encoder.0.{way}", hidden) for way in ("forward", "back"))
    memory = forward.join(back, "encoder.0.join")
    for i in range(1, layers):
        y = memory.dropout(f"encoder.{i}.dropout").recurrent(f"encoder.{i}", hidden)
        memory = y.add(memory, f"encoder.{i}.add") if i > 1 else y
    words = tokens.net.input(*tokens.shape).embedding("decoder.embed", vocabulary, hidden, "embed")
    x = words.dropout("decoder.0.dropout").recurrent("decoder.0", hidden)
    context = _attend_all(x, memory)
    for i in range(1, layers):
        y = x.dropout(f"decoder.{i}.dropout").join(context, f"decoder.{i}.join").recurrent(f"decoder.{i}", hidden)
        x = y.add(x, f"decoder.{i}.add") if i > 1 else y
    return x.linear("classifier", vocabulary)


def _attend_all(x: Tensor, memory: Tensor) -> Tensor:
    batch, length, hidden = x.shape
    query = x.linear("attention.query", hidden, bias=False)
    key = memory.linear("attention.key", hidden, bias=False)
    pairs = batch, length, memory.shape[1], hidden
    n = batch * length * memory.shape[1] * hidden
    # One sum for each pair of words; both operands are small and stay in the cache.
    y = query.layer("attention.sum", Elementwise("add", n, summed=2), pairs, (), key)
    y = y.add_small("attention.bias", parameters=(Parameter("attention.normalize_bias", hidden),))
    y = y.apply("attention.tanh", "tanh")
    weights = Parameter("attention.linear", hidden), Parameter("attention.normalize_scalar", 1)
    scores = y.layer("attention.score", Reduction(n // hidden, hidden), pairs[:3], weights)
    return scores.softmax("attention.softmax").matmul(memory, "attention.context")


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
