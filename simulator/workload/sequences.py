"""Operators along sequences: recurrent layers, attention, and the scan of Mamba-2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

AttentionLibrary = Literal["flash1", "flash2", "native"]


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One recurrent layer over ``timesteps`` steps; with 0 ``inputs``, only the products with the state."""

    cell: Literal["rnn", "lstm", "gru"]
    batch: int
    timesteps: int
    inputs: int = field(metadata={"least": 0})
    hidden: int

    @property
    def gates(self) -> int:
        """Gates per hidden unit, each a product with the state: 1 (rnn), 4 (lstm) or 3 (gru)."""
        return {"rnn": 1, "lstm": 4, "gru": 3}[self.cell]

    @property
    def flop(self) -> int:
        """FLOPs of the forward pass: products with the input and with the state."""
        return 2 * self.timesteps * self.batch * self.gates * self.hidden * (self.inputs + self.hidden)

    @property
    def output_elements(self) -> int:
        """Elements of the result: the state after each step."""
        return self.timesteps * self.batch * self.hidden


@dataclass(frozen=True, slots=True)
class Attention:
    """Fused softmax attention: one kernel, which never writes the scores (FlashAttention).

    ``library`` selects the kernel:

    - ``flash1``: FlashAttention 1, in its package or in Triton, all there was until July 2023.
    - ``flash2``: FlashAttention 2, in the package flash-attn, and in PyTorch's ``scaled_dot_product_attention`` up to
      2.10.
    - ``native``: written for the GPU's own generation (FlashAttention 3, cuDNN 9).  Transformer Engine and so
      Megatron-LM, vLLM, SGLang and TensorRT-LLM use it, as does PyTorch since 2.11 on data-centre Hopper and Blackwell
      GPUs: it ships with a cuDNN that it prefers there (huggingface/transformers pull request 48163).

    ``value_size`` is the head size of the values, where it differs (DeepSeek).  ``window``: a query of causal attention
    sees so many keys, up to its own (sliding windows, arXiv 2004.05150); 0: all before it.
    """

    batch: int
    heads: int
    query_length: int
    key_length: int
    head_size: int
    kv_heads: int = 0  # 0: the same as heads
    causal: bool = False
    library: AttentionLibrary = "flash2"
    value_size: int = 0  # 0: the same as head_size
    window: int = 0  # 0: no limit

    @property
    def _scores_flop(self) -> int:
        """FLOPs of one product with all scores, per element of a head."""
        return 2 * self.batch * self.heads * self.query_length * self.key_length

    @property
    def flop(self) -> int:
        """FLOPs of both products; neither a causal mask nor a window reduces them, as torch counts."""
        return self._scores_flop * (self.head_size + (self.value_size or self.head_size))

    @property
    def backward_flop(self) -> int:
        """FLOPs of the backward pass: recomputed scores, and gradients of scores, queries, keys and values."""
        return self._scores_flop * (3 * self.head_size + 2 * (self.value_size or self.head_size))

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.heads * self.query_length * (self.value_size or self.head_size)


@dataclass(frozen=True, slots=True)
class ChunkScan:
    """Mamba-2's scan over sequences in chunks (arXiv 2405.21060, section 6), times its gate.

    Each of ``heads`` has ``head_size`` elements and, for each of them, a state of ``state`` numbers.  The heads of one
    of ``groups`` share the vectors that write (B) and read (C) their states.
    """

    batch: int
    length: int
    heads: int
    head_size: int
    groups: int
    state: int
    chunk: int

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.batch * self.length

    @property
    def chunks(self) -> int:
        """Chunks of all sequences."""
        return self.tokens // self.chunk

    @property
    def flop(self) -> int:
        """FLOPs of the states that chunks add, of their tokens' scores, and of the result from both."""
        within = self.chunk * self.groups * self.state
        return 2 * self.tokens * (self.heads * self.head_size * (2 * self.state + self.chunk) + within)

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.tokens * self.heads * self.head_size

    @property
    def shared_elements(self) -> int:
        """Elements of B, or of C."""
        return self.tokens * self.groups * self.state

    @property
    def mixed_elements(self) -> int:
        """Elements of the input: x, B and C."""
        return self.output_elements + 2 * self.shared_elements

    @property
    def state_elements(self) -> int:
        """Elements of the states of all chunks."""
        return self.chunks * self.heads * self.head_size * self.state
