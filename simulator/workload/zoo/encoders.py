"""BERT as in Hugging Face's model; ELECTRA, BART, T5 and ViT (docs/decisions/zoo.md)."""

from math import prod
from typing import Literal

from simulator.records import dataclass
from simulator.workload.network import Parameter
from simulator.workload.operators import Copy, Elementwise
from simulator.workload.zoo.attention import AttentionKind, attended, embed_positions, feed_forward
from simulator.workload.zoo.builder import SizeError, Tensor

HeadKind = Literal["auto", "pretraining", "classification", "question-answering", "none"]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Sizes of an encoder, and its head; ``auto``: pretraining in training, classification in inference.

    ``predicted``: tokens per sequence that pretraining predicts, gathered before the prediction (Google's
    ``run_pretraining.py``: 20 of 128, 80 of 512); 0: all tokens, as in Hugging Face's model.
    """

    hidden: int
    heads: int
    layers: int
    vocabulary: int
    positions: int = 512
    attention: AttentionKind = "eager"
    head: HeadKind = "auto"
    predicted: int = 0

    def check(self, length: int) -> None:
        """Raise SizeError if the sizes do not fit together, or do not fit sequences of *length* tokens."""
        if self.hidden % self.heads:
            raise SizeError(f"{self.heads} heads do not divide a hidden size of {self.hidden}")
        if 0 < self.positions < length:
            raise SizeError(f"it has {self.positions} positions; a sequence of {length} is longer")
        if self.predicted > length:
            raise SizeError(f"{self.predicted} tokens cannot be predicted of a sequence of {length}")


def encoder(tokens: Tensor, e: Encoder) -> tuple[Tensor, ...]:
    """Return the inputs of the losses; with head ``none``, the hidden states and the pooled state."""
    head = e.head if e.head != "auto" else "pretraining" if tokens.net.training else "classification"
    x = _embedded(tokens, e.vocabulary, e.hidden, e.positions)
    for i in range(e.layers):
        x = _block(x, f"layers.{i}", e.heads, e.attention)
    if head == "question-answering":
        return (x.linear("qa_outputs", 2),)
    first = x.view(tokens.shape[0], e.hidden)  # the first token of each sequence
    pooled = first.linear("pooler", e.hidden).apply("pooler.tanh", "tanh")
    if head == "none":
        return x, pooled
    if head == "classification":
        return (pooled.dropout("dropout").linear("classifier", 2),)
    if e.predicted:
        x = x.view(tokens.shape[0] * e.predicted, e.hidden).copy("predictions.gather")
    y = _transformed(x, "predictions.", e.hidden)
    tied = Parameter("embed.weight", e.vocabulary * e.hidden)
    return y.linear("predictions", e.vocabulary, tied=tied), pooled.linear("seq_relationship", 2)


def _embedded(tokens: Tensor, vocabulary: int, hidden: int, positions: int = 512, prefix: str = "") -> Tensor:
    """Return words, segments and places of *tokens*; both halves of ELECTRA read the same tables."""
    with tokens.net.sharing(prefix, ""):
        x = tokens.embedding(f"{prefix}embed", vocabulary, hidden)
        kinds = tokens.net.input(*tokens.shape).embedding(f"{prefix}segments", 2, hidden)
        x = embed_positions(x.add(kinds, f"{prefix}segments.add"), f"{prefix}positions", positions)
        return x.layer_norm(f"{prefix}embed_norm").dropout(f"{prefix}embed_dropout")


def _transformed(x: Tensor, prefix: str, hidden: int) -> Tensor:
    y = x.linear(f"{prefix}transform", hidden).apply(f"{prefix}gelu", "gelu")
    return y.layer_norm(f"{prefix}norm")


def _block(x: Tensor, name: str, heads: int, kind: AttentionKind = "eager") -> Tensor:
    y = attended(x, name, heads, "add-padding", kind).dropout(f"{name}.out_dropout")
    x = y.add(x, f"{name}.add1").layer_norm(f"{name}.norm1")
    y = feed_forward(x, name, 4 * x.shape[-1], "gelu").dropout(f"{name}.down_dropout")
    return y.add(x, f"{name}.add2").layer_norm(f"{name}.norm2")


def electra(tokens: Tensor, hidden: int, heads: int, layers: int, vocabulary: int) -> tuple[Tensor, ...]:
    """Return the generator's scores of the masked words, and for each token whether it was replaced."""
    batch, length = tokens.shape
    narrow = hidden // 3
    if hidden % 3 or heads % 3 or hidden % heads:
        raise SizeError(f"heads and hidden must be multiples of 3, and hidden one of heads; got {heads} and {hidden}")
    y = _embedded(tokens, vocabulary, hidden, prefix="generator.").linear("generator.project", narrow)
    for i in range(layers):
        y = _block(y, f"generator.layers.{i}", heads // 3)
    y = y.view(batch * max(1, length * 15 // 100), narrow).copy("generator.gather")
    y = _transformed(y, "generator.", hidden)
    words = y.linear("generator.predictions", vocabulary, tied=Parameter("embed.weight", vocabulary * hidden))
    x = _embedded(tokens.net.input(batch, length), vocabulary, hidden, prefix="discriminator.")
    for i in range(layers):
        x = _block(x, f"layers.{i}", heads)
    x = x.linear("discriminator.dense", hidden).apply("discriminator.gelu", "gelu")
    return words, x.linear("discriminator.replaced", 1)


def bart(tokens: Tensor, hidden: int, heads: int, layers: int, inner: int, vocabulary: int) -> Tensor:
    """Return the scores of each word, from an encoder and a decoder of *layers* each."""

    def attention(x: Tensor, name: str, source: Tensor | None = None, *, causal: bool = False) -> Tensor:
        with x.net.part("attention"):
            y = attended(x, name, heads, "add-causal" if causal else "add-padding", source=source)
            y = y.dropout(f"{name}.out_dropout")
        return y.add(x, f"{name}.add").layer_norm(f"{name}.norm")

    sides: list[Tensor] = []
    for side, read in (("encoder", tokens), ("decoder", tokens.net.input(*tokens.shape))):
        x = read.embedding(f"{side}.embed", vocabulary, hidden, of="embed")
        x = embed_positions(x, f"{side}.positions", 1026).layer_norm(f"{side}.norm").dropout(f"{side}.dropout")
        for i in range(layers):
            name = f"{side}.{i}"
            x = attention(x, f"{name}.self", causal=side == "decoder")
            x = attention(x, f"{name}.cross", sides[0]) if sides else x
            with x.net.part("feed-forward"):
                y = feed_forward(x, name, inner, "gelu").dropout(f"{name}.down_dropout")
            x = y.add(x, f"{name}.add").layer_norm(f"{name}.norm")
        sides.append(x)
    return x.linear("lm_head", vocabulary, bias=False, tied=Parameter("embed.weight", vocabulary * hidden))


# -- T5 ---------------------------------------------------------------------------------


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


# -- ViT --------------------------------------------------------------------------------


def vit(
    x: Tensor, classes: int, *, patch: int, hidden: int, heads: int, layers: int, attention: AttentionKind, dropout: int
) -> Tensor:
    """Return the logits of the vision transformer, whose feed-forward layers are 4 x hidden wide.

    Each patch is a token, and a class token is added.  *dropout*: 1 if its rate is above 0.  The paper trains with
    dropout; torchvision, Hugging Face and timm have a rate of 0, for which PyTorch runs nothing.  Raises SizeError if
    the patches do not divide the image.
    """
    batch, _, height, width = x.shape
    if height % patch or width % patch:
        raise SizeError(f"patches of {patch} do not divide an image of {height} x {width}")
    x = x.conv("patches", hidden, patch, stride=patch, bias=True)
    shape = batch, x.shape[2] * x.shape[3] + 1, hidden
    tokens = Copy(prod(shape), transposed=True)
    x = x.layer("class_token", tokens, shape, (Parameter("class_token", hidden),))
    x = x.add_small("positions", parameters=(Parameter("positions", shape[1] * hidden),))
    x = x.dropout("dropout") if dropout else x
    for i in range(layers):
        name = f"layers.{i}"
        y = attended(x.layer_norm(f"{name}.norm1"), name, heads, "none", attention, dropout=False)
        x = (y.dropout(f"{name}.out_dropout") if dropout else y).add(x, f"{name}.add1")
        y = feed_forward(x.layer_norm(f"{name}.norm2"), name, 4 * hidden, "gelu", dropped=bool(dropout))
        x = (y.dropout(f"{name}.down_dropout") if dropout else y).add(x, f"{name}.add2")
    return x.layer_norm("norm").view(batch, hidden).linear("head", classes)
