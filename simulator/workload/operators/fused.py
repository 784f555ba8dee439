"""Passes that frameworks fuse: gates, rotary positions, rows permuted to experts and back."""

from __future__ import annotations

from typing import ClassVar, Literal

from simulator.records import dataclass
from simulator.workload.kernels import Streaming
from simulator.workload.operator import Elements, Kernels, Operator, Saved
from simulator.workload.precision import ELEMENT_BYTES, Precision


def rows_spread(tokens: int, rows: int, element_bytes: int) -> Streaming:
    """Return the pass that writes *rows* elements of copies of the *tokens* elements that it reads."""
    return Streaming("copy", rows, tokens * element_bytes, rows * element_bytes)


def rows_gathered(tokens: int, rows: int, element_bytes: int) -> Streaming:
    """Return the pass that reads *rows* elements and writes *tokens* elements of their sums."""
    return Streaming("add", rows, rows * element_bytes, tokens * element_bytes)


@dataclass(frozen=True, slots=True)
class Permute(Operator):
    """The ``hidden`` numbers of each of ``tokens`` copied to its ``chosen`` experts, sorted by expert; or ``back``.

    Back, the results of a token's experts are summed.  Each is one kernel that keeps the places of rows in a map of
    indices (Transformer Engine, ``moe_permute`` and ``moe_unpermute``; megablocks, ``padded_gather``), and the gradient
    of the other.
    """

    saved = ()
    per_token = ("tokens",)
    by_channel = "hidden"
    from_torch: ClassVar = {}

    tokens: int
    hidden: int
    chosen: int
    back: bool = False

    @property
    def output_elements(self) -> int:
        return self.tokens * self.hidden * (1 if self.back else self.chosen)

    def _kernels(self, precision: Precision, *, back: bool) -> Kernels:
        tokens = self.tokens * self.hidden
        return ((rows_gathered if back else rows_spread)(tokens, self.chosen * tokens, ELEMENT_BYTES[precision]),)

    def forward_kernels(self, precision: Precision) -> Kernels:
        return self._kernels(precision, back=self.back)

    def input_gradients(self, precision: Precision) -> Kernels:
        return self._kernels(precision, back=not self.back)

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.tokens * self.hidden * (self.chosen if self.back else 1))


@dataclass(frozen=True, slots=True)
class Rotary(Elements):
    """Rotary positions of ``elements`` numbers of queries or keys in one kernel, which its gradient runs backwards.

    Transformer Engine's ``fused_apply_rotary_pos_emb``, Liger's, flash-attn's.  Sines and cosines stay in the cache.
    """

    saved = ()
    from_torch: ClassVar = {}

    elements: int

    def forward_kernels(self, precision: Precision) -> Kernels:
        size = self.elements * ELEMENT_BYTES[precision]
        return (Streaming("fused", self.elements, size, size),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return self.forward_kernels(precision)


@dataclass(frozen=True, slots=True)
class Gated(Elements):
    """``function(x) y`` of ``elements`` numbers in one kernel (SwiGLU, GeGLU); x and y may be parts of one tensor.

    Megatron-LM's ``bias_swiglu_impl``, Liger's and Transformer Engine's; what is saved are x and y.
    """

    saved: ClassVar[tuple[Saved, ...]] = ("inputs",)
    from_torch: ClassVar = {}

    elements: int
    function: Literal["silu", "gelu"] = "silu"

    def forward_kernels(self, precision: Precision) -> Kernels:
        size = self.elements * ELEMENT_BYTES[precision]
        return (Streaming(self.function, self.elements, 2 * size, size),)

    def input_gradients(self, precision: Precision) -> Kernels:
        size = self.elements * ELEMENT_BYTES[precision]
        return (Streaming(f"{self.function}_bwd", self.elements, 3 * size, 2 * size),)

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.elements * (2 if n_inputs == 1 else 1))
