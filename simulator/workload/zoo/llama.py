"""Llama-like blocks: Llama, Qwen, InternLM, Nemotron-4; with experts, Mixtral, Qwen's and gpt-oss; DeepSeek's.

They have grouped queries, rotary positions as element-wise kernels, RMSNorm before attention and before the gated
feed-forward layer, as in Hugging Face's ``llama``, ``qwen2``, ``qwen3``, ``mixtral`` and ``deepseek_v3``.  Nemotron-4
(``nemotron``) has LayerNorm, a squared ReLU instead of a gate, and rotates half of each head.  gpt-oss (``gpt_oss``)
has biases, sinks in its attention, and a window in every other block.
"""

from __future__ import annotations

from typing import Literal

from simulator.workload.operators import Elementwise
from simulator.workload.zoo.attention import rotate, self_attention
from simulator.workload.zoo.builder import NetworkBuilder, Tensor
from simulator.workload.zoo.experts import experts
from simulator.workload.zoo.latent import latent_attention
from simulator.workload.zoo.sizes import Decoder, Latent, Mixture


def llama_block(b: NetworkBuilder, x: Tensor, name: str, d: Decoder, number: int) -> Tensor:
    """Return the result of block *number*, counted from 0."""
    norm: Literal["rms_norm", "layer_norm"] = "layer_norm" if d.family == "nemotron" else "rms_norm"
    y = b.layer_norm(x, f"{name}.norm1", kind=norm)
    with b.part("attention"):
        y = latent_attention(b, y, name, d) if isinstance(d, Latent) else attention(b, y, name, d, number)
    x = b.add(x, y, f"{name}.add1")
    y = b.layer_norm(x, f"{name}.norm2", kind=norm)
    if isinstance(d, Mixture) and number >= d.dense_layers:
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


def attention(b: NetworkBuilder, x: Tensor, name: str, d: Decoder, number: int) -> Tensor:
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


def _norm_heads(b: NetworkBuilder, x: Tensor, name: str, size: int) -> Tensor:
    heads = b.view(x, x.elements // size, size)
    return b.view(b.layer_norm(heads, name, kind="rms_norm"), *x.shape)


def gated(b: NetworkBuilder, x: Tensor, name: str, inner: int) -> Tensor:
    """Return the result of a gated feed-forward layer (SwiGLU) of width *inner*."""
    gate = b.elementwise(f"{name}.silu", "silu", b.linear(x, f"{name}.gate", inner, bias=False, split="columns"))
    y = b.elementwise(f"{name}.mul", "mul", gate, b.linear(x, f"{name}.up", inner, bias=False, split="columns"))
    return b.linear(y, f"{name}.down", x.shape[-1], bias=False, split="rows")


def squared(b: NetworkBuilder, x: Tensor, name: str, inner: int) -> Tensor:
    """Return the result of a feed-forward layer of width *inner* with a squared ReLU."""
    y = b.elementwise(f"{name}.relu", "relu", b.linear(x, f"{name}.up", inner, bias=False, split="columns"))
    y = b.elementwise(f"{name}.square", "pow_scalar", y)
    return b.linear(y, f"{name}.down", x.shape[-1], bias=False, split="rows")
