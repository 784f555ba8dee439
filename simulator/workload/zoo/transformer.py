"""Decoder-only transformers: GPT-like, Llama-like, with experts, hybrid (docs/decisions/zoo.md)."""

from simulator.workload import operators as ops
from simulator.workload.network import Parameter, Split
from simulator.workload.operators.moves import RowsAdded, RowsFound, RowsTaken, Weighed
from simulator.workload.zoo import Outputs
from simulator.workload.zoo.attention import Mask, embed_positions, feed_forward, rotate, self_attention
from simulator.workload.zoo.builder import SizeError, Tensor, weights
from simulator.workload.zoo.sizes import Decoder, Hybrid, LatentAttentionMixture, MixtureOfExperts


def decoder(tokens: Tensor, d: Decoder) -> Outputs:
    """Return the logits of each token, followed by the logits of each multi-token prediction block (``mtp_layers``)."""
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
            x = _hybrid_block(x, f"layers.{i}", d, d.pattern[i])
        else:
            x = _llama_block(x, f"layers.{i}", d, i) if rotary else _gpt_block(x, f"layers.{i}", d)
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
    """Return the hidden states that predict one token further ahead than *x* (arXiv 2412.19437, section 2.2)."""
    words = tokens.embedding(f"{name}.embed", d.vocabulary, d.hidden, "embed").rms_norm(f"{name}.norm_words")
    y = words.join(x.rms_norm(f"{name}.norm_before"), f"{name}.join").linear(f"{name}.project", d.hidden, bias=False)
    if isinstance(d, Hybrid):
        for place, kind in enumerate(d.mtp_pattern):
            y = _hybrid_block(y, f"{name}.{place}", d, kind)
    else:
        y = _llama_block(y, name, d, d.layers)
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
    x = _added(_gpt_attention(y, name, d), x, f"{name}.out_dropout", f"{name}.add1", d)
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


def _gpt_attention(x: Tensor, name: str, d: Decoder) -> Tensor:
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
        packed = d.documents
        y = self_attention(qkv, name, heads=d.heads, kind=d.attention, mask=mask, dropout=drops, documents=packed)
        return y.linear(f"{name}.out", hidden, bias=d.biases, split="rows")


# -- Llama-like blocks ------------------------------------------------------------------


def _latent_attention(x: Tensor, name: str, d: LatentAttentionMixture) -> Tensor:
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
    qkv = query, key, value
    y = self_attention(qkv, name, heads=d.heads, kind=d.attention, mask="add-causal", documents=d.documents)
    return y.linear(f"{name}.out", d.hidden, bias=False, split="rows")


def _experts(x: Tensor, name: str, d: MixtureOfExperts) -> Tensor:
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
            scatters = d.expert_kernels == "scatter"
            y = y.view(tokens, hidden) if scatters else y.gather(f"{name}.dispatch", (rows, hidden))
            y = _products(y, f"{name}.experts_up", (2 if d.gated else 1) * d.expert_inner, d, rows)
            half = y.view(rows, d.expert_inner)
            activate = _clamped if d.expert_bias else _swiglu if d.gated else _squared_relu
            y = _products(activate(half, f"{name}.experts_"), f"{name}.experts_down", hidden, d, rows)
            if scatters:
                y = y.layer(f"{name}.combine", Weighed(tokens, hidden, chosen), (*outer, hidden), (), shares)
            else:  # the weights are one number per row; nearly all bytes read are the results
                y = y.layer(f"{name}.weigh", ops.Elementwise("mul", rows * hidden), None, (), shares)
                y = y.layer(f"{name}.combine", ops.Reduction(tokens * hidden, chosen), (*outer, hidden))
    return y.linear(f"{name}.latent_out", size, bias=False) if d.expert_latent else y


def _looped(x: Tensor, shares: Tensor, name: str, d: MixtureOfExperts) -> Tensor:
    """Return the weighted sums of the experts as a loop over the experts computes them, *x* as its input."""
    hidden = x.shape[-1]
    tokens = x.elements // hidden
    rows = -(-tokens * d.chosen // d.experts)
    result = x
    for number in range(d.experts):
        own = f"{name}.expert{number}"
        found = shares.layer(f"{own}_found", RowsFound(tokens * d.chosen, rows), (rows,))
        y = x.layer(f"{own}_taken", RowsTaken(tokens, rows, hidden), (rows, hidden), (), found)
        if d.expert_bias:
            y = _clamped(y.linear(f"{own}_up", 2 * d.expert_inner).view(rows, d.expert_inner), f"{own}_")
        elif d.gated:
            y = _gate(y, f"{own}_", d.expert_inner)
        else:
            y = _squared_relu(y.linear(f"{own}_up", d.expert_inner, bias=False), f"{own}_")
        y = y.linear(f"{own}_down", hidden, bias=d.expert_bias)
        y = y.layer(f"{own}_weigh", ops.Elementwise("mul", rows * hidden), None, (), shares)
        first, *also = (result, y, found) if number else (y, found)
        added = RowsAdded(tokens, rows, hidden, first=not number)
        result = first.layer(f"{own}_added", added, x.shape, (), *also, in_place=bool(number))
    return result


def _swiglu(half: Tensor, name: str) -> Tensor:
    """Return ``silu(x) y``; *half* has the shape of x and y, views of one tensor."""
    return half.apply(f"{name}silu", "silu").apply(f"{name}mul", "mul", half)


def _squared_relu(whole: Tensor, name: str) -> Tensor:
    """Return the squared ReLU (Nemotron-3)."""
    return whole.apply(f"{name}relu", "relu").apply(f"{name}square", "pow_scalar")


def _clamped(half: Tensor, name: str) -> Tensor:
    """Return ``x sigmoid(1.702 x) (y + 1)`` of clamped x and y, as Hugging Face's ``gpt_oss`` computes it."""
    gate, up = half.apply(f"{name}clamp_gate", "clamp"), half.apply(f"{name}clamp_up", "clamp")
    swished = gate.apply(f"{name}alpha", "mul_scalar").apply(f"{name}sigmoid", "sigmoid")
    gate = gate.apply(f"{name}glu", "mul", swished)
    return up.apply(f"{name}one", "add_scalar").apply(f"{name}mul", "mul", gate)


def _products(x: Tensor, name: str, outputs: int, d: MixtureOfExperts, rows: int) -> Tensor:
    """Return each of *rows* of *x*, which has all or one of each token, multiplied by the matrix of its expert."""
    inputs = x.shape[-1]
    operator = ops.GroupedLinear(rows, inputs, outputs, d.expert_bias, d.experts, routing=d.routing)
    if d.expert_kernels == "scatter":
        each = rows // x.shape[0]
        operator = ops.ScatteredLinear(rows, inputs, outputs, d.expert_bias, d.experts, routing=d.routing, chosen=each)
    bias = d.experts * outputs * d.expert_bias
    return x.layer(name, operator, (rows, outputs), weights(name, weight=d.experts * inputs * outputs, bias=bias))


def _llama_block(x: Tensor, name: str, d: Decoder, number: int) -> Tensor:
    """Return the result of block *number*, counted from 0."""
    norm = Tensor.layer_norm if d.family == "nemotron" else Tensor.rms_norm
    y = norm(x, f"{name}.norm1")
    with x.net.part("attention"):
        y = _latent_attention(y, name, d) if isinstance(d, LatentAttentionMixture) else _attention(y, name, d, number)
    x = x.add(y, f"{name}.add1")
    y = norm(x, f"{name}.norm2")
    if isinstance(d, MixtureOfExperts) and number >= d.dense_layers:
        chosen = _experts(y, name, d)
        if d.shared_inner:
            shared = _gated(y, f"{name}.shared", d.shared_inner)
            if d.shared_gate:
                with x.net.part("feed-forward"):
                    weight = y.linear(f"{name}.shared_gate", 1, bias=False).apply(f"{name}.shared_sigmoid", "sigmoid")
                    weighed = ops.Elementwise("mul", shared.elements)  # the weight is one number per row, negligible
                    shared = shared.layer(f"{name}.shared_mul", weighed, None, (), weight)
            chosen = chosen.add(shared, f"{name}.shared_add")
        return x.add(chosen, f"{name}.add2")
    return x.add((_squared if d.family == "nemotron" else _gated)(y, name, d.inner), f"{name}.add2")


def _attention(x: Tensor, name: str, d: Decoder, number: int) -> Tensor:
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
    window = 0 if d.window_skip and (number + 1) % d.window_skip == 0 else d.window
    y = self_attention(
        (query, key, value),
        name,
        heads=d.heads,
        kind=d.attention,
        mask="add-causal",
        kv_heads=kv_heads,
        window=window,
        sinks=d.sinks,
        documents=d.documents,
    )
    return y.linear(f"{name}.out", d.hidden, bias=d.out_bias, split="rows")


def _gated(x: Tensor, name: str, inner: int) -> Tensor:
    """Return the result of a gated feed-forward layer (SwiGLU) of width *inner*."""
    with x.net.part("feed-forward"):
        y = _gate(x, f"{name}.", inner, "columns")
        return y.linear(f"{name}.down", x.shape[-1], bias=False, split="rows")


def _gate(x: Tensor, name: str, inner: int, split: Split | None = None) -> Tensor:
    gate = x.linear(f"{name}gate", inner, bias=False, split=split).apply(f"{name}silu", "silu")
    return gate.apply(f"{name}mul", "mul", x.linear(f"{name}up", inner, bias=False, split=split))


def _squared(x: Tensor, name: str, inner: int) -> Tensor:
    """Return the result of a feed-forward layer of width *inner* with a squared ReLU."""
    return feed_forward(x, name, inner, lambda y, name: _squared_relu(y, f"{name}."), bias=False)


def _hybrid_block(x: Tensor, name: str, d: Hybrid, kind: str) -> Tensor:
    """Return *x* plus the result of a layer of *kind*, a letter of the pattern, on the normalised *x*."""
    y = x.rms_norm(f"{name}.norm")
    if kind == "M":
        y = _mamba(y, name, d)
    elif kind == "*":
        with x.net.part("attention"):
            y = _attention(y, name, d, 0)
    elif kind == "-":
        y = _squared(y, name, d.inner)
    else:
        y = _experts(y, name, d).add(_squared(y, f"{name}.shared", d.shared_inner), f"{name}.shared_add")
    return x.add(y, f"{name}.add")


def _mamba(x: Tensor, name: str, d: Hybrid) -> Tensor:
    """Return the Mamba-2 layer; raises SizeError unless chunks divide the sequence."""
    batch, length, _ = x.shape
    if length % d.chunk:
        raise SizeError(f"chunks of {d.chunk} tokens do not divide a sequence of {length}")
    inner = d.mamba_heads * d.mamba_size
    mixed = inner + 2 * d.groups * d.state
    y = x.linear(f"{name}.in", inner + mixed + d.mamba_heads, bias=False, split="columns")
    conv = ops.Conv2d(batch, mixed, mixed, 1, length + d.kernel - 1, 1, d.kernel, groups=mixed)
    learned = weights(f"{name}.conv", weight=mixed * d.kernel, bias=mixed)
    y = y.layer(f"{name}.conv", conv, (batch, length, mixed), learned)
    learned = weights(name, dt_bias=d.mamba_heads, decay=d.mamba_heads, skip=d.mamba_heads)
    scan = ops.ChunkScan(batch, length, d.mamba_heads, d.mamba_size, d.groups, d.state, d.chunk)
    y = y.layer(f"{name}.scan", scan, (batch, length, inner), learned)
    norm = ops.LayerNorm(batch * length * d.groups, inner // d.groups, "rms_norm")
    y = y.layer(f"{name}.gated_norm", norm, None, weights(f"{name}.gated_norm", weight=inner))
    return y.linear(f"{name}.out", d.hidden, bias=False, split="rows")
