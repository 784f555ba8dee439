"""T5 (Raffel et al., arXiv 1910.10683, section 2.1), an encoder and a decoder, as in Hugging Face's model.

Positions are biases of the scores: one number for each head and distance, shared by all layers of a stack.
"""

from __future__ import annotations

from simulator.records import dataclass
from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise
from simulator.workload.zoo.attention import feed_forward
from simulator.workload.zoo.builder import Tensor

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


def t5(tokens: Tensor, t: T5) -> Tensor:
    """Return the logits of each token of the decoder."""
    source = _stack(tokens, "encoder", t)
    x = _stack(tokens.net.input(tokens.shape[0], t.target_length), "decoder", t, source).apply("scale", "mul_scalar")
    words = Parameter("embed.weight", t.vocabulary * t.hidden)
    return x.linear("lm_head", t.vocabulary, bias=False, tied=words, split="columns")


def _stack(tokens: Tensor, name: str, t: T5, source: Tensor | None = None) -> Tensor:
    length = tokens.shape[1]
    x = tokens.embedding(f"{name}.embed", t.vocabulary, t.hidden, of="embed").dropout(f"{name}.embed_dropout")
    bias = tokens.net.input(length, length).embedding(f"{name}.positions", _BUCKETS, t.heads)
    for i in range(t.layers):
        block = f"{name}.{i}"
        y = x.rms_norm(f"{block}.self.norm")
        x = _attended(x, y, y, f"{block}.self", t, bias)
        if source is not None:
            x = _attended(x, x.rms_norm(f"{block}.cross.norm"), source, f"{block}.cross", t)
        y = feed_forward(x.rms_norm(f"{block}.norm"), block, t.inner, "relu", bias=False, dropped=True)
        x = x.add(y.dropout(f"{block}.down_dropout"), f"{block}.add")
    return x.rms_norm(f"{name}.norm").dropout(f"{name}.dropout")


def _attended(x: Tensor, y: Tensor, read: Tensor, name: str, t: T5, *bias: Tensor) -> Tensor:
    """Return *x* plus the attention of *y* to *read*; the *bias*, if any, stays in the cache."""
    batch, length, _ = x.shape
    inner, size, of_keys = t.heads * t.head_size, t.head_size, read.shape[1]
    queries, keys = (batch, t.heads, length, size), (batch, t.heads, of_keys, size)
    with x.net.part("attention"):
        query = y.linear(f"{name}.q", inner, bias=False, split="columns")
        key, value = (read.linear(f"{name}.{c}", inner, bias=False, split="columns") for c in "kv")
        if batch > 1:  # products need permuted views copied if there is more than one sequence
            query, value = query.copy(f"{name}.split_q", *queries), value.copy(f"{name}.split_v", *keys)
            key = key.copy(f"{name}.split_k", batch, t.heads, size, of_keys, transposed=True)
            scores = query.matmul(key, f"{name}.scores")
        else:
            scores = query.view(*queries).matmul(key.view(*keys), f"{name}.scores", "NT")
            value = value.view(*keys)
        scores = scores.layer(f"{name}.bias", Elementwise("add", scores.elements), None, (), *bias)
        y = scores.softmax(f"{name}.softmax").dropout(f"{name}.dropout").matmul(value, f"{name}.context")
        y = y.copy(f"{name}.merge", batch, length, inner)
        y = y.linear(f"{name}.out", t.hidden, bias=False, split="rows")
    return x.add(y.dropout(f"{name}.out_dropout"), f"{name}.add")
