"""GNMT (Wu et al., arXiv 1609.08144), as trained in NVIDIA's DeepLearningExamples (PyTorch/Translation)."""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise, Reduction
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError


def gnmt(b: NetworkBuilder, tokens: LayerOutput, hidden: int, layers: int, vocabulary: int) -> LayerOutput:
    """Return the logits of each word of a translation that is as long as its source.

    The encoder's first layer is bidirectional.  The decoder's first layer attends to the encoder's result by
    normalised Bahdanau attention (arXiv 1409.0473); the context is an input of each further layer.

    Raises SizeError if there is only one layer.
    """
    if layers < 2:
        raise SizeError(f"an encoder and a decoder have two layers at least; got {layers}")
    # One table, shared by both languages.
    memory = _encoder(b, b.embedding(tokens, "encoder.embed", vocabulary, hidden, "embed"), hidden, layers)
    words = b.embedding(b.input(*tokens.shape), "decoder.embed", vocabulary, hidden, "embed")
    x = b.recurrent(b.dropout(words, "decoder.0.dropout"), "decoder.0", hidden)
    context = _attend(b, x, memory)
    for i in range(1, layers):
        y = b.join((b.dropout(x, f"decoder.{i}.dropout"), context), f"decoder.{i}.join")
        y = b.recurrent(y, f"decoder.{i}", hidden)
        x = b.add(y, x, f"decoder.{i}.add") if i > 1 else y
    return b.linear(x, "classifier", vocabulary)


def _encoder(b: NetworkBuilder, x: LayerOutput, hidden: int, layers: int) -> LayerOutput:
    x = b.dropout(x, "encoder.0.dropout")
    both = b.recurrent(x, "encoder.0.forward", hidden), b.recurrent(x, "encoder.0.back", hidden)
    x = b.join(both, "encoder.0.join")
    for i in range(1, layers):
        y = b.recurrent(b.dropout(x, f"encoder.{i}.dropout"), f"encoder.{i}", hidden)
        x = b.add(y, x, f"encoder.{i}.add") if i > 1 else y
    return x


def _attend(b: NetworkBuilder, x: LayerOutput, memory: LayerOutput) -> LayerOutput:
    batch, length, hidden = x.shape
    query = b.linear(x, "attention.query", hidden, bias=False)
    key = b.linear(memory, "attention.key", hidden, bias=False)
    pairs = batch, length, memory.shape[1], hidden
    # One sum for each pair of words; both operands are small and stay in the cache.
    bias = Parameter("attention.normalize_bias", hidden)
    n = batch * length * memory.shape[1] * hidden
    y = b.add_layer("attention.sum", Elementwise("add", n, summed=2), (query, key), pairs)
    y = b.add_layer("attention.bias", Elementwise("add", n, summed=1), (y,), pairs, (bias,))
    y = b.elementwise("attention.tanh", "tanh", y)
    weights = Parameter("attention.linear", hidden), Parameter("attention.normalize_scalar", 1)
    scores = b.add_layer("attention.score", Reduction(n // hidden, hidden), (y,), pairs[:3], weights)
    return b.matmul(b.softmax(scores, "attention.softmax"), memory, "attention.context")
