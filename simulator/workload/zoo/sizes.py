"""Sizes of transformers that predict the next token, as data: plain ones, with experts, with latent attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.workload.zoo.attention import AttentionKind
from simulator.workload.zoo.builder import SizeError

__all__ = ["Decoder", "Latent", "Mixture"]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a decoder, and in which of the ways it is written."""

    family: Literal["gpt2", "gpt", "opt", "mpt", "bloom", "llama", "nemotron"]
    hidden: int
    heads: int
    layers: int
    vocabulary: int
    positions: int = 0  # rows of the table of positions; 0: as many as the sequence is long
    inner: int = 0  # width of the feed-forward layer; 0: 4 x hidden
    kv_heads: int = 0  # 0: as many as heads
    attention: AttentionKind = "eager"
    spare_positions: int = 0  # rows of that table that no position uses
    tied: int = 1  # whether the last layer has the weight of the first embedding: 1 or 0
    word_size: int = 0  # of an embedded word, where a linear layer leads to hidden; 0: hidden
    norm_last: bool = False  # each normalisation after its sum, none at the end
    head_size: int = 0  # 0: hidden / heads
    qkv_bias: bool = False  # of Llama's kind: whether the projections of queries, keys and values have biases,
    out_bias: bool = False  # that of the output too,
    qk_norm: bool = False  # and each head of queries and of keys is normalised
    dropout: int = 1  # of GPT's kind: whether some of what each part adds is dropped in training, 1 or 0,
    biases: bool = True  # whether linear layers and normalisations have biases,
    alibi: bool = False  # and positions are part of the mask, as BLOOM's are

    @property
    def head(self) -> int:
        """Numbers of a head."""
        return self.head_size or self.hidden // self.heads

    def check(self, length: int) -> None:
        """Raise SizeError where the sizes do not suit each other, or sequences of *length*."""
        if not self.head_size and self.hidden % self.heads:
            raise SizeError(f"{self.heads} heads do not divide a hidden size of {self.hidden}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise SizeError(f"{self.kv_heads} heads of keys and values do not divide {self.heads} heads")
        if self.family not in ("llama", "nemotron"):
            if self.kv_heads not in (0, self.heads):
                raise SizeError("each head has its own keys and values; kv_heads is for networks of Llama's kind")
            if self.head_size:
                raise SizeError("heads share the hidden size; head_size is for networks of Llama's kind")
        if 0 < self.positions < length:
            raise SizeError(f"it has {self.positions} positions; a sequence of {length} is longer")


@dataclass(frozen=True, slots=True)
class Mixture(Decoder):
    """A decoder of Llama's kind whose feed-forward layers are experts, of which each token goes to some.

    Of ``experts`` feed-forward layers ``expert_inner`` wide, each token goes through ``chosen``.  All tokens go through
    the ``shared_inner`` wide one besides; the first ``dense_layers`` blocks have one ``inner`` wide and no experts.
    ``mtp_layers`` blocks more each predict a token further on (:func:`simulator.workload.zoo.transformer.decoder`).
    """

    experts: int = 8
    chosen: int = 2
    expert_inner: int = 0
    shared_inner: int = 0
    dense_layers: int = 0
    mtp_layers: int = 0
    shared_gate: bool = False  # what all tokens go through is weighted by a number of each

    def check(self, length: int) -> None:
        """Raise SizeError, as of a decoder; or where a token has fewer experts than it is to go to."""
        Decoder.check(self, length)
        if self.chosen > self.experts:
            raise SizeError(f"a token cannot go to {self.chosen} of {self.experts} experts")
        if self.dense_layers > self.layers:
            raise SizeError(f"of {self.layers} layers {self.dense_layers} cannot be dense")


@dataclass(frozen=True, slots=True)
class Latent(Mixture):
    """With latent attention: keys and values of all heads come from a few numbers of each token.

    ``query_rank`` and ``kv_rank``: how many; 0: queries come from the hidden state itself.  A head of queries and keys
    is ``plain_size`` numbers and ``rotary_size`` that turn with the position; one of values ``value_size``.
    """

    query_rank: int = 0
    kv_rank: int = 512
    plain_size: int = 128
    rotary_size: int = 64
    value_size: int = 128

    def check(self, length: int) -> None:
        """Raise SizeError, as of a mixture; or where the size of all heads is given."""
        Mixture.check(self, length)
        if self.head_size or self.kv_heads:
            raise SizeError("heads of latent attention have sizes of their own; head_size and kv_heads do not apply")
