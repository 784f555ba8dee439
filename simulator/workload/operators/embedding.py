"""Look-ups in a table."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from simulator.records import dataclass, replace
from simulator.workload.kernels import Kernel, Shape
from simulator.workload.operator import Divided, Kernels, Meeting, Operator, Rows
from simulator.workload.precision import ELEMENT_BYTES, Precision


@dataclass(frozen=True, slots=True)
class Gather(Kernel):
    """``rows`` rows of ``cols`` elements gathered from a table (``fwd``) or added into its gradient (``bwd``)."""

    word = "embeddings"
    in_sentences = "look-ups"
    colour = "#6d597a"
    gpu_cost = "simulator.devices.gpu.memory:gather_cost"
    cpu_cost = "simulator.devices.cpu.passes:gather_pass"
    apart = ("precision", "direction")
    axes: ClassVar = {"rows": 0.2, "cols": 0.4, "vocabulary": 0.2}
    variety_words = ("fwd", "bwd")

    direction: Literal["fwd", "bwd"]
    rows: int
    cols: int
    vocabulary: int  # 0: not known
    precision: Precision

    @property
    def bytes(self) -> int:
        """Least bytes moved; backward, the gradient of the whole table is zeroed first."""
        element = ELEMENT_BYTES[self.precision]
        table = self.vocabulary * self.cols * element if self.direction == "bwd" else 0
        return 2 * self.rows * self.cols * element + table

    def place(self) -> Shape:
        return self.rows, self.cols, max(1, self.vocabulary)

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return the bytes of the rows that are looked up."""
        elements = self.rows * self.cols if self.direction == "fwd" else 0
        return float(elements * ELEMENT_BYTES[self.precision])


def _embedding(call: Any) -> Operator:
    vocabulary, cols = call["weight"].shape
    return Embedding(call["indices"].numel(), cols, vocabulary)


@dataclass(frozen=True, slots=True)
class Embedding(Rows):
    """``rows`` lookups in a table of ``vocabulary`` rows of ``cols`` elements."""

    autocast = "fp32"
    saved = ("input",)
    indices = (0,)
    by_token = False
    from_torch: ClassVar = dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only"), _embedding)

    vocabulary: int = 0

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (Gather("fwd", self.rows, self.cols, self.vocabulary, precision),)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return no kernels: words have no gradient."""
        return ()

    def parameter_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the table's gradient."""
        return (Gather("bwd", self.rows, self.cols, self.vocabulary, precision),)

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some words of the largest table."""
        if self.vocabulary != meeting.largest_table:
            return None
        return Divided("rows", replace(self, vocabulary=meeting.padded(self.vocabulary)))
