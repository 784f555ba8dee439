"""Recurrent layers, and the scan of Mamba-2 (docs/decisions/kernels.md)."""

from collections.abc import Sequence
from typing import Literal, Self

from simulator.records import dataclass, field, replace
from simulator.workload.kernels import Gemm, Product, Shape, Streaming, streamed
from simulator.workload.operator import Direction, Divided, Kernels, Meeting, OneKernel, Operator, Phase
from simulator.workload.precision import ELEMENT_BYTES, Precision

Cell = Literal["rnn", "lstm", "gru"]


@dataclass(frozen=True, slots=True)
class Cells:
    """The arithmetic of a recurrent layer's cells."""

    cell: Cell
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
        """FLOPs of the products with the input and with the state."""
        return 2 * self.timesteps * self.batch * self.gates * self.hidden * (self.inputs + self.hidden)


@dataclass(frozen=True, slots=True)
class Recurrence(Cells, Product):
    """All time steps of a recurrent layer, as a vendor's library runs it."""

    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    precision: Precision

    @property
    def bytes(self) -> int:
        """Least bytes moved: weights once; inputs, gates and states of each step."""
        weights = self.gates * self.hidden * (self.inputs + self.hidden)
        states = self.timesteps * self.batch * (self.inputs + (self.gates + 1) * self.hidden)
        return ELEMENT_BYTES[self.precision] * (weights + states)

    def place(self) -> Shape:
        """Return the values on the axes.

        Gradients of states repeat the forward pass step by step; those of weights are one product over all steps.
        """
        direction = "weights" if self.direction == "bwd_weight" else "steps"
        return direction, self.batch, self.timesteps, self.hidden

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return the bytes of the weights or, for their gradient, of the saved inputs and states."""
        rows = self.timesteps * self.batch if self.direction == "bwd_weight" else self.gates * self.hidden
        return float(rows * (self.inputs + self.hidden) * ELEMENT_BYTES[self.precision])


@dataclass(frozen=True, slots=True)
class Recurrent(Cells, OneKernel):
    """One recurrent layer over ``timesteps`` steps; with 0 ``inputs``, only the products with the state."""

    def in_direction(self, direction: Direction, precision: Precision) -> Recurrence:
        return Recurrence(self.cell, self.batch, self.timesteps, self.inputs, self.hidden, direction, precision)

    def parameter_gradients(self, precision: Precision) -> Kernels:
        return (self.in_direction("bwd_weight", precision),)

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        """Return the FLOPs of the backward pass: two products per forward one, less those of gradients not needed.

        The initial state needs none.
        """
        first = 2 * self.batch * self.gates * self.hidden
        return 2 * self.flop - first * self.hidden - (0 if needed[0] else self.timesteps * first * self.inputs)

    def saved_bytes(self, element_bytes: int) -> int:
        # cuDNN's reserve space: the gates and the cell state of each time step.
        return self.output_elements * (self.gates + 1) * element_bytes


# -- the scan of Mamba-2 ---------------------------------------------------------------


_WIDE = ELEMENT_BYTES["fp32"]


@dataclass(frozen=True, slots=True)
class ChunkScan(Operator):
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
    def mixed_elements(self) -> int:
        """Elements of the input: x, B and C."""
        return self.output_elements + 2 * self.tokens * self.groups * self.state

    @property
    def state_elements(self) -> int:
        """Elements of the states of all chunks."""
        return self.chunks * self.heads * self.head_size * self.state

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (*self._states(precision, ELEMENT_BYTES[precision]), self._result(precision))

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the backward pass."""
        element = ELEMENT_BYTES[precision]
        q, p, n, side = self.chunk, self.head_size, self.state, self.head_size * self.heads // self.groups
        by_head, by_group = self.chunks * self.heads, self.chunks * self.groups
        out, states, shared = self.output_elements, self.state_elements, self.tokens * self.groups * n
        of_state = Gemm(q, n, side, precision, by_group, "NN", epilogue_elements=shared, out_bytes=_WIDE)
        of_scores = Gemm(q, n, q, precision, by_group, "NN", epilogue_elements=shared)
        steps = self.tokens * self.heads
        return (
            *streamed(self.mixed_elements, precision, ("silu", 1, 1)),  # the convolution again
            *self._states(precision, _WIDE),
            *streamed(out, precision, ("mul", 4, 2)),
            Gemm(p, n, q, precision, by_head, "TN", out_bytes=_WIDE),
            Streaming("cumsum", states, 2 * states * _WIDE, 2 * states * element),
            self._result(precision),
            of_state,
            of_state,
            Gemm(q, q, side, precision, by_group, "NT", out_bytes=_WIDE),
            of_scores,
            of_scores,
            Gemm(q, p, q, precision, by_head, "NN"),
            Streaming("cumsum", steps, 3 * steps * _WIDE, steps * element),
        )

    def _states(self, precision: Precision, written: int) -> Kernels:
        """Return the kernels up to the scores; states before chunks are written with *written* bytes a number."""
        steps, states = self.tokens * self.heads, self.state_elements
        return (
            Streaming("cumsum", steps, steps * ELEMENT_BYTES[precision], 2 * steps * _WIDE),
            Gemm(self.head_size, self.state, self.chunk, precision, self.chunks * self.heads, "TN", out_bytes=_WIDE),
            Streaming("cumsum", states, states * _WIDE, states * written),
            Gemm(self.chunk, self.chunk, self.state, precision, self.chunks * self.groups, "NT", out_bytes=_WIDE),
        )

    def _result(self, precision: Precision) -> Gemm:
        k = self.state + self.chunk
        batch, read = self.chunks * self.heads, 2 * self.output_elements
        return Gemm(self.chunk, self.head_size, k, precision, batch, "NN", epilogue_elements=read)

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels*, with the copies around them that Megatron-LM makes if there are several sequences.

        It stores tokens of all sequences side by side, the kernels sequence by sequence (MambaMixer,
        ``_ssm_training``): the projection, with gates and step sizes, and the result are copied.
        """
        if framework != "megatron" or self.batch == 1 or phase == "bwd_weight":
            return kernels
        projected = self.mixed_elements + self.output_elements + self.tokens * self.heads
        copies = (streamed(n, precision, ("copy", 1, 1)) for n in (projected, self.output_elements))
        return *kernels, *(kernel for copy in copies for kernel in copy)

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        return 2 * self.flop if trained or any(needed) else 0  # each product has two factors

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some heads and groups."""
        if not meeting.alike:
            return None
        heads, groups = meeting.part(self.heads, "heads"), meeting.part(self.groups, "groups")
        return Divided("split", replace(self, heads=heads, groups=groups))
