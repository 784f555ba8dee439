"""The kernels of Mamba-2's chunked scan, as mamba_ssm runs them in training.

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

from simulator.devices.kernels import Gemm, Kernel, Streaming
from simulator.workload.operators import ChunkScan
from simulator.workload.precision import ELEMENT_BYTES, Precision

FORWARD_LAUNCHES = 5
BACKWARD_LAUNCHES = 16
_WIDE = ELEMENT_BYTES["fp32"]


def scan_forward(scan: ChunkScan, precision: Precision) -> tuple[Kernel, ...]:
    """Return the kernels of the forward pass of *scan*."""
    result = _result(scan, precision)
    return (*_states(scan, precision, ELEMENT_BYTES[precision]), result)


def scan_backward(scan: ChunkScan, precision: Precision) -> tuple[Kernel, ...]:
    """Return the kernels of the backward pass of *scan*."""
    element = ELEMENT_BYTES[precision]
    q, p, n, side = scan.chunk, scan.head_size, scan.state, scan.head_size * scan.heads // scan.groups
    by_head, by_group = scan.chunks * scan.heads, scan.chunks * scan.groups
    out, mixed, states, shared = scan.output_elements, scan.mixed_elements, scan.state_elements, scan.shared_elements
    of_state = Gemm(q, n, side, precision, by_group, "NN", epilogue_elements=shared, out_bytes=_WIDE)
    of_scores = Gemm(q, n, q, precision, by_group, "NN", epilogue_elements=shared)
    steps = scan.tokens * scan.heads
    return (
        Streaming("silu", mixed, mixed * element, mixed * element),  # the convolution again
        *_states(scan, precision, _WIDE),
        Streaming("mul", out, 4 * out * element, 2 * out * element),
        Gemm(p, n, q, precision, by_head, "TN", out_bytes=_WIDE),
        Streaming("cumsum", states, 2 * states * _WIDE, 2 * states * element),
        _result(scan, precision),
        of_state,
        of_state,
        Gemm(q, q, side, precision, by_group, "NT", out_bytes=_WIDE),
        of_scores,
        of_scores,
        Gemm(q, p, q, precision, by_head, "NN"),
        Streaming("cumsum", steps, 3 * steps * _WIDE, steps * element),
    )


def scan_copies(scan: ChunkScan, precision: Precision) -> tuple[Kernel, ...]:
    """Return the copies around *scan* that Megatron-LM makes in each pass if there are several sequences.

    It stores tokens of all sequences side by side, the kernels sequence by sequence (MambaMixer, ``_ssm_training``):
    the projection, with gates and step sizes, and the result are copied.
    """
    if scan.batch == 1:
        return ()
    projected = scan.mixed_elements + scan.output_elements + scan.tokens * scan.heads
    sizes = ((n, n * ELEMENT_BYTES[precision]) for n in (projected, scan.output_elements))
    return tuple(Streaming("copy", n, size, size) for n, size in sizes)


def _states(scan: ChunkScan, precision: Precision, written: int) -> tuple[Kernel, ...]:
    """Return the kernels up to the scores; states before chunks are written with *written* bytes a number."""
    steps, states = scan.tokens * scan.heads, scan.state_elements
    return (
        Streaming("cumsum", steps, steps * ELEMENT_BYTES[precision], 2 * steps * _WIDE),
        Gemm(scan.head_size, scan.state, scan.chunk, precision, scan.chunks * scan.heads, "TN", out_bytes=_WIDE),
        Streaming("cumsum", states, states * _WIDE, states * written),
        Gemm(scan.chunk, scan.chunk, scan.state, precision, scan.chunks * scan.groups, "NT", out_bytes=_WIDE),
    )


def _result(scan: ChunkScan, precision: Precision) -> Gemm:
    k = scan.state + scan.chunk
    batch, read = scan.chunks * scan.heads, 2 * scan.output_elements
    return Gemm(scan.chunk, scan.head_size, k, precision, batch, "NN", epilogue_elements=read)
