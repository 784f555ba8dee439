"""Hybrid networks of Mamba-2 layers, attention and experts: Nemotron-3, as Hugging Face's ``nemotron_h``.

A Mamba-2 layer (Dao and Gu, "Transformers are SSMs", arXiv 2405.21060, sections 6 and 8) is written as the passes and
products of the kernels in mamba_ssm, which Megatron-LM and transformers run: a causal convolution per channel, with its
bias and SiLU in the same pass; per chunk of the sequence and group of heads, the products of ``ssd_combined.py``, with
the heads of a group side by side, as they share B and C; a gated norm per group.  Of each chunk these are

- the state that it adds: B^T x (``_chunk_state_fwd``);
- the states before all chunks: a pass over them (``_state_passing_fwd``);
- the scores of its tokens: C B^T (``_bmm_chunk_fwd``);
- the result: scores times x plus C times the state before, one product over both (``_chunk_scan_fwd``).

Decays and step sizes multiply what these kernels hold on the chip.  The kernels keep states in fp32; here they have the
format of other activations.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Conv2d, Elementwise, LayerNorm, MatMul
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor
from simulator.workload.zoo.experts import experts
from simulator.workload.zoo.llama import attention, squared
from simulator.workload.zoo.sizes import Hybrid

__all__ = ["hybrid_block"]


def hybrid_block(b: NetworkBuilder, x: Tensor, name: str, d: Hybrid, number: int) -> Tensor:
    """Return the result of block *number*, counted from 0: the normalised *x* through one kind of layer, plus *x*."""
    y = b.layer_norm(x, f"{name}.norm", kind="rms_norm")
    kind = d.pattern[number]
    if kind == "M":
        y = _mamba(b, y, name, d)
    elif kind == "*":
        with b.part("attention"):
            y = attention(b, y, name, d, number)
    else:
        chosen = experts(b, y, name, d)
        with b.part("feed-forward"):
            shared = squared(b, y, f"{name}.shared", d.shared_inner)
        y = b.add(chosen, shared, f"{name}.shared_add")
    return b.add(x, y, f"{name}.add")


def _mamba(b: NetworkBuilder, x: Tensor, name: str, d: Hybrid) -> Tensor:
    """Return the Mamba-2 layer; raises SizeError unless chunks divide the sequence."""
    batch, length, _ = x.shape
    if length % d.chunk:
        raise SizeError(f"chunks of {d.chunk} tokens do not divide a sequence of {length}")
    inner, shared = d.mamba_heads * d.mamba_size, d.groups * d.state
    mixed, pieces, side = inner + 2 * shared, batch * length // d.chunk * d.groups, inner // d.groups
    joint = b.linear(x, f"{name}.in", inner + mixed + d.mamba_heads, bias=False, split="columns")
    conv = Conv2d(batch, mixed, mixed, 1, length + d.kernel - 1, 1, d.kernel, groups=mixed)
    weights = Parameter(f"{name}.conv.weight", mixed * d.kernel), Parameter(f"{name}.conv.bias", mixed)
    xbc = b.add_layer(f"{name}.conv", conv, (joint,), (batch, length, mixed), weights)
    learned = tuple(Parameter(f"{name}.{each}", d.mamba_heads) for each in ("dt_bias", "decay", "skip"))
    steps = batch, length, d.mamba_heads
    decays = b.add_layer(
        f"{name}.decays", Elementwise("softplus", batch * length * d.mamba_heads), (joint,), steps, learned
    )
    of_group = b.view(xbc, pieces, d.chunk, d.state)
    values = b.view(xbc, pieces, d.chunk, side)
    added = b.matmul(of_group, values, f"{name}.states", "TN")
    # One number per head and token is read besides, which is negligible.
    before = b.add_layer(f"{name}.passing", Elementwise("cumsum", added.elements), (added, decays), added.shape)
    scores = b.matmul(of_group, of_group, f"{name}.scores", "NT")
    scan = MatMul(d.chunk, side, d.chunk + d.state, pieces)
    y = b.add_layer(f"{name}.scan", scan, (scores, xbc, before), (batch, length, inner))
    y = b.elementwise(f"{name}.gated", "mul", y, b.view(joint, batch, length, inner))
    norm = LayerNorm(batch * length * d.groups, side, "rms_norm")
    y = b.add_layer(f"{name}.gated_norm", norm, (y,), y.shape, (Parameter(f"{name}.gated_norm.weight", inner),))
    return b.linear(y, f"{name}.out", d.hidden, bias=False, split="rows")
