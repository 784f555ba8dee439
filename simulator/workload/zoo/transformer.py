"""Decoder-only transformers, and GPT-like blocks: GPT-2 and 3, OPT, MPT, BLOOM, Megatron's GPT.

Shapes and the order of operations follow Hugging Face's models (``gpt2``, ``opt``, ``bloom``), llm-foundry (``mpt``)
and Megatron-LM (``gpt``).  Llama-like blocks are in :mod:`simulator.workload.zoo.llama`.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.zoo import Outputs
from simulator.workload.zoo.attention import Mask, embed_positions, feed_forward, self_attention
from simulator.workload.zoo.builder import Tensor
from simulator.workload.zoo.llama import hybrid_block, llama_block
from simulator.workload.zoo.sizes import Decoder, Hybrid, MixtureOfExperts


def decoder(tokens: Tensor, d: Decoder) -> Outputs:
    """Return the logits of each token, followed by the logits of each multi-token prediction block (``mtp_layers``).

    Such a block concatenates the previous block's result with the embedding of the next token, both normalised, and
    projects them to the hidden size; it shares the embedding and the output layer (DeepSeek-V3, arXiv 2412.19437,
    section 2.2).
    """
    word_size = d.word_size or d.hidden
    x = tokens.embedding("embed", d.vocabulary, word_size)
    if word_size != d.hidden:
        x = x.linear("project_in", d.hidden, bias=False)
    rotary = d.family in ("llama", "nemotron", "nemotron_h")
    if d.family == "bloom":  # positions are part of the mask (ALiBi)
        x = x.layer_norm("embed_norm")
    elif not rotary and not d.alibi:
        x = embed_positions(x, "positions", (d.positions or tokens.shape[1]) + d.spare_positions)
    if d.family in ("gpt2", "gpt") and d.dropout:
        x = x.dropout("drop")
    for i in range(d.layers):
        if isinstance(d, Hybrid):
            x = hybrid_block(x, f"layers.{i}", d, d.pattern[i])
        else:
            x = llama_block(x, f"layers.{i}", d, i) if rotary else _gpt_block(x, f"layers.{i}", d)
    if not d.norm_last:
        x = x.rms_norm("norm") if d.family in ("llama", "nemotron_h") else x.layer_norm("norm", bias=d.biases)
    if word_size != d.hidden:
        x = x.linear("project_out", word_size, bias=False)
    further = [x]
    for i in range(d.mtp_layers if isinstance(d, MixtureOfExperts) else 0):
        with x.net.sharing(f"mtp.{i}.", "mtp.0." if isinstance(d, Hybrid) else f"mtp.{i}."):
            further.append(_further(further[-1], tokens, f"mtp.{i}", d))
    head = Parameter("embed.weight" if d.tied else "lm_head.weight", d.vocabulary * word_size)
    names = "lm_head", *(f"mtp_head{i}" for i in range(len(further) - 1))
    logits = (
        y.linear(name, d.vocabulary, bias=False, tied=head, split="columns")
        for name, y in zip(names, further, strict=True)
    )
    return tuple(logits) if len(further) > 1 else next(logits)


def _further(x: Tensor, tokens: Tensor, name: str, d: Decoder) -> Tensor:
    """Return the hidden states that predict one token further ahead than *x*."""
    words = tokens.embedding(f"{name}.embed", d.vocabulary, d.hidden, "embed").rms_norm(f"{name}.norm_words")
    y = words.join(x.rms_norm(f"{name}.norm_before"), f"{name}.join").linear(f"{name}.project", d.hidden, bias=False)
    if isinstance(d, Hybrid):
        for place, kind in enumerate(d.mtp_pattern):
            y = hybrid_block(y, f"{name}.{place}", d, kind)
    else:
        y = llama_block(y, name, d, d.layers)
    return y.rms_norm(f"{name}.norm")


def _gelu_formula(x: Tensor, block: str) -> Tensor:
    """Return ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``, one kernel per operation."""
    name = f"{block}.gelu"
    half = x.apply(f"{name}.half", "mul_scalar")
    cube = x.apply(f"{name}.cube", "pow_scalar").apply(f"{name}.cube_scale", "mul_scalar")
    inner = x.add(cube, f"{name}.inner").apply(f"{name}.inner_scale", "mul_scalar")
    inner = inner.apply(f"{name}.tanh", "tanh").apply(f"{name}.one", "add_scalar")
    return half.apply(f"{name}.mul", "mul", inner)


_MASKS: dict[str, Mask] = {"gpt2": "where-causal", "opt": "bounded-causal"}


def _gpt_block(x: Tensor, name: str, d: Decoder) -> Tensor:
    y = x if d.norm_last else x.layer_norm(f"{name}.norm1", bias=d.biases)
    x = _added(_attention(y, name, d), x, f"{name}.out_dropout", f"{name}.add1", d)
    if d.norm_last:
        y = x = x.layer_norm(f"{name}.norm1")
    else:
        y = x.layer_norm(f"{name}.norm2", bias=d.biases)
    function = _gelu_formula if d.gelu == "eager" else "gelu" if d.gelu else "relu"
    y = feed_forward(y, name, d.inner or 4 * d.hidden, function, bias=d.biases)
    x = _added(y, x, f"{name}.down_dropout", f"{name}.add2", d)
    return x.layer_norm(f"{name}.norm2") if d.norm_last else x


def _added(y: Tensor, x: Tensor, dropout: str, name: str, d: Decoder) -> Tensor:
    """Return ``x + y``, with the layer *dropout* of y, if there is dropout; in Megatron-LM both are one kernel."""
    if not d.dropout:
        return y.add(x, name)
    if d.family == "gpt" or d.attention == "fused-softmax":  # bias_dropout_add_fused_train
        return y.dropout_add(x, name)
    return y.dropout(dropout).add(x, name)


def _attention(x: Tensor, name: str, d: Decoder) -> Tensor:
    batch, length, hidden = x.shape
    with x.net.part("attention"):
        if d.family == "opt":
            query = x.linear(f"{name}.q", hidden, split="columns")
            if d.attention == "eager":
                query = query.apply(f"{name}.q_scale", "mul_scalar")
            key = x.linear(f"{name}.k", hidden, split="columns")
            qkv = query, key, x.linear(f"{name}.v", hidden, split="columns")
        else:
            joint = x.linear(f"{name}.qkv", 3 * hidden, bias=d.biases, split="columns")
            third = joint.view(batch, length, hidden)
            qkv = third, third, third
        mask, drops = _MASKS.get(d.family, "add-causal"), bool(d.dropout)
        y = self_attention(qkv, name, heads=d.heads, kind=d.attention, mask=mask, dropout=drops)
        return y.linear(f"{name}.out", hidden, bias=d.biases, split="rows")
