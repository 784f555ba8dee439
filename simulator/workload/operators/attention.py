"""Attention in one kernel."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from simulator.records import dataclass, replace
from simulator.workload.kernels import Product, Shape
from simulator.workload.operator import Direction, Divided, Meeting, OneKernel, Operator, Saved
from simulator.workload.precision import ELEMENT_BYTES, STATISTIC_BYTES, Precision

AttentionLibrary = Literal["flash1", "flash2", "native", "flash4", "fmha2"]


@dataclass(frozen=True, slots=True)
class FusedAttention(Product):
    """Attention whose scores stay on chip; ``library`` and ``window`` are as in the operator."""

    direction: Literal["fwd", "bwd"]
    batch: int
    heads: int
    kv_heads: int
    query_length: int
    key_length: int
    head_size: int
    causal: bool
    precision: Precision
    library: AttentionLibrary = "flash2"
    window: int = 0

    @property
    def seen(self) -> float:
        """The share of the scores that no mask hides: half of them under a causal one, fewer in a window."""
        if not self.causal or self.query_length != self.key_length:
            return 1.0
        reach = (self.window or self.key_length) / self.key_length
        return reach - reach * reach / 2

    @property
    def flop(self) -> float:
        """FLOPs of the products computed: 2 forward, 5 backward, over the scores that no mask hides."""
        products = 2 if self.direction == "fwd" else 5
        each = 2 * self.batch * self.heads * self.query_length * self.key_length * self.head_size
        return products * each * self.seen

    @property
    def bytes(self) -> int:
        queries = self.batch * self.heads * self.query_length * self.head_size
        keys = self.batch * self.kv_heads * self.key_length * self.head_size
        passes = 1 if self.direction == "fwd" else 2
        return ELEMENT_BYTES[self.precision] * passes * 2 * (queries + keys)

    def place(self) -> Shape:
        return self.batch, self.heads, self.query_length, self.key_length, self.head_size

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return, backward, the bytes of queries, keys, values and result: half of all."""
        return 0.0 if forward else self.bytes / 2


_NAMES = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")


def _attention(call: Any) -> Operator:
    query, key, value = call["query"], call["key"], call["value"]
    batch, heads, length, size = query.shape
    size = (size + value.shape[-1]) // 2
    return Attention(batch, heads, length, key.shape[2], size, key.shape[1], bool(call["is_causal"]))


@dataclass(frozen=True, slots=True)
class Attention(OneKernel):
    """Fused softmax attention: one kernel, which never writes the scores (FlashAttention).

    ``library`` selects the kernel, and docs/decisions/zoo.md says who has it: FlashAttention's first two, the GPU's
    ``native`` one (FlashAttention 3, cuDNN 9), that with FlashAttention 4's softmax, and TensorRT-LLM's ``fmha2``.

    ``value_size`` is the head size of the values, where it differs (DeepSeek).  ``window``: a query of causal attention
    sees so many keys, up to its own (sliding windows, arXiv 2004.05150); 0: all before it.

    ``documents``: lengths of those that a sequence packs, again and again until it is full; each attends to itself, in
    one kernel for sequences of unlike lengths.  None: the sequence is one.

    ``keeps``: besides its inputs, it saves ``all``, the result and each row's sum; or, as a part of attention to more
    keys whose results are added up, the ``sums`` alone, or ``nothing``.
    """

    from_torch: ClassVar = {f"_scaled_dot_product_{name}": _attention for name in _NAMES}

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
    keeps: Literal["all", "sums", "nothing"] = "all"
    documents: tuple[int, ...] = ()

    @property
    def saved(self) -> tuple[Saved, ...]:
        return ("inputs", "output") if self.keeps == "all" else ("inputs",)

    @property
    def _scores_flop(self) -> int:
        """FLOPs of one product with all scores, per element of a head."""
        return 2 * self.batch * self.heads * self.query_length * self.key_length

    @property
    def flop(self) -> int:
        """FLOPs of both products; neither a causal mask nor a window reduces them, as torch counts."""
        return self._scores_flop * (self.head_size + (self.value_size or self.head_size))

    @property
    def output_elements(self) -> int:
        return self.batch * self.heads * self.query_length * (self.value_size or self.head_size)

    def in_direction(self, direction: Direction, precision: Precision) -> FusedAttention:
        size = (self.head_size + (self.value_size or self.head_size)) // 2  # as many FLOPs, as many bytes
        heads, kv_heads, batch, lengths = self.heads, self.kv_heads or self.heads, *self._of_documents()
        shape = batch, heads, kv_heads, *lengths, size, self.causal
        return FusedAttention("fwd" if direction == "fwd" else "bwd", *shape, precision, self.library, self.window)

    def _of_documents(self) -> tuple[int, tuple[int, int]]:
        """Return the batch and lengths of as many equal documents as have the tokens, and the scores, of these."""
        if not self.documents:
            return self.batch, (self.query_length, self.key_length)
        tokens = self.batch * self.query_length
        scores = tokens * sum(length * length for length in self.documents) / sum(self.documents)
        batch = max(1, round(tokens * tokens / scores))
        length = round(math.sqrt(scores / batch))
        return batch, (length, length)

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        """Return the FLOPs of the backward pass: recomputed scores, gradients of scores, queries, keys and values."""
        each = 3 * self.head_size + 2 * (self.value_size or self.head_size)
        return self._scores_flop * each if any(needed) else 0

    def saved_bytes(self, element_bytes: int) -> int:
        # The logarithm of each row's sum.
        return 0 if self.keeps == "nothing" else self.batch * self.heads * self.query_length * STATISTIC_BYTES

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        """Return how many elements of input *position* it reads: queries, keys or values."""
        heads = (self.kv_heads or self.heads) if position else self.heads
        length = self.key_length if position else self.query_length
        size = self.value_size or self.head_size if position == 2 else self.head_size
        return min(whole, self.batch * heads * length * size)

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some heads."""
        if not meeting.alike:
            return None
        heads = meeting.part(self.heads, "heads")
        kv_heads = meeting.part(self.kv_heads or self.heads, "heads of keys and values")
        return Divided("split", replace(self, heads=heads, kv_heads=kv_heads))
