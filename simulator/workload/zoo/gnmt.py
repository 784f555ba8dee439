"""GNMT (Wu et al., arXiv 1609.08144), as trained in NVIDIA's DeepLearningExamples (PyTorch/Translation)."""

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
    context = _attend(x, memory)
    for i in range(1, layers):
        y = x.dropout(f"decoder.{i}.dropout").join(context, f"decoder.{i}.join").recurrent(f"decoder.{i}", hidden)
        x = y.add(x, f"decoder.{i}.add") if i > 1 else y
    return x.linear("classifier", vocabulary)


def _attend(x: Tensor, memory: Tensor) -> Tensor:
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
