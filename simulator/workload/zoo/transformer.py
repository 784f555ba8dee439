"""Transformers that predict the next token: GPT-2 and 3, OPT, MPT, Llama, Nemotron-4; Megatron's GPT.

Shapes and the order of operations are those of Hugging Face's models (``gpt2``, ``opt``,
``llama``, ``nemotron``), of llm-foundry (``mpt``) and of Megatron-LM (``gpt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise
from simulator.workload.zoo.attention import AttentionKind, Mask, rotate, self_attention
from simulator.workload.zoo.builder import NetworkBuilder, Tensor

__all__ = ["Decoder", "decoder", "embed_positions", "new_gelu"]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a decoder, and in which of the ways it is written."""

    family: Literal["gpt2", "gpt", "opt", "mpt", "llama", "nemotron"]
    hidden: int
    heads: int
    layers: int
    vocabulary: int
    positions: int = 0  # rows of the table of positions; 0: as many as the sequence is long
    inner: int = 0  # width of the feed-forward layer; 0: 4 x hidden
    kv_heads: int = 0  # 0: as many as heads
    attention: AttentionKind = "eager"
    spare_positions: int = 0  # rows of that table that no position uses
    tied: int = 1  # whether the last layer has the weight of the first embedding: 1 or 0
    word_size: int = 0  # of an embedded word, where a linear layer leads to hidden; 0: hidden
    norm_last: bool = False  # each normalisation after its sum, none at the end


def decoder(b: NetworkBuilder, tokens: Tensor, d: Decoder) -> Tensor:
    """Return the logits of each token."""
    word_size = d.word_size or d.hidden
    x = b.embedding(tokens, "embed", d.vocabulary, word_size)
    if word_size != d.hidden:
        x = b.linear(x, "project_in", d.hidden, bias=False)
    rotary = d.family in ("llama", "nemotron")
    if not rotary:
        x = embed_positions(b, x, "positions", (d.positions or tokens.shape[1]) + d.spare_positions)
    if d.family in ("gpt2", "gpt"):
        x = b.dropout(x, "drop")
    block = _llama_block if rotary else _gpt_block
    for i in range(d.layers):
        x = block(b, x, f"layers.{i}", d)
    if not d.norm_last:
        x = b.layer_norm(x, "norm", kind="rms_norm" if d.family == "llama" else "layer_norm")
    if word_size != d.hidden:
        x = b.linear(x, "project_out", word_size, bias=False)
    tied = Parameter("embed.weight", d.vocabulary * word_size) if d.tied else None
    return b.linear(x, "lm_head", d.vocabulary, bias=False, tied=tied)


def embed_positions(b: NetworkBuilder, x: Tensor, name: str, positions: int) -> Tensor:
    """Return *x* with a learned row added for each position, the same for all sequences."""
    _, length, hidden = x.shape
    rows = b.embedding(b.input(length), name, positions, hidden)
    return b.add_layer(f"{name}.add", Elementwise("add", x.elements), (x, rows), x.shape)


def new_gelu(b: NetworkBuilder, x: Tensor, name: str) -> Tensor:
    """Return ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``, each operation a kernel."""
    half = b.elementwise(f"{name}.half", "mul_scalar", x)
    cube = b.elementwise(f"{name}.cube", "pow_scalar", x)
    cube = b.elementwise(f"{name}.cube_scale", "mul_scalar", cube)
    inner = b.add(x, cube, f"{name}.inner")
    inner = b.elementwise(f"{name}.inner_scale", "mul_scalar", inner)
    inner = b.elementwise(f"{name}.tanh", "tanh", inner)
    inner = b.elementwise(f"{name}.one", "add_scalar", inner)
    return b.elementwise(f"{name}.mul", "mul", half, inner)


_MASKS: dict[str, Mask] = {"gpt2": "where-causal", "opt": "bounded-causal"}


def _gpt_block(b: NetworkBuilder, x: Tensor, name: str, d: Decoder) -> Tensor:
    batch, length, hidden = x.shape
    y = x if d.norm_last else b.layer_norm(x, f"{name}.norm1")
    if d.family == "opt":
        query = b.linear(y, f"{name}.q", hidden)
        if d.attention == "eager":
            query = b.elementwise(f"{name}.q_scale", "mul_scalar", query)
        qkv = query, b.linear(y, f"{name}.k", hidden), b.linear(y, f"{name}.v", hidden)
    else:
        joint = b.linear(y, f"{name}.qkv", 3 * hidden)
        third = b.view(joint, batch, length, hidden)
        qkv = third, third, third
    mask = _MASKS.get(d.family, "add-causal")
    drops = d.family != "mpt"
    y = self_attention(b, qkv, name, heads=d.heads, kind=d.attention, mask=mask, dropout=drops)
    y = b.linear(y, f"{name}.out", hidden)
    if drops:
        y = b.dropout(y, f"{name}.out_dropout")
    x = b.add(y, x, f"{name}.add1")
    if d.norm_last:
        y = x = b.layer_norm(x, f"{name}.norm1")
    else:
        y = b.layer_norm(x, f"{name}.norm2")
    y = b.linear(y, f"{name}.up", d.inner or 4 * hidden)
    if d.family == "gpt2":
        y = new_gelu(b, y, f"{name}.gelu")
    else:
        function = "relu" if d.family == "opt" else "gelu"
        y = b.elementwise(f"{name}.{function}", function, y)
    y = b.linear(y, f"{name}.down", hidden)
    if drops:
        y = b.dropout(y, f"{name}.down_dropout")
    x = b.add(x, y, f"{name}.add2")
    return b.layer_norm(x, f"{name}.norm2") if d.norm_last else x


def _llama_block(b: NetworkBuilder, x: Tensor, name: str, d: Decoder) -> Tensor:
    hidden = x.shape[-1]
    kv_heads = d.kv_heads or d.heads
    kv_hidden = hidden // d.heads * kv_heads
    norm: Literal["rms_norm", "layer_norm"] = "rms_norm" if d.family == "llama" else "layer_norm"
    y = b.layer_norm(x, f"{name}.norm1", kind=norm)
    query = b.linear(y, f"{name}.q", hidden, bias=False)
    key = b.linear(y, f"{name}.k", kv_hidden, bias=False)
    value = b.linear(y, f"{name}.v", kv_hidden, bias=False)
    share = 1 if d.family == "llama" else 2
    qkv = rotate(b, query, f"{name}.rotate_q", share), rotate(b, key, f"{name}.rotate_k", share), value
    y = self_attention(
        b, qkv, name, heads=d.heads, kv_heads=kv_heads, kind=d.attention, mask="add-causal", dropout=False
    )
    x = b.add(x, b.linear(y, f"{name}.out", hidden, bias=False), f"{name}.add1")
    y = b.layer_norm(x, f"{name}.norm2", kind=norm)
    if d.family == "nemotron":  # squared ReLU in place of a gate
        y = b.elementwise(f"{name}.relu", "relu", b.linear(y, f"{name}.up", d.inner, bias=False))
        y = b.elementwise(f"{name}.square", "pow_scalar", y)
        return b.add(x, b.linear(y, f"{name}.down", hidden, bias=False), f"{name}.add2")
    gate = b.linear(y, f"{name}.gate", d.inner, bias=False)
    gate = b.elementwise(f"{name}.silu", "silu", gate)
    y = b.elementwise(f"{name}.mul", "mul", gate, b.linear(y, f"{name}.up", d.inner, bias=False))
    return b.add(x, b.linear(y, f"{name}.down", hidden, bias=False), f"{name}.add2")
