"""BERT (Devlin et al., arXiv 1810.04805, section 3), layer by layer, as in Hugging Face's model."""

from __future__ import annotations

from typing import Literal, get_args

from simulator.records import dataclass
from simulator.workload.network import Parameter
from simulator.workload.zoo.attention import AttentionKind, self_attention
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError
from simulator.workload.zoo.transformer import embed_positions

HeadKind = Literal["auto", "pretraining", "classification", "question-answering", "none"]
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)


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


def encoder(b: NetworkBuilder, tokens: LayerOutput, e: Encoder) -> tuple[LayerOutput, ...]:
    """Return the inputs of the losses; with head ``none``, the hidden states and the pooled state."""
    head = e.head if e.head != "auto" else "pretraining" if b.training else "classification"
    x = b.embedding(tokens, "embed", e.vocabulary, e.hidden)
    x = b.add(x, b.embedding(b.input(*tokens.shape), "segments", 2, e.hidden), "segments.add")
    x = embed_positions(b, x, "positions", e.positions)
    x = b.dropout(b.layer_norm(x, "embed_norm"), "embed_dropout")
    for i in range(e.layers):
        x = _block(b, x, f"layers.{i}", e)
    if head == "question-answering":
        return (b.linear(x, "qa_outputs", 2),)
    first = b.view(x, tokens.shape[0], e.hidden)  # the first token of each sequence
    pooled = b.elementwise("pooler.tanh", "tanh", b.linear(first, "pooler", e.hidden))
    if head == "none":
        return x, pooled
    if head == "classification":
        return (b.linear(b.dropout(pooled, "dropout"), "classifier", 2),)
    if e.predicted:
        x = b.copy(b.view(x, tokens.shape[0] * e.predicted, e.hidden), "predictions.gather")
    y = b.linear(x, "predictions.transform", e.hidden)
    y = b.layer_norm(b.elementwise("predictions.gelu", "gelu", y), "predictions.norm")
    tied = Parameter("embed.weight", e.vocabulary * e.hidden)
    return b.linear(y, "predictions", e.vocabulary, tied=tied), b.linear(pooled, "seq_relationship", 2)


def _block(b: NetworkBuilder, x: LayerOutput, name: str, e: Encoder) -> LayerOutput:
    hidden = x.shape[-1]
    with b.part("attention"):
        query, key, value = (b.linear(x, f"{name}.{c}", hidden, split="columns") for c in "qkv")
        y = self_attention(b, (query, key, value), name, heads=e.heads, kind=e.attention, mask="add-padding")
        y = b.linear(y, f"{name}.out", hidden, split="rows")
    y = b.dropout(y, f"{name}.out_dropout")
    x = b.layer_norm(b.add(y, x, f"{name}.add1"), f"{name}.norm1")
    with b.part("feed-forward"):
        y = b.elementwise(f"{name}.gelu", "gelu", b.linear(x, f"{name}.up", 4 * hidden, split="columns"))
        y = b.linear(y, f"{name}.down", hidden, split="rows")
    y = b.dropout(y, f"{name}.down_dropout")
    return b.layer_norm(b.add(y, x, f"{name}.add2"), f"{name}.norm2")


def electra(
    b: NetworkBuilder, tokens: LayerOutput, hidden: int, heads: int, layers: int, vocabulary: int
) -> tuple[LayerOutput, ...]:
    """Return the generator's scores of the masked words, and for each token whether it was replaced.

    Clark et al., arXiv 2003.10555, section 3: the generator is a third as wide, has its words from the same table, and
    predicts the masked 15 % of tokens.
    """
    batch, length = tokens.shape
    narrow = hidden // 3
    if hidden % 3 or heads % 3 or hidden % heads:
        raise SizeError(f"heads and hidden must be multiples of 3, and hidden one of heads; got {heads} and {hidden}")
    y = b.linear(_embedded(b, tokens, "generator.", hidden, vocabulary), "generator.project", narrow)
    for i in range(layers):
        y = _block(b, y, f"generator.layers.{i}", Encoder(narrow, heads // 3, layers, vocabulary))
    masked = max(1, length * 15 // 100)
    y = b.copy(b.view(y, batch * masked, narrow), "generator.gather")
    y = b.layer_norm(
        b.elementwise("generator.gelu", "gelu", b.linear(y, "generator.transform", hidden)), "generator.norm"
    )
    words = b.linear(y, "generator.predictions", vocabulary, tied=Parameter("embed.weight", vocabulary * hidden))
    x = _embedded(b, b.input(batch, length), "discriminator.", hidden, vocabulary)
    for i in range(layers):
        x = _block(b, x, f"layers.{i}", Encoder(hidden, heads, layers, vocabulary))
    x = b.elementwise("discriminator.gelu", "gelu", b.linear(x, "discriminator.dense", hidden))
    return words, b.linear(x, "discriminator.replaced", 1)


def _embedded(b: NetworkBuilder, tokens: LayerOutput, prefix: str, hidden: int, vocabulary: int) -> LayerOutput:
    """Return words, segments and places of *tokens*; both halves of ELECTRA read the same tables."""
    with b.sharing(prefix, ""):
        x = b.embedding(tokens, f"{prefix}embed", vocabulary, hidden)
        kinds = b.embedding(b.input(*tokens.shape), f"{prefix}segments", 2, hidden)
        x = embed_positions(b, b.add(x, kinds, f"{prefix}segments.add"), f"{prefix}positions", 512)
        return b.dropout(b.layer_norm(x, f"{prefix}embed_norm"), f"{prefix}embed_dropout")


def bart(
    b: NetworkBuilder, tokens: LayerOutput, hidden: int, heads: int, layers: int, inner: int, vocabulary: int
) -> LayerOutput:
    """Return the scores of each word, from an encoder and a decoder of *layers* each.

    Lewis et al., arXiv 1910.13461, section 2, as in Hugging Face's model; the decoder writes as many tokens as the
    encoder reads, as in pretraining.
    """
    table = Parameter("embed.weight", vocabulary * hidden)
    sides: list[LayerOutput] = []
    for side, read in (("encoder", tokens), ("decoder", b.input(*tokens.shape))):
        x = b.embedding(read, f"{side}.embed", vocabulary, hidden, of="embed")
        x = b.layer_norm(embed_positions(b, x, f"{side}.positions", 1026), f"{side}.norm")
        x = b.dropout(x, f"{side}.dropout")
        for i in range(layers):
            name = f"{side}.{i}"
            x = _attended(b, x, x, f"{name}.self", heads, causal=side == "decoder")
            x = _attended(b, x, sides[0], f"{name}.cross", heads, causal=False) if sides else x
            with b.part("feed-forward"):
                y = b.elementwise(f"{name}.gelu", "gelu", b.linear(x, f"{name}.up", inner, split="columns"))
                y = b.dropout(b.linear(y, f"{name}.down", hidden, split="rows"), f"{name}.down_dropout")
            x = b.layer_norm(b.add(y, x, f"{name}.add"), f"{name}.norm")
        sides.append(x)
    return b.linear(sides[1], "lm_head", vocabulary, bias=False, tied=table)


def _attended(
    b: NetworkBuilder, x: LayerOutput, source: LayerOutput, name: str, heads: int, *, causal: bool
) -> LayerOutput:
    hidden = x.shape[-1]
    with b.part("attention"):
        qkv = tuple(b.linear(x if c == "q" else source, f"{name}.{c}", hidden, split="columns") for c in "qkv")
        mask: Literal["add-causal", "add-padding"] = "add-causal" if causal else "add-padding"
        y = self_attention(b, (qkv[0], qkv[1], qkv[2]), name, heads=heads, kind="eager", mask=mask)
        y = b.dropout(b.linear(y, f"{name}.out", hidden, split="rows"), f"{name}.out_dropout")
    return b.layer_norm(b.add(y, x, f"{name}.add"), f"{name}.norm")
