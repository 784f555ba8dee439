"""What moves data: look-ups, copies, exchanges, and passes that frameworks fuse (gates, positions, permutations)."""

from typing import Any, ClassVar, Literal, Self

from simulator.records import dataclass, field, own_data, replace
from simulator.workload import Collective
from simulator.workload.kernels import Kernel, Shape, Streaming, streamed
from simulator.workload.operator import Divided, Elements, Kernels, Meeting, Operator, Phase, Rows
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, Precision


@dataclass(frozen=True, slots=True)
class Gather(Kernel):
    """``rows`` rows of ``cols`` elements gathered from a table (``fwd``) or added into its gradient (``bwd``).

    ``whole_rows``: a block of threads copies a row; else each thread finds the places of its elements.
    """

    direction: Literal["fwd", "bwd"]
    rows: int
    cols: int
    vocabulary: int  # 0: not known
    precision: Precision
    whole_rows: bool = True

    @property
    def bytes(self) -> int:
        """Least bytes moved; backward, the gradient of the whole table is zeroed first."""
        zeroed = self.vocabulary if self.direction == "bwd" else 0
        return (2 * self.rows + zeroed) * self.cols * ELEMENT_BYTES[self.precision]

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
    """``rows`` lookups in a table of ``vocabulary`` rows of ``cols`` elements; ``whole_rows`` as of :class:`Gather`."""

    from_torch: ClassVar = dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only"), _embedding)

    vocabulary: int = 0
    whole_rows: bool = True

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (Gather("fwd", self.rows, self.cols, self.vocabulary, precision, self.whole_rows),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return ()  # words have none

    def parameter_gradients(self, precision: Precision) -> Kernels:
        return (Gather("bwd", self.rows, self.cols, self.vocabulary, precision),)

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some words of the largest table."""
        if self.vocabulary != meeting.largest_table:
            return None
        return Divided("rows", replace(self, vocabulary=meeting.padded(self.vocabulary)))


# -- copies and exchanges ----------------------------------------------------------------


def _copy(call: Any) -> Operator:
    """Return a copy; it is transposed if the output's unit-stride dimension is strided in the input."""
    source, target = (call["src"], call["self"]) if call.name == "copy" else (call.first, call.out)
    if call.name in ("clone", "copy", "_to_copy") and source.shape == target.shape:
        for size, read, written in zip(source.shape, source.stride(), target.stride(), strict=True):
            if size > 1 and written == 1:
                return Copy(target.numel(), read not in (0, 1))
    return Copy(target.numel())


@dataclass(frozen=True, slots=True)
class Copy(Elements):
    """A copy of ``elements`` elements: a materialised transposition, a concatenation, a cast.

    Data movement without arithmetic (padding, gathering, interpolation) counts as a copy of its output.
    """

    from_torch: ClassVar = dict.fromkeys(own_data("simulator.workload", "torch_functions.json")["copies"], _copy)

    elements: int
    transposed: bool = False

    def forward_kernels(self, precision: Precision) -> Kernels:
        n_bytes = self.elements * ELEMENT_BYTES[precision]
        return (Streaming("copy", self.elements, n_bytes, n_bytes, "transposed" if self.transposed else ""),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return self.forward_kernels(precision)  # the copy back

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.elements) if n_inputs == 1 else whole


@dataclass(frozen=True, slots=True)
class Exchange(Operator):
    """A collective among the ranks that divide a layer, along the degree ``axis`` of a layout.

    ``forward`` and ``backward`` are the collectives of the two passes, or None.  ``elements`` is the
    collective's size by nccl-tests' convention (:mod:`simulator.workload`), ``output_elements`` the size of
    the result.  ``copies``: how many equal copies are sent or summed, as of a token for its different experts.
    ``flex``: the dispatcher of experts sends one of them to each rank, and copies it there (DeepEP, HybridEP).
    ``again``: ``forward`` is repeated in the backward pass, as each rank saves its part (arXiv 2205.05198, section
    4.2.2).  ``beside``: so many layers after those of the experts, of a shared one, run before what waits for it.
    ``wide``: of numbers in fp32 in any precision.
    """

    axis: Literal["tp", "cp", "cp heads", "ep", "etp", "dp"]
    forward: Collective | None
    backward: Collective | None
    elements: int
    output_elements: int = field()
    copies: int = 1
    flex: bool = False
    again: bool = False
    beside: int = 0
    wide: bool = False

    @property
    def gathers_tokens(self) -> bool:
        """Whether it brings the tokens of all ranks of experts to each of them."""
        return self.axis == "ep" and self.forward == "all-gather"

    @property
    def passes_gradient(self) -> bool:
        return self.backward in (None, "all-reduce")  # which sums in place

    def forward_kernels(self, precision: Precision) -> Kernels:
        return ()

    def input_gradients(self, precision: Precision) -> Kernels:
        return ()


# -- fused passes ------------------------------------------------------------------------


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

    tokens: int
    hidden: int
    chosen: int
    back: bool = False

    @property
    def output_elements(self) -> int:
        return self.tokens * self.hidden * (1 if self.back else self.chosen)

    def forward_kernels(self, precision: Precision) -> Kernels:
        tokens = self.tokens * self.hidden
        return ((rows_gathered if self.back else rows_spread)(tokens, self.chosen * tokens, ELEMENT_BYTES[precision]),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return replace(self, back=not self.back).forward_kernels(precision)

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.tokens * self.hidden * (self.chosen if self.back else 1))


@dataclass(frozen=True, slots=True)
class Weighed(Permute):
    """The results of a token's experts, which lie side by side, weighed and summed by one product (scattermoe).

    Backward a pass multiplies them by the gradient, for that of the weights; then a weighed copy of the gradient,
    sorted by expert, is written over them.
    """

    back: bool = True

    def input_gradients(self, precision: Precision) -> Kernels:
        tokens, size = self.tokens * self.hidden, ELEMENT_BYTES[precision]
        weights = Streaming("mul", self.chosen * tokens, (self.chosen + 1) * tokens * size, 0)
        return (weights, *Permute.input_gradients(self, precision))


@dataclass(frozen=True, slots=True)
class Rotary(Elements):
    """Rotary positions of ``elements`` numbers of queries or keys in one kernel, which its gradient runs backwards.

    Transformer Engine's ``fused_apply_rotary_pos_emb``, Liger's, flash-attn's.  Sines and cosines stay in the cache.
    """

    elements: int

    def forward_kernels(self, precision: Precision) -> Kernels:
        return streamed(self.elements, precision, ("fused", 1, 1))

    def input_gradients(self, precision: Precision) -> Kernels:
        return self.forward_kernels(precision)


@dataclass(frozen=True, slots=True)
class Gated(Elements):
    """``function(x) y`` of ``elements`` numbers in one kernel (SwiGLU, GeGLU); x and y may be parts of one tensor.

    Megatron-LM's ``bias_swiglu_impl``, Liger's and Transformer Engine's; what is saved are x and y.
    """

    elements: int
    function: Literal["silu", "gelu"] = "silu"

    def forward_kernels(self, precision: Precision) -> Kernels:
        return streamed(self.elements, precision, (self.function, 2, 1))

    def input_gradients(self, precision: Precision) -> Kernels:
        return streamed(self.elements, precision, (f"{self.function}_bwd", 3, 2))

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.elements * (2 if n_inputs == 1 else 1))


# -- rows of an expert in a loop ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsFound(Operator):
    """The numbers of the ``rows`` that an expert has of ``choices``, one for each token and each of its experts."""

    choices: int
    rows: int

    def forward_kernels(self, precision: Precision) -> Kernels:
        """Return the count of what is not zero, and its places."""
        n_bytes = self.choices * INDEX_BYTES
        found = Streaming("copy", self.choices, n_bytes, 2 * self.rows * INDEX_BYTES)
        return Streaming("copy", self.choices, n_bytes, 0), found

    def input_gradients(self, precision: Precision) -> Kernels:
        return ()  # places have none


@dataclass(frozen=True, slots=True)
class RanksFound(RowsFound):
    """The ``numbers`` of each of the ranks that have samples (``choices``, all of them ``rows``), looked up by a mask.

    ``waits``: for the look-up before.
    """

    numbers: int
    output_elements: int = field()
    waits: bool = field()

    def forward_kernels(self, precision: Precision) -> Kernels:
        taken = streamed(self.rows * self.numbers, "fp32", ("copy", 1, 1))
        return *RowsFound.forward_kernels(self, precision), *taken

    def host_reads(self, phase: Phase) -> bool:
        return self.waits and phase == "fwd"


@dataclass(frozen=True, slots=True)
class RowsTaken(Operator):
    """The ``rows`` of an expert, of ``hidden`` numbers each, copied out of those of all ``tokens``.

    The gradient is added, row by row, to zeros for all tokens.
    """

    tokens: int
    rows: int
    hidden: int

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (Gather("fwd", self.rows, self.hidden, self.tokens, precision),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return (Gather("bwd", self.rows, self.hidden, self.tokens, precision),)


@dataclass(frozen=True, slots=True)
class RowsAdded(RowsTaken):
    """The rows of an expert added to those of all tokens; of the ``first`` expert, to zeros."""

    first: bool = False

    def forward_kernels(self, precision: Precision) -> Kernels:
        zeros = streamed(self.output_elements, precision, ("fill", 0, 1)) if self.first else ()
        return *zeros, *streamed(self.rows * self.hidden, precision, ("add", 2, 1))

    def input_gradients(self, precision: Precision) -> Kernels:
        return RowsTaken.forward_kernels(self, precision)
