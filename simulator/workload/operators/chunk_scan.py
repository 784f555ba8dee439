"""The scan of Mamba-2, as mamba_ssm runs it in training.

Megatron-LM and transformers call ``mamba_split_conv1d_scan_combined`` (state-spaces/mamba,
mamba_ssm/ops/triton/ssd_combined.py; Dao and Gu, arXiv 2405.21060, section 6).  Its products are Triton kernels with a
program for each head and chunk, so a product here is a batch of small ones.  With T tokens, H heads of P elements, G
groups, states of N numbers and chunks of Q tokens, the forward pass runs

- ``_chunk_cumsum_fwd``: step sizes and sums of decays, T H numbers each in fp32;
- ``_chunk_state_fwd``: P x N from Q tokens, for each chunk and head, in fp32;
- ``_state_passing_fwd``: a pass over these, written in 16 bits;
- ``_bmm_chunk_fwd``: Q x Q scores from N numbers, for each chunk and group, in fp32;
- ``_chunk_scan_fwd``: Q x P from N numbers of the state and Q scores; it also reads x and the gate z.

Only the output is saved.  The backward pass (``_mamba_chunk_scan_combined_bwd``) runs the convolution and all but the
last of these again, states in fp32, and then

- ``_chunk_scan_bwd_dz``: a pass over x, z, the output and its gradient;
- ``_chunk_scan_bwd_dstates``, and ``_state_passing_bwd`` over states and their gradients in fp32;
- ``_chunk_scan_chunk_state_bwd_dx``: like the result of the forward pass;
- ``_chunk_state_bwd_db`` and ``_chunk_scan_bwd_dC``: Q x N, summed over the heads of a group;
- ``_chunk_scan_bwd_dcb``: Q x Q, summed likewise; two products ``_bmm_chunk_bwd`` of it, Q x N each;
- ``_chunk_scan_bwd_ddAcs_stable``: as many multiplications as ``dcb``, reduced on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operator import Divided, Kernels, Meeting, Operator, Phase
from simulator.workload.precision import ELEMENT_BYTES, Precision

FORWARD_LAUNCHES = 5
BACKWARD_LAUNCHES = 16
_WIDE = ELEMENT_BYTES["fp32"]


@dataclass(frozen=True, slots=True)
class ChunkScan(Operator):
    """Mamba-2's scan over sequences in chunks (arXiv 2405.21060, section 6), times its gate.

    Each of ``heads`` has ``head_size`` elements and, for each of them, a state of ``state`` numbers.  The heads of one
    of ``groups`` share the vectors that write (B) and read (C) their states.
    """

    autocast = "half"
    saved = ("output",)  # the backward pass runs the convolution again
    per_token = None
    called = "scan"

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

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (*self._states(precision, ELEMENT_BYTES[precision]), self._result(precision))

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the backward pass."""
        element = ELEMENT_BYTES[precision]
        q, p, n, side = self.chunk, self.head_size, self.state, self.head_size * self.heads // self.groups
        by_head, by_group = self.chunks * self.heads, self.chunks * self.groups
        out, mixed, states, shared = (
            self.output_elements,
            self.mixed_elements,
            self.state_elements,
            self.shared_elements,
        )
        of_state = Gemm(q, n, side, precision, by_group, "NN", epilogue_elements=shared, out_bytes=_WIDE)
        of_scores = Gemm(q, n, q, precision, by_group, "NN", epilogue_elements=shared)
        steps = self.tokens * self.heads
        return (
            Streaming("silu", mixed, mixed * element, mixed * element),  # the convolution again
            *self._states(precision, _WIDE),
            Streaming("mul", out, 4 * out * element, 2 * out * element),
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
        sizes = ((n, n * ELEMENT_BYTES[precision]) for n in (projected, self.output_elements))
        return (*kernels, *(Streaming("copy", n, size, size) for n, size in sizes))

    def host_calls(self, phase: Phase) -> int:
        """Return the number of calls: Triton launches each kernel from Python."""
        return FORWARD_LAUNCHES if phase == "fwd" else BACKWARD_LAUNCHES

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        """Return the FLOPs of the backward pass: each product has two factors."""
        return 2 * self.flop if trained or any(needed) else 0

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some heads and groups."""
        if not meeting.alike:
            return None
        heads, groups = meeting.part(self.heads, "heads"), meeting.part(self.groups, "groups")
        return Divided("split", replace(self, heads=heads, groups=groups))
