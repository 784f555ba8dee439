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

from simulator.workload.operators import (
    ChunkScan,
    Conv2d,
    Elementwise,
    GroupedLinear,
    LayerNorm,
    Reduction,
    RowsAdded,
    RowsFound,
    RowsTaken,
)
from simulator.workload.zoo.attention import feed_forward, rotate, self_attention
from simulator.workload.zoo.builder import SizeError, Tensor, weights
from simulator.workload.zoo.sizes import Decoder, Hybrid, LatentAttentionMixture, MixtureOfExperts


def latent_attention(x: Tensor, name: str, d: LatentAttentionMixture) -> Tensor:
    """Return the attention of a block with its output projection; *x* is already normalised.

    Raises SizeError if the rotary part does not divide a head, or is odd.
    """
    batch, length, _ = x.shape
    size = d.plain_size + d.rotary_size
    if size % d.rotary_size or d.rotary_size % 2:
        raise SizeError(f"{d.rotary_size} of {size} numbers of a head cannot turn")
    query = x
    if d.query_rank:
        query = x.linear(f"{name}.q_latent", d.query_rank, bias=False).rms_norm(f"{name}.q_norm")
    query = query.linear(f"{name}.q", d.heads * size, bias=False, split="columns")
    latent = x.linear(f"{name}.kv_latent", d.kv_rank + d.rotary_size, bias=False)
    kept = latent.view(batch, length, d.kv_rank).rms_norm(f"{name}.kv_norm")
    both = kept.linear(f"{name}.kv", d.heads * (d.plain_size + d.value_size), bias=False, split="columns")
    query = rotate(query, f"{name}.rotate_q", size // d.rotary_size)
    turned = rotate(latent.view(batch, length, d.rotary_size), f"{name}.rotate_k")
    key = both.gather(f"{name}.join_k", (batch, length, d.heads * size), turned)
    value = both.view(batch, length, d.heads * d.value_size)
    y = self_attention((query, key, value), name, heads=d.heads, kind=d.attention, mask="add-causal", dropout=False)
    return y.linear(f"{name}.out", d.hidden, bias=False, split="rows")


def experts(x: Tensor, name: str, d: MixtureOfExperts) -> Tensor:
    """Return, for each token of *x*, the weighted sum of its experts' results."""
    *outer, size = x.shape
    hidden, tokens = d.expert_latent or size, x.elements // size
    rows, chosen = tokens * d.chosen, d.chosen
    if d.routing.capacity:
        rows, chosen = round(rows * d.routing.kept), max(1, round(chosen * d.routing.kept))
    scores = x.linear(f"{name}.router", d.experts, bias=d.expert_bias).softmax(f"{name}.scores")
    shares = scores.apply(f"{name}.topk", "topk")  # weights of experts that were not chosen become 0
    y = x.linear(f"{name}.latent_in", hidden, bias=False) if d.expert_latent else x
    with x.net.part("experts"):
        if d.expert_kernels == "loop":
            y = _looped(y, shares, name, d)
        else:
            y = y.gather(f"{name}.dispatch", (rows, hidden))
            y = _products(y, f"{name}.experts_up", (2 if d.gated else 1) * d.expert_inner, d)
            half = y.view(rows, d.expert_inner)
            activate = _clamped if d.expert_bias else _gated if d.gated else _squared
            y = _products(activate(half, f"{name}.experts"), f"{name}.experts_down", hidden, d)
            # The weights are one number per row; nearly all bytes read are the results.
            y = y.layer(f"{name}.weigh", Elementwise("mul", rows * hidden), None, (), shares)
            y = y.layer(f"{name}.combine", Reduction(tokens * hidden, chosen), (*outer, hidden))
    return y.linear(f"{name}.latent_out", size, bias=False) if d.expert_latent else y


def _looped(x: Tensor, shares: Tensor, name: str, d: MixtureOfExperts) -> Tensor:
    """Return the weighted sums of :func:`experts` as a loop over the experts computes them, *x* as its input."""
    hidden = x.shape[-1]
    tokens = x.elements // hidden
    rows = -(-tokens * d.chosen // d.experts)
    result = x
    for number in range(d.experts):
        own = f"{name}.expert{number}"
        found = shares.layer(f"{own}_found", RowsFound(tokens * d.chosen, rows), (rows,))
        y = x.layer(f"{own}_taken", RowsTaken(tokens, rows, hidden), (rows, hidden), (), found)
        if d.expert_bias:
            y = _clamped(y.linear(f"{own}_up", 2 * d.expert_inner).view(rows, d.expert_inner), own)
        elif d.gated:
            gate = y.linear(f"{own}_gate", d.expert_inner, bias=False).apply(f"{own}_silu", "silu")
            y = gate.apply(f"{own}_mul", "mul", y.linear(f"{own}_up", d.expert_inner, bias=False))
        else:
            y = _squared(y.linear(f"{own}_up", d.expert_inner, bias=False), own)
        y = y.linear(f"{own}_down", hidden, bias=d.expert_bias)
        y = y.layer(f"{own}_weigh", Elementwise("mul", rows * hidden), None, (), shares)
        first, *also = (result, y, found) if number else (y, found)
        added = RowsAdded(tokens, rows, hidden, first=not number)
        result = first.layer(f"{own}_added", added, x.shape, (), *also, in_place=bool(number))
    return result


def _gated(half: Tensor, name: str) -> Tensor:
    """Return ``silu(x) y``; *half* has the shape of x and y, views of one tensor."""
    return half.apply(f"{name}_silu", "silu").apply(f"{name}_mul", "mul", half)


def _squared(whole: Tensor, name: str) -> Tensor:
    """Return the squared ReLU (Nemotron-3)."""
    return whole.apply(f"{name}_relu", "relu").apply(f"{name}_square", "pow_scalar")


def _clamped(half: Tensor, name: str) -> Tensor:
    """Return ``x sigmoid(1.702 x) (y + 1)`` of clamped x and y, as Hugging Face's ``gpt_oss`` computes it."""
    gate, up = half.apply(f"{name}_clamp_gate", "clamp"), half.apply(f"{name}_clamp_up", "clamp")
    swished = gate.apply(f"{name}_alpha", "mul_scalar").apply(f"{name}_sigmoid", "sigmoid")
    gate = gate.apply(f"{name}_glu", "mul", swished)
    return up.apply(f"{name}_one", "add_scalar").apply(f"{name}_mul", "mul", gate)


def _products(x: Tensor, name: str, outputs: int, d: MixtureOfExperts) -> Tensor:
    """Return each row of *x* multiplied by the matrix of its expert."""
    rows, inputs = x.shape
    operator = GroupedLinear(rows, inputs, outputs, bias=d.expert_bias, experts=d.experts, routing=d.routing)
    bias = d.experts * outputs * d.expert_bias
    return x.layer(name, operator, (rows, outputs), weights(name, weight=d.experts * inputs * outputs, bias=bias))


def llama_block(x: Tensor, name: str, d: Decoder, number: int) -> Tensor:
    """Return the result of block *number*, counted from 0."""
    norm = Tensor.layer_norm if d.family == "nemotron" else Tensor.rms_norm
    y = norm(x, f"{name}.norm1")
    with x.net.part("attention"):
        y = latent_attention(y, name, d) if isinstance(d, LatentAttentionMixture) else attention(y, name, d, number)
    x = x.add(y, f"{name}.add1")
    y = norm(x, f"{name}.norm2")
    if isinstance(d, MixtureOfExperts) and number >= d.dense_layers:
        chosen = experts(y, name, d)
        if d.shared_inner:
            shared = gated(y, f"{name}.shared", d.shared_inner)
            if d.shared_gate:
                with x.net.part("feed-forward"):
                    weight = y.linear(f"{name}.shared_gate", 1, bias=False).apply(f"{name}.shared_sigmoid", "sigmoid")
                    weighed = Elementwise("mul", shared.elements)  # the weight is one number per row, negligible
                    shared = shared.layer(f"{name}.shared_mul", weighed, None, (), weight)
            chosen = chosen.add(shared, f"{name}.shared_add")
        return x.add(chosen, f"{name}.add2")
    return x.add((squared if d.family == "nemotron" else gated)(y, name, d.inner), f"{name}.add2")


def attention(x: Tensor, name: str, d: Decoder, number: int) -> Tensor:
    """Return the attention of block *number* with its projections; *x* is already normalised."""
    kv_heads = d.kv_heads or d.heads
    query, key, value = (
        x.linear(f"{name}.{letter}", d.head * heads, bias=d.qkv_bias, split="columns")
        for letter, heads in zip("qkv", (d.heads, kv_heads, kv_heads), strict=True)
    )
    if d.qk_norm:
        query, key = (
            y.view(y.elements // d.head, d.head).rms_norm(f"{name}.norm_{letter}").view(*y.shape)
            for y, letter in ((query, "q"), (key, "k"))
        )
    if d.family != "nemotron_h":  # which has no positions
        share = 2 if d.family == "nemotron" else 1
        query, key = rotate(query, f"{name}.rotate_q", share), rotate(key, f"{name}.rotate_k", share)
    y = self_attention(
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
    return y.linear(f"{name}.out", d.hidden, bias=d.out_bias, split="rows")


def gated(x: Tensor, name: str, inner: int) -> Tensor:
    """Return the result of a gated feed-forward layer (SwiGLU) of width *inner*."""
    with x.net.part("feed-forward"):
        gate = x.linear(f"{name}.gate", inner, bias=False, split="columns").apply(f"{name}.silu", "silu")
        y = gate.apply(f"{name}.mul", "mul", x.linear(f"{name}.up", inner, bias=False, split="columns"))
        return y.linear(f"{name}.down", x.shape[-1], bias=False, split="rows")


def squared(x: Tensor, name: str, inner: int) -> Tensor:
    """Return the result of a feed-forward layer of width *inner* with a squared ReLU."""

    def activate(y: Tensor, name: str) -> Tensor:
        return y.apply(f"{name}.relu", "relu").apply(f"{name}.square", "pow_scalar")

    return feed_forward(x, name, inner, activate, bias=False)


def hybrid_block(x: Tensor, name: str, d: Hybrid, kind: str) -> Tensor:
    """Return *x* plus the result of a layer of *kind*, a letter of the pattern, on the normalised *x*."""
    y = x.rms_norm(f"{name}.norm")
    if kind == "M":
        y = _mamba(y, name, d)
    elif kind == "*":
        with x.net.part("attention"):
            y = attention(y, name, d, 0)
    elif kind == "-":
        y = squared(y, name, d.inner)
    else:
        y = experts(y, name, d).add(squared(y, f"{name}.shared", d.shared_inner), f"{name}.shared_add")
    return x.add(y, f"{name}.add")


def _mamba(x: Tensor, name: str, d: Hybrid) -> Tensor:
    """Return the Mamba-2 layer; raises SizeError unless chunks divide the sequence."""
    batch, length, _ = x.shape
    if length % d.chunk:
        raise SizeError(f"chunks of {d.chunk} tokens do not divide a sequence of {length}")
    inner = d.mamba_heads * d.mamba_size
    mixed = inner + 2 * d.groups * d.state
    y = x.linear(f"{name}.in", inner + mixed + d.mamba_heads, bias=False, split="columns")
    conv = Conv2d(batch, mixed, mixed, 1, length + d.kernel - 1, 1, d.kernel, groups=mixed)
    learned = weights(f"{name}.conv", weight=mixed * d.kernel, bias=mixed)
    y = y.layer(f"{name}.conv", conv, (batch, length, mixed), learned)
    learned = weights(name, dt_bias=d.mamba_heads, decay=d.mamba_heads, skip=d.mamba_heads)
    scan = ChunkScan(batch, length, d.mamba_heads, d.mamba_size, d.groups, d.state, d.chunk)
    y = y.layer(f"{name}.scan", scan, (batch, length, inner), learned)
    norm = LayerNorm(batch * length * d.groups, inner // d.groups, "rms_norm")
    y = y.layer(f"{name}.gated_norm", norm, None, weights(f"{name}.gated_norm", weight=inner))
    return y.linear(f"{name}.out", d.hidden, bias=False, split="rows")
