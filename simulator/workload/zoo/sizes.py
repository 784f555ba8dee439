"""Sizes of decoder-only transformers: plain ones, with experts, with latent attention, with Mamba-2 layers."""

from typing import Literal

from simulator.records import dataclass
from simulator.workload.operators.grouped import Routing
from simulator.workload.zoo.attention import AttentionKind
from simulator.workload.zoo.builder import SizeError

Gelu = Literal["eager", "fused"]
ExpertKernels = Literal["grouped", "loop", "scatter"]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a decoder-only transformer, and the family whose code it follows."""

    family: Literal["gpt2", "gpt", "opt", "mpt", "bloom", "llama", "nemotron", "nemotron_h"]
    hidden: int
    heads: int
    layers: int
    vocabulary: int
    positions: int = 0  # rows of the position table; 0: the sequence length
    inner: int = 0  # width of the feed-forward layer; 0: 4 x hidden
    kv_heads: int = 0  # 0: the same as heads
    attention: AttentionKind = "eager"
    spare_positions: int = 0  # unused rows of the position table
    tied: int = 1  # 1 if the output layer shares the weight of the embedding, else 0
    word_size: int = 0  # size of an embedding that a linear layer projects to hidden; 0: hidden
    norm_last: bool = False  # normalise after each residual sum, and not at the end
    head_size: int = 0  # 0: hidden / heads
    qkv_bias: bool = False  # Llama-like: biases in the projections of queries, keys and values
    out_bias: bool = False  # Llama-like: a bias in the output projection
    qk_norm: bool = False  # Llama-like: normalise each head of queries and keys
    window: int = 0  # Llama-like: keys that a query sees; 0: all
    window_skip: int = 0  # of so many blocks the last one has no window; 0: all have it
    documents: tuple[int, ...] = ()  # lengths of those that a sequence packs, until it is full; none: it is one
    sinks: bool = False  # Llama-like: a learned number per head takes part in the softmax of attention
    dropout: int = 1  # GPT-like: 1 for dropout in training, else 0
    biases: bool = True  # GPT-like: biases in linear layers and normalisations
    alibi: bool = False  # GPT-like: positions are part of the mask, as in BLOOM
    gelu: Gelu | Literal[""] = ""  # eager: a kernel for each operation of the formula; fused: one; "": another function

    @property
    def head(self) -> int:
        """Elements of a query or key head."""
        return self.head_size or self.hidden // self.heads

    def check(self, length: int) -> None:
        """Raise SizeError if the sizes do not fit together, or do not fit sequences of *length* tokens."""
        if not self.head_size and self.hidden % self.heads:
            raise SizeError(f"{self.heads} heads do not divide a hidden size of {self.hidden}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise SizeError(f"{self.kv_heads} heads of keys and values do not divide {self.heads} heads")
        if self.family not in ("llama", "nemotron", "nemotron_h"):
            if self.kv_heads not in (0, self.heads):
                raise SizeError("each head has its own keys and values; kv_heads is for networks of Llama's kind")
            if self.head_size:
                raise SizeError("heads share the hidden size; head_size is for networks of Llama's kind")
        whole = sum(self.documents)
        if self.documents and (0 in self.documents or length % whole):
            filled = ",".join(map(str, self.documents))
            raise SizeError(f"documents of {filled} tokens, {whole} in all, do not fill a sequence of {length}")
        if self.window and self.family != "llama":
            raise SizeError("window is for networks of Llama's kind")
        if 0 < self.positions < length:
            raise SizeError(f"it has {self.positions} positions; a sequence of {length} is longer")


@dataclass(frozen=True, slots=True)
class MixtureOfExperts(Decoder):
    """A Llama-like decoder with mixture-of-experts layers.

    Each token passes through ``chosen`` of ``experts`` feed-forward layers of width ``expert_inner``.  All tokens also
    pass through a shared one of width ``shared_inner``.  The first ``dense_layers`` blocks have one layer of width
    ``inner`` and no experts.  ``mtp_layers`` is the number of extra blocks, each of which predicts one token further
    ahead (:func:`simulator.workload.zoo.transformer.decoder`).  ``expert_kernels``: experts have one ``grouped``
    product, a ``loop`` in Python calls one after the other, or they ``scatter`` rows by index.  ``imbalance``,
    ``expert_capacity`` and ``pad_capacity``: as ``imbalance``, ``capacity`` and ``padded`` of Routing.
    """

    experts: int = 8
    chosen: int = 2
    expert_kernels: ExpertKernels = "grouped"
    imbalance: int = 0
    expert_capacity: int = 0
    pad_capacity: int = 0
    expert_inner: int = 0
    shared_inner: int = 0
    dense_layers: int = 0
    mtp_layers: int = 0
    shared_gate: bool = False  # a sigmoid gate weights the shared layer's result for each token
    expert_bias: bool = False  # biases in the router and the experts, whose gate is clamped (gpt-oss)
    gated: bool = True  # experts have a gate; else a squared ReLU
    expert_latent: int = 0  # size that tokens are projected to before they go to experts; 0: hidden

    @property
    def routing(self) -> Routing:
        """How many rows experts get."""
        return Routing(self.imbalance, self.expert_capacity, bool(self.pad_capacity))

    def check(self, length: int) -> None:
        """Raise SizeError as a decoder does, or if ``chosen`` or ``dense_layers`` is too large."""
        Decoder.check(self, length)
        if self.chosen > self.experts:
            raise SizeError(f"a token cannot go to {self.chosen} of {self.experts} experts")
        for name in ("imbalance", "expert_capacity") if self.expert_kernels == "loop" else ():
            if getattr(self, name):
                whole = f"experts of a loop take all tokens in turn, however they are spread; {name} does not apply"
                raise SizeError(whole)
        if self.expert_kernels == "scatter" and self.expert_capacity:
            raise SizeError("scattered rows have no capacity; expert_capacity does not apply")
        if self.pad_capacity and not self.expert_capacity:
            raise SizeError("pad_capacity pads rows up to expert_capacity; give that too, for example 125")
        if self.dense_layers > self.layers:
            raise SizeError(f"of {self.layers} layers {self.dense_layers} cannot be dense")


@dataclass(frozen=True, slots=True)
class LatentAttentionMixture(MixtureOfExperts):
    """A mixture with latent attention: keys and values of all heads come from a short latent vector per token.

    ``query_rank`` and ``kv_rank`` are the lengths of the latent vectors; with a ``query_rank`` of 0, queries come from
    the hidden state itself.  A query or key head has ``plain_size`` elements plus ``rotary_size`` with rotary
    positions; a value head has ``value_size``.
    """

    query_rank: int = 0
    kv_rank: int = 512
    plain_size: int = 128
    rotary_size: int = 64
    value_size: int = 128

    def check(self, length: int) -> None:
        """Raise SizeError as a mixture does, or if a common size or number of heads is given."""
        MixtureOfExperts.check(self, length)
        if self.head_size or self.kv_heads:
            raise SizeError("heads of latent attention have sizes of their own; head_size and kv_heads do not apply")


@dataclass(frozen=True, slots=True)
class Hybrid(MixtureOfExperts):
    """Blocks of one layer each: of Mamba-2 (``M``), attention (``*``), experts (``E``) or a squared ReLU (``-``).

    ``pattern`` has a letter for each block.  A Mamba-2 layer has ``mamba_heads`` of ``mamba_size`` elements, with a
    state of ``state`` numbers for each; the heads of one of ``groups`` share what writes and reads their states.  It
    takes sequences in chunks of ``chunk`` tokens, after a convolution over ``kernel`` of them.  Each of the
    ``mtp_layers`` is the blocks of ``mtp_pattern``, with the same weights each time (Megatron-LM,
    ``mtp_use_repeated_layer``).
    """

    pattern: str = "M*E"
    mtp_pattern: str = "*E"
    mamba_heads: int = 64
    mamba_size: int = 64
    groups: int = 8
    state: int = 128
    kernel: int = 4
    chunk: int = 128

    def check(self, length: int) -> None:
        """Raise SizeError as a mixture does, if layers are said to be dense, or are more than known."""
        MixtureOfExperts.check(self, length)
        if self.dense_layers:
            raise SizeError("its pattern says which layers have experts; dense_layers does not apply")
        if self.layers > len(self.pattern):
            raise SizeError(f"its pattern has {len(self.pattern)} layers, not {self.layers}")
