"""Decoder-only transformers, and GPT-like blocks: GPT-2 and 3, OPT, MPT, BLOOM, Megatron's GPT.

Shapes and the order of operations follow Hugging Face's models (``gpt2``, ``opt``, ``bloom``), llm-foundry (``mpt``)
and Megatron-LM (``gpt``).  Llama-like blocks are in :mod:`simulator.workload.zoo.llama`.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise
from simulator.workload.zoo import Outputs
from simulator.workload.zoo.attention import Mask, self_attention
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder
from simulator.workload.zoo.llama import hybrid_block, llama_block
from simulator.workload.zoo.sizes import Decoder, Hybrid, MixtureOfExperts


def decoder(b: NetworkBuilder, tokens: LayerOutput, d: Decoder) -> Outputs:
    """Return the logits of each token, followed by the logits of each multi-token prediction block (``mtp_layers``).

    Such a block concatenates the previous block's result with the embedding of the next token, both normalised, and
    projects them to the hidden size; it shares the embedding and the output layer (DeepSeek-V3, arXiv 2412.19437,
    section 2.2).
    """
    word_size = d.word_size or d.hidden
    x = b.embedding(tokens, "embed", d.vocabulary, word_size)
    if word_size != d.hidden:
        x = b.linear(x, "project_in", d.hidden, bias=False)
    rotary = d.family in ("llama", "nemotron", "nemotron_h")
    if d.family == "bloom":  # positions are part of the mask (ALiBi)
        x = b.layer_norm(x, "embed_norm")
    elif not rotary and not d.alibi:
        x = embed_positions(b, x, "positions", (d.positions or tokens.shape[1]) + d.spare_positions)
    if d.family in ("gpt2", "gpt") and d.dropout:
        x = b.dropout(x, "drop")
    for i in range(d.layers):
        if isinstance(d, Hybrid):
            x = hybrid_block(b, x, f"layers.{i}", d, d.pattern[i])
        else:
            x = llama_block(b, x, f"layers.{i}", d, i) if rotary else _gpt_block(b, x, f"layers.{i}", d)
    if not d.norm_last:
        x = b.layer_norm(
            x, "norm", kind="rms_norm" if d.family in ("llama", "nemotron_h") else "layer_norm", bias=d.biases
        )
    if word_size != d.hidden:
        x = b.linear(x, "project_out", word_size, bias=False)
    further = [x]
    for i in range(d.mtp_layers if isinstance(d, MixtureOfExperts) else 0):
        with b.sharing(f"mtp.{i}.", "mtp.0." if isinstance(d, Hybrid) else f"mtp.{i}."):
            further.append(_further(b, further[-1], tokens, f"mtp.{i}", d))
    embedded = Parameter("embed.weight", d.vocabulary * word_size)
    logits = [b.linear(x, "lm_head", d.vocabulary, bias=False, tied=embedded if d.tied else None, split="columns")]
    head = embedded if d.tied else Parameter("lm_head.weight", d.vocabulary * word_size)
    for i, y in enumerate(further[1:]):
        logits.append(b.linear(y, f"mtp_head{i}", d.vocabulary, bias=False, tied=head, split="columns"))
    return tuple(logits) if len(logits) > 1 else logits[0]


def _further(b: NetworkBuilder, x: LayerOutput, tokens: LayerOutput, name: str, d: Decoder) -> LayerOutput:
    """Return the hidden states that predict one token further ahead than *x*."""
    words = b.embedding(tokens, f"{name}.embed", d.vocabulary, d.hidden, "embed")
    words = b.layer_norm(words, f"{name}.norm_words", kind="rms_norm")
    before = b.layer_norm(x, f"{name}.norm_before", kind="rms_norm")
    both = b.join((words, before), f"{name}.join")
    y = b.linear(both, f"{name}.project", d.hidden, bias=False)
    if isinstance(d, Hybrid):
        for place, kind in enumerate(d.mtp_pattern):
            y = hybrid_block(b, y, f"{name}.{place}", d, kind)
    else:
        y = llama_block(b, y, name, d, d.layers)
    return b.layer_norm(y, f"{name}.norm", kind="rms_norm")


def embed_positions(b: NetworkBuilder, x: LayerOutput, name: str, positions: int) -> LayerOutput:
    """Return *x* plus a learned row for each position, the same for all sequences."""
    _, length, hidden = x.shape
    rows = b.embedding(b.input(length), name, positions, hidden)
    return b.add_layer(f"{name}.add", Elementwise("add", x.elements, summed=1), (x, rows), x.shape)


def _gelu_formula(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    """Return ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``, one kernel per operation."""
    half = b.elementwise(f"{name}.half", "mul_scalar", x)
    cube = b.elementwise(f"{name}.cube", "pow_scalar", x)
    cube = b.elementwise(f"{name}.cube_scale", "mul_scalar", cube)
    inner = b.add(x, cube, f"{name}.inner")
    inner = b.elementwise(f"{name}.inner_scale", "mul_scalar", inner)
    inner = b.elementwise(f"{name}.tanh", "tanh", inner)
    inner = b.elementwise(f"{name}.one", "add_scalar", inner)
    return b.elementwise(f"{name}.mul", "mul", half, inner)


_MASKS: dict[str, Mask] = {"gpt2": "where-causal", "opt": "bounded-causal"}


def _gpt_block(b: NetworkBuilder, x: LayerOutput, name: str, d: Decoder) -> LayerOutput:
    drops = bool(d.dropout)
    y = x if d.norm_last else b.layer_norm(x, f"{name}.norm1", bias=d.biases)
    with b.part("attention"):
        y = _attention(b, y, name, d, drops)
    x = _added(b, y, x, f"{name}.out_dropout" if drops else "", f"{name}.add1", d)
    if d.norm_last:
        y = x = b.layer_norm(x, f"{name}.norm1")
    else:
        y = b.layer_norm(x, f"{name}.norm2", bias=d.biases)
    with b.part("feed-forward"):
        y = b.linear(y, f"{name}.up", d.inner or 4 * d.hidden, bias=d.biases, split="columns")
        if d.gelu == "eager":
            y = _gelu_formula(b, y, f"{name}.gelu")
        else:
            function = "gelu" if d.gelu else "relu"
            y = b.elementwise(f"{name}.{function}", function, y)
        y = b.linear(y, f"{name}.down", d.hidden, bias=d.biases, split="rows")
    x = _added(b, y, x, f"{name}.down_dropout" if drops else "", f"{name}.add2", d)
    return b.layer_norm(x, f"{name}.norm2") if d.norm_last else x


def _added(b: NetworkBuilder, y: LayerOutput, x: LayerOutput, dropout: str, name: str, d: Decoder) -> LayerOutput:
    """Return ``x + y``, with dropout of *y* if *dropout* names that layer; in Megatron-LM both are one kernel."""
    if dropout and (d.family == "gpt" or d.attention == "fused-softmax"):  # bias_dropout_add_fused_train
        return b.dropout_add(y, x, name)
    return b.add(b.dropout(y, dropout) if dropout else y, x, name)


def _attention(b: NetworkBuilder, x: LayerOutput, name: str, d: Decoder, drops: bool) -> LayerOutput:
    batch, length, hidden = x.shape
    if d.family == "opt":
        query = b.linear(x, f"{name}.q", hidden, split="columns")
        if d.attention == "eager":
            query = b.elementwise(f"{name}.q_scale", "mul_scalar", query)
        key = b.linear(x, f"{name}.k", hidden, split="columns")
        qkv = query, key, b.linear(x, f"{name}.v", hidden, split="columns")
    else:
        joint = b.linear(x, f"{name}.qkv", 3 * hidden, bias=d.biases, split="columns")
        third = b.view(joint, batch, length, hidden)
        qkv = third, third, third
    mask = _MASKS.get(d.family, "add-causal")
    y = self_attention(b, qkv, name, heads=d.heads, kind=d.attention, mask=mask, dropout=drops)
    return b.linear(y, f"{name}.out", hidden, bias=d.biases, split="rows")
