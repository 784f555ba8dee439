"""Rows of one expert after the other, as a loop in Python finds, takes and adds them.

``MixtralSparseMoeBlock`` of transformers before 5, and blocks like it: ``torch.where`` over the experts that were
chosen, whose length the host reads; ``hidden_states[None, top_x]``; ``index_add_`` to a result of zeros.
"""

from __future__ import annotations

from typing import ClassVar

from simulator.records import dataclass
from simulator.workload.kernels import Streaming
from simulator.workload.operator import Kernels, Operator, Phase
from simulator.workload.operators.embedding import Gather
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, Precision


@dataclass(frozen=True, slots=True)
class RowsFound(Operator):
    """The numbers of the ``rows`` that an expert has of ``choices``, one for each token and each of its experts."""

    saved = ()
    per_token = ("choices", "rows")
    indices = (0,)
    from_torch: ClassVar = {}

    choices: int
    rows: int

    @property
    def output_elements(self) -> int:
        return self.rows

    def forward_kernels(self, precision: Precision) -> Kernels:
        """Return the count of what is not zero, and its places."""
        n_bytes = self.choices * INDEX_BYTES
        found = Streaming("copy", self.choices, n_bytes, 2 * self.rows * INDEX_BYTES)
        return Streaming("copy", self.choices, n_bytes, 0), found

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return no kernels: places have no gradient."""
        return ()

    def host_calls(self, phase: Phase) -> int:
        """Return the number of calls: the expert's part of the mask, its places, and the weights there."""
        return 3

    def host_reads(self, phase: Phase) -> bool:
        return phase == "fwd"


@dataclass(frozen=True, slots=True)
class RowsTaken(Operator):
    """The ``rows`` of an expert, of ``hidden`` numbers each, copied out of those of all ``tokens``.

    The gradient is added, row by row, to zeros for all tokens.
    """

    saved = ()
    per_token = ("tokens", "rows")
    from_torch: ClassVar = {}

    tokens: int
    rows: int
    hidden: int

    @property
    def output_elements(self) -> int:
        return self.rows * self.hidden

    def _copied(self, precision: Precision) -> Kernels:
        return (Gather("fwd", self.rows, self.hidden, self.tokens, precision),)

    def _added(self, precision: Precision) -> Kernels:
        return (Gather("bwd", self.rows, self.hidden, self.tokens, precision),)

    def forward_kernels(self, precision: Precision) -> Kernels:
        return self._copied(precision)

    def input_gradients(self, precision: Precision) -> Kernels:
        return self._added(precision)


@dataclass(frozen=True, slots=True)
class RowsAdded(RowsTaken):
    """The rows of an expert added to those of all tokens; of the ``first`` expert, to zeros."""

    passes_gradient = True

    first: bool = False

    @property
    def output_elements(self) -> int:
        return self.tokens * self.hidden

    def forward_kernels(self, precision: Precision) -> Kernels:
        size, n = ELEMENT_BYTES[precision], self.rows * self.hidden
        added = Streaming("add", n, 2 * n * size, n * size)
        whole = self.output_elements
        return (Streaming("fill", whole, 0, whole * size), added) if self.first else (added,)

    def input_gradients(self, precision: Precision) -> Kernels:
        return self._copied(precision)
