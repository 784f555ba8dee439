"""Hybrid networks of Mamba-2 layers, attention and experts: Nemotron-3, as Hugging Face's ``nemotron_h``.

A Mamba-2 layer (Dao and Gu, "Transformers are SSMs", arXiv 2405.21060, sections 6 and 8) is written as the passes of
mamba_ssm, which Megatron-LM and transformers run: a projection; a causal convolution per channel, with its bias and
SiLU in the same pass; the scan over chunks with its step sizes and its gate
(:class:`~simulator.workload.operators.ChunkScan`), which read their parts of
the projection; a norm per group; the output projection.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import ChunkScan, Conv2d, LayerNorm
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError
from simulator.workload.zoo.llama import attention, experts, squared
from simulator.workload.zoo.sizes import Hybrid


def hybrid_block(b: NetworkBuilder, x: LayerOutput, name: str, d: Hybrid, kind: str) -> LayerOutput:
    """Return *x* plus the result of a layer of *kind*, a letter of the pattern, on the normalised *x*."""
    y = b.layer_norm(x, f"{name}.norm", kind="rms_norm")
    if kind == "M":
        y = _mamba(b, y, name, d)
    elif kind == "*":
        with b.part("attention"):
            y = attention(b, y, name, d, 0)
    else:
        chosen = experts(b, y, name, d)
        with b.part("feed-forward"):
            shared = squared(b, y, f"{name}.shared", d.shared_inner)
        y = b.add(chosen, shared, f"{name}.shared_add")
    return b.add(x, y, f"{name}.add")


def _mamba(b: NetworkBuilder, x: LayerOutput, name: str, d: Hybrid) -> LayerOutput:
    """Return the Mamba-2 layer; raises SizeError unless chunks divide the sequence."""
    batch, length, _ = x.shape
    if length % d.chunk:
        raise SizeError(f"chunks of {d.chunk} tokens do not divide a sequence of {length}")
    inner, shared = d.mamba_heads * d.mamba_size, d.groups * d.state
    mixed, side = inner + 2 * shared, inner // d.groups
    joint = b.linear(x, f"{name}.in", inner + mixed + d.mamba_heads, bias=False, split="columns")
    conv = Conv2d(batch, mixed, mixed, 1, length + d.kernel - 1, 1, d.kernel, groups=mixed)
    weights = Parameter(f"{name}.conv.weight", mixed * d.kernel), Parameter(f"{name}.conv.bias", mixed)
    xbc = b.add_layer(f"{name}.conv", conv, (joint,), (batch, length, mixed), weights)
    learned = tuple(Parameter(f"{name}.{each}", d.mamba_heads) for each in ("dt_bias", "decay", "skip"))
    scan = ChunkScan(batch, length, d.mamba_heads, d.mamba_size, d.groups, d.state, d.chunk)
    y = b.add_layer(f"{name}.scan", scan, (xbc,), (batch, length, inner), learned)
    norm = LayerNorm(batch * length * d.groups, side, "rms_norm")
    y = b.add_layer(f"{name}.gated_norm", norm, (y,), y.shape, (Parameter(f"{name}.gated_norm.weight", inner),))
    return b.linear(y, f"{name}.out", d.hidden, bias=False, split="rows")
