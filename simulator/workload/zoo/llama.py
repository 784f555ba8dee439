"""Llama-like blocks: Llama, Qwen, InternLM, Nemotron-4; with experts, Mixtral, gpt-oss, DeepSeek; hybrid, Nemotron-3.

They have grouped queries, rotary positions as element-wise kernels, RMSNorm before attention and before the gated
feed-forward layer, as in Hugging Face's ``llama``, ``qwen2``, ``qwen3``, ``mixtral`` and ``deepseek_v3``.  Nemotron-4
(``nemotron``) has LayerNorm, a squared ReLU instead of a gate, and rotates half of each head.  gpt-oss (``gpt_oss``)
has biases, sinks in its attention, and a window in every other block.

In mixture-of-experts layers a router sends each token to some feed-forward layers (arXiv 2101.03961, 2401.04088), as in
Megatron-LM and Hugging Face's ``grouped_mm``: the router scores all experts and takes the best for each token;
each token is copied once per chosen expert, sorted by expert; two grouped products with a gate between them follow;
the results are weighted and summed per token.  Routing is balanced: all experts get equally many tokens.

In DeepSeek's latent attention (arXiv 2405.04434, section 2.1), as Hugging Face's ``deepseek_v3`` trains it, the keys
and values of all heads are projected from a short latent vector per token.  The rotary part of each key is
shared by all heads.

Hybrid networks have Mamba-2 layers too (Hugging Face's ``nemotron_h``).  A Mamba-2 layer (Dao and Gu, "Transformers are
SSMs", arXiv 2405.21060, sections 6 and 8) is written as the passes of mamba_ssm, which Megatron-LM and transformers
run: a projection; a causal convolution per channel, with its bias and SiLU in the same pass; the scan over chunks with
its step sizes and its gate (:class:`~simulator.workload.operators.ChunkScan`), which read their parts of the
projection; a norm per group; the output projection.
"""

from __future__ import annotations

from typing import Literal

from simulator.workload.network import Parameter
from simulator.workload.operators import (
    ChunkScan,
    Conv2d,
    Copy,
    Elementwise,
    GroupedLinear,
    LayerNorm,
    Reduction,
    RowsAdded,
    RowsFound,
    RowsTaken,
)
from simulator.workload.zoo.attention import rotate, self_attention
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError
from simulator.workload.zoo.sizes import Decoder, Hybrid, LatentAttentionMixture, MixtureOfExperts


def latent_attention(b: NetworkBuilder, x: LayerOutput, name: str, d: LatentAttentionMixture) -> LayerOutput:
    """Return the attention of a block with its output projection; *x* is already normalised.

    Raises SizeError if the rotary part does not divide a head, or is odd.
    """
    batch, length, _ = x.shape
    size = d.plain_size + d.rotary_size
    if size % d.rotary_size or d.rotary_size % 2:
        raise SizeError(f"{d.rotary_size} of {size} numbers of a head cannot turn")
    query = x
    if d.query_rank:
        query = b.linear(x, f"{name}.q_latent", d.query_rank, bias=False)
        query = b.layer_norm(query, f"{name}.q_norm", kind="rms_norm")
    query = b.linear(query, f"{name}.q", d.heads * size, bias=False, split="columns")
    latent = b.linear(x, f"{name}.kv_latent", d.kv_rank + d.rotary_size, bias=False)
    turning = b.view(latent, batch, length, d.rotary_size)
    kept = b.layer_norm(b.view(latent, batch, length, d.kv_rank), f"{name}.kv_norm", kind="rms_norm")
    both = b.linear(kept, f"{name}.kv", d.heads * (d.plain_size + d.value_size), bias=False, split="columns")
    query = rotate(b, query, f"{name}.rotate_q", size // d.rotary_size)
    turned = rotate(b, turning, f"{name}.rotate_k")
    keys = batch, length, d.heads * size
    key = b.add_layer(f"{name}.join_k", Copy(batch * length * d.heads * size), (both, turned), keys)
    value = b.view(both, batch, length, d.heads * d.value_size)
    y = self_attention(b, (query, key, value), name, heads=d.heads, kind=d.attention, mask="add-causal", dropout=False)
    return b.linear(y, f"{name}.out", d.hidden, bias=False, split="rows")


def experts(b: NetworkBuilder, x: LayerOutput, name: str, d: MixtureOfExperts) -> LayerOutput:
    """Return, for each token of *x*, the weighted sum of its experts' results."""
    hidden = d.expert_latent or x.shape[-1]
    tokens = x.elements // x.shape[-1]
    rows = tokens * d.chosen
    scores = b.softmax(b.linear(x, f"{name}.router", d.experts, bias=d.expert_bias), f"{name}.scores")
    weights = b.elementwise(f"{name}.topk", "topk", scores)  # weights of experts that were not chosen become 0
    y = b.linear(x, f"{name}.latent_in", hidden, bias=False) if d.expert_latent else x
    if d.expert_kernels == "loop":
        with b.part("experts"):
            y = _looped(b, y, weights, name, d)
        return b.linear(y, f"{name}.latent_out", x.shape[-1], bias=False) if d.expert_latent else y
    with b.part("experts"):
        y = b.add_layer(f"{name}.dispatch", Copy(rows * hidden), (y,), (rows, hidden))
        y = _products(b, y, f"{name}.experts_up", (2 if d.gated else 1) * d.expert_inner, d)
        half = b.view(y, rows, d.expert_inner)
        activate = _clamped if d.expert_bias else _gated if d.gated else _squared
        y = activate(b, half, f"{name}.experts")
        y = _products(b, y, f"{name}.experts_down", hidden, d)
        # The weights are one number per row; nearly all bytes read are the results.
        y = b.add_layer(f"{name}.weigh", Elementwise("mul", rows * hidden), (y, weights), (rows, hidden))
        y = b.add_layer(f"{name}.combine", Reduction(tokens * hidden, d.chosen), (y,), (*x.shape[:-1], hidden))
    return b.linear(y, f"{name}.latent_out", x.shape[-1], bias=False) if d.expert_latent else y


def _looped(b: NetworkBuilder, x: LayerOutput, weights: LayerOutput, name: str, d: MixtureOfExperts) -> LayerOutput:
    """Return the weighted sums of :func:`experts` as a loop over the experts computes them, *x* as its input."""
    *_, hidden = x.shape
    tokens = x.elements // hidden
    rows = -(-tokens * d.chosen // d.experts)
    sizes, result = (tokens, rows, hidden), x
    for number in range(d.experts):
        own = f"{name}.expert{number}"
        found = b.add_layer(f"{own}_found", RowsFound(tokens * d.chosen, rows), (weights,), (rows,))
        y = b.add_layer(f"{own}_taken", RowsTaken(*sizes), (x, found), (rows, hidden))
        if d.expert_bias:
            up = b.linear(y, f"{own}_up", 2 * d.expert_inner)
            y = _clamped(b, b.view(up, rows, d.expert_inner), own)
        elif d.gated:
            gate = b.elementwise(f"{own}_silu", "silu", b.linear(y, f"{own}_gate", d.expert_inner, bias=False))
            y = b.elementwise(f"{own}_mul", "mul", gate, b.linear(y, f"{own}_up", d.expert_inner, bias=False))
        else:
            y = _squared(b, b.linear(y, f"{own}_up", d.expert_inner, bias=False), own)
        y = b.linear(y, f"{own}_down", hidden, bias=d.expert_bias)
        y = b.add_layer(f"{own}_weigh", Elementwise("mul", rows * hidden), (y, weights), (rows, hidden))
        before = (result,) if number else ()
        operator = RowsAdded(*sizes, first=not number)
        result = b.add_layer(f"{own}_added", operator, (*before, y, found), x.shape, in_place=bool(number))
    return result


def _gated(b: NetworkBuilder, half: LayerOutput, name: str) -> LayerOutput:
    """Return ``silu(x) y``; *half* has the shape of x and y, views of one tensor."""
    return b.elementwise(f"{name}_mul", "mul", b.elementwise(f"{name}_silu", "silu", half), half)


def _squared(b: NetworkBuilder, whole: LayerOutput, name: str) -> LayerOutput:
    """Return the squared ReLU (Nemotron-3)."""
    return b.elementwise(f"{name}_square", "pow_scalar", b.elementwise(f"{name}_relu", "relu", whole))


def _clamped(b: NetworkBuilder, half: LayerOutput, name: str) -> LayerOutput:
    """Return ``x sigmoid(1.702 x) (y + 1)`` of clamped x and y, as Hugging Face's ``gpt_oss`` computes it."""
    gate = b.elementwise(f"{name}_clamp_gate", "clamp", half)
    up = b.elementwise(f"{name}_clamp_up", "clamp", half)
    scaled = b.elementwise(f"{name}_alpha", "mul_scalar", gate)
    gate = b.elementwise(f"{name}_glu", "mul", gate, b.elementwise(f"{name}_sigmoid", "sigmoid", scaled))
    return b.elementwise(f"{name}_mul", "mul", b.elementwise(f"{name}_one", "add_scalar", up), gate)


def _products(b: NetworkBuilder, x: LayerOutput, name: str, outputs: int, d: MixtureOfExperts) -> LayerOutput:
    """Return each row of *x* multiplied by the matrix of its expert."""
    rows, inputs = x.shape
    parameters: tuple[Parameter, ...] = (Parameter(f"{name}.weight", d.experts * inputs * outputs),)
    if d.expert_bias:
        parameters += (Parameter(f"{name}.bias", d.experts * outputs),)
    operator = GroupedLinear(rows, inputs, outputs, bias=d.expert_bias, experts=d.experts, imbalance=d.imbalance)
    return b.add_layer(name, operator, (x,), (rows, outputs), parameters)


def llama_block(b: NetworkBuilder, x: LayerOutput, name: str, d: Decoder, number: int) -> LayerOutput:
    """Return the result of block *number*, counted from 0."""
    norm: Literal["rms_norm", "layer_norm"] = "layer_norm" if d.family == "nemotron" else "rms_norm"
    y = b.layer_norm(x, f"{name}.norm1", kind=norm)
    with b.part("attention"):
        y = (
            latent_attention(b, y, name, d)
            if isinstance(d, LatentAttentionMixture)
            else attention(b, y, name, d, number)
        )
    x = b.add(x, y, f"{name}.add1")
    y = b.layer_norm(x, f"{name}.norm2", kind=norm)
    if isinstance(d, MixtureOfExperts) and number >= d.dense_layers:
        chosen = experts(b, y, name, d)
        if d.shared_inner:
            with b.part("feed-forward"):
                shared = gated(b, y, f"{name}.shared", d.shared_inner)
                if d.shared_gate:
                    weight = b.linear(y, f"{name}.shared_gate", 1, bias=False)
                    weight = b.elementwise(f"{name}.shared_sigmoid", "sigmoid", weight)
                    weighed = Elementwise("mul", shared.elements)  # the weight is one number per row, negligible
                    shared = b.add_layer(f"{name}.shared_mul", weighed, (shared, weight), shared.shape)
            y = b.add(chosen, shared, f"{name}.shared_add")
        else:
            y = chosen
    else:
        with b.part("feed-forward"):
            y = squared(b, y, name, d.inner) if d.family == "nemotron" else gated(b, y, name, d.inner)
    return b.add(x, y, f"{name}.add2")


def attention(b: NetworkBuilder, x: LayerOutput, name: str, d: Decoder, number: int) -> LayerOutput:
    """Return the attention of block *number* with its projections; *x* is already normalised."""
    kv_heads = d.kv_heads or d.heads
    query = b.linear(x, f"{name}.q", d.head * d.heads, bias=d.qkv_bias, split="columns")
    key = b.linear(x, f"{name}.k", d.head * kv_heads, bias=d.qkv_bias, split="columns")
    value = b.linear(x, f"{name}.v", d.head * kv_heads, bias=d.qkv_bias, split="columns")
    if d.qk_norm:
        query, key = _norm_heads(b, query, f"{name}.norm_q", d.head), _norm_heads(b, key, f"{name}.norm_k", d.head)
    if d.family != "nemotron_h":  # which has no positions
        share = 2 if d.family == "nemotron" else 1
        query, key = rotate(b, query, f"{name}.rotate_q", share), rotate(b, key, f"{name}.rotate_k", share)
    y = self_attention(
        b,
        (query, key, value),
        name,
        heads=d.heads,
        kv_heads=kv_heads,
        kind=d.attention,
        mask="add-causal",
        dropout=False,
        window=0 if number % 2 else d.window,
        sinks=d.sinks,
    )
    return b.linear(y, f"{name}.out", d.hidden, bias=d.out_bias, split="rows")


def _norm_heads(b: NetworkBuilder, x: LayerOutput, name: str, size: int) -> LayerOutput:
    heads = b.view(x, x.elements // size, size)
    return b.view(b.layer_norm(heads, name, kind="rms_norm"), *x.shape)


def gated(b: NetworkBuilder, x: LayerOutput, name: str, inner: int) -> LayerOutput:
    """Return the result of a gated feed-forward layer (SwiGLU) of width *inner*."""
    gate = b.elementwise(f"{name}.silu", "silu", b.linear(x, f"{name}.gate", inner, bias=False, split="columns"))
    y = b.elementwise(f"{name}.mul", "mul", gate, b.linear(x, f"{name}.up", inner, bias=False, split="columns"))
    return b.linear(y, f"{name}.down", x.shape[-1], bias=False, split="rows")


def squared(b: NetworkBuilder, x: LayerOutput, name: str, inner: int) -> LayerOutput:
    """Return the result of a feed-forward layer of width *inner* with a squared ReLU."""
    y = b.elementwise(f"{name}.relu", "relu", b.linear(x, f"{name}.up", inner, bias=False, split="columns"))
    y = b.elementwise(f"{name}.square", "pow_scalar", y)
    return b.linear(y, f"{name}.down", x.shape[-1], bias=False, split="rows")


def hybrid_block(b: NetworkBuilder, x: LayerOutput, name: str, d: Hybrid, kind: str) -> LayerOutput:
    """Return *x* plus the result of a layer of *kind*, a letter of the pattern, on the normalised *x*."""
    y = b.layer_norm(x, f"{name}.norm", kind="rms_norm")
    if kind == "M":
        y = _mamba(b, y, name, d)
    elif kind == "*":
        with b.part("attention"):
            y = attention(b, y, name, d, 0)
    elif kind == "-":
        with b.part("feed-forward"):
            y = squared(b, y, name, d.inner)
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
