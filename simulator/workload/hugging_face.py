"""Networks from a Hugging Face ``config.json``: :func:`read_config`.

A file is read as transformers reads it: ``model_type`` selects the family, and the other keys give its sizes.  A
missing key has the default of the family's configuration class (``GPT2Config``, ``LlamaConfig``, ...).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass
from simulator.spelling import mention
from simulator.topology.yaml_source import read_json
from simulator.workload.hugging_face_config import Config
from simulator.workload.zoo import ZooEntry
from simulator.workload.zoo.bert import Encoder, encoder
from simulator.workload.zoo.language import tokens_entry
from simulator.workload.zoo.sizes import Decoder, LatentAttentionMixture, MixtureOfExperts
from simulator.workload.zoo.t5 import T5, t5
from simulator.workload.zoo.transformer import decoder
from simulator.workload.zoo.vit import vit_entry


def _drops(c: Config, *names: str, default: float = 0.1) -> int:
    """Return 1 if any rate of *names* is above 0, so dropout is simulated; adds a note if the rates are mixed."""
    rates = {name: c.value(name, default) for name in names}
    if len({bool(rate) for rate in rates.values()}) > 1:
        name = next(name for name, rate in rates.items() if not rate)
        c.note(name, "0 is not modelled beside others that are not; simulated with dropout")
    return int(any(rates.values()))


def _gpt2(c: Config) -> ZooEntry:
    positions = c.size("n_positions", "n_ctx", default=1024)
    one_kernel = "gelu_pytorch_tanh", "gelu"
    sizes = Decoder(
        "gpt2",
        **c.sizes(hidden=("n_embd", 768), heads=("n_head", 12), layers=("n_layer", 12), inner=("n_inner", 0)),
        **c.sizes(vocabulary=("vocab_size", 50257)),
        positions=positions,
        tied=int(c.flag("tie_word_embeddings", True)),
        dropout=_drops(c, "resid_pdrop", "embd_pdrop"),
        gelu="fused" if c.value("activation_function") in one_kernel else "eager",
    )
    c.ignored("attn_pdrop")  # dropout of attention weights, which is free in fused attention
    c.usual(activation_function=("gelu_new", *one_kernel))
    c.only(add_cross_attention=False, scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False)
    return tokens_entry(decoder, c.tokens(positions, "n_positions"), sizes)


def _opt(c: Config) -> ZooEntry:
    hidden = c.size("hidden_size", default=768)
    positions = c.size("max_position_embeddings", default=2048)
    words = c.size("word_embed_proj_dim", default=hidden)
    first = c.flag("do_layer_norm_before", True)
    sizes = Decoder(
        "opt",
        hidden,
        **c.sizes(heads=("num_attention_heads", 12), layers=("num_hidden_layers", 12)),
        **c.sizes(vocabulary=("vocab_size", 50272), inner=("ffn_dim", 3072)),
        positions=positions,
        spare_positions=2,
        word_size=words if words != hidden else 0,
        norm_last=not first,
        tied=int(c.flag("tie_word_embeddings", True)),
        dropout=_drops(c, "dropout"),
    )
    c.ignored("attention_dropout")
    c.usual(activation_function="relu")
    c.only(enable_bias=True, layer_norm_elementwise_affine=True)
    if first:
        c.only(_remove_final_layer_norm=False)
    return tokens_entry(decoder, c.tokens(positions, "max_position_embeddings"), sizes)


def _mpt(c: Config) -> ZooEntry:
    length = c.size("max_seq_len", default=2048)
    attention = c.value("attn_config", {})
    if not isinstance(attention, dict):
        c.refuse("attn_config", f"must be a mapping; got {one_line(attention, 40)}")
        attention = {}
    if not attention.get("alibi", True):
        c.refuse("attn_config", "alibi: false is not modelled by transformers either; true is")
    for name in ("qk_ln", "clip_qkv", "prefix_lm"):
        if attention.get(name):
            c.note("attn_config", f"{name} is not modelled")
    hidden = c.size("d_model", default=2048)
    sizes = Decoder(
        "mpt",
        hidden,
        **c.sizes(heads=("n_heads", 16), layers=("n_layers", 24), vocabulary=("vocab_size", 50368)),
        inner=c.size("expansion_ratio", default=4) * hidden,
        attention="fused",
        dropout=0,
        tied=int(c.flag("tie_word_embeddings", True)),
        biases=not c.flag("no_bias", True),
        alibi=True,
        gelu="fused",
    )
    c.only(no_bias=True, norm_type="low_precision_layernorm")
    c.ignored("learned_pos_emb", "resid_pdrop", "emb_pdrop", "embedding_fraction", "fc_type", "ffn_config")
    return tokens_entry(decoder, c.tokens(length, "max_seq_len"), sizes)


def _bloom(c: Config) -> ZooEntry:
    sizes = Decoder(
        "bloom",
        **c.sizes(hidden=("hidden_size", "n_embed", 64), heads=("n_head", "num_attention_heads", 8)),
        **c.sizes(layers=("n_layer", "num_hidden_layers", 2), vocabulary=("vocab_size", 250880)),
        dropout=_drops(c, "hidden_dropout", "attention_dropout", default=0.0),
        tied=int(c.flag("tie_word_embeddings", True)),
        gelu="fused",
    )
    c.usual(apply_residual_connection_post_layernorm=False)
    return tokens_entry(decoder, 2048, sizes)


def _llama_sizes(c: Config, *, head_size: int | None = None, kv_heads: int | None = None) -> dict[str, Any]:
    """Return the sizes common to Llama-like models; *head_size* and *kv_heads* are defaults for missing keys."""
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    own = hidden // heads
    size = c.size("head_dim", default=head_size or own)
    if hidden % heads and head_size is None and c.value("head_dim") is None:
        told = f"{heads} heads do not divide a hidden size of {hidden}; head_dim says their size"
        c.refuse("num_attention_heads", told)
    c.usual(hidden_act=("silu", "swish"), attention_dropout=0.0, partial_rotary_factor=1.0, rotary_pct=1.0)
    c.only(mlp_bias=False)
    return {
        "family": "llama",
        "hidden": hidden,
        "heads": heads,
        **c.sizes(layers=("num_hidden_layers",), vocabulary=("vocab_size",)),
        "kv_heads": c.size("num_key_value_heads", default=kv_heads or heads),
        "head_size": 0 if size == own and not hidden % heads else size,
        "attention": "fused",
        "tied": int(c.flag("tie_word_embeddings", False)),
    }


def _of_llama(c: Config, sizes: Decoder) -> ZooEntry:
    length = c.tokens(c.size("max_position_embeddings", default=2048), "max_position_embeddings")
    c.window(length)
    return tokens_entry(decoder, length, sizes)


def _biased(c: Config, sizes: dict[str, Any], **odd: Any) -> ZooEntry:
    """Return a Llama-like model with *sizes*, whose attention may have biases."""
    bias = c.flag("attention_bias", False)
    inner = c.size("intermediate_size")
    return _of_llama(c, Decoder(**sizes, inner=inner, qkv_bias=bias, out_bias=bias, **odd))


def _mistral(c: Config) -> ZooEntry:
    c.only(attention_bias=False)
    return _biased(c, _llama_sizes(c, kv_heads=8))


def _mixtral(c: Config) -> ZooEntry:
    experts = _experts(c, "num_local_experts", 8, 2, None, "intermediate_size")
    return _of_llama(c, MixtureOfExperts(**_llama_sizes(c, kv_heads=8), **experts))


def _experts(c: Config, name: str, experts: int, chosen: int, inner: int | None, key: str) -> dict[str, Any]:
    """Return the sizes of experts: their number under *name*, their width under *key*; numbers are defaults."""
    return {
        "experts": c.size(name, default=experts),
        "chosen": c.size("num_experts_per_tok", default=chosen),
        "expert_inner": c.size(key, default=inner),
    }


def _gpt_oss(c: Config) -> ZooEntry:
    layers = c.size("num_hidden_layers")
    kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    if c.value("layer_types", kinds) != kinds:
        c.refuse("layer_types", "must alternate, sliding_attention first; other orders are not modelled")
    c.ignored("swiglu_alpha", "swiglu_limit", "experts_per_token")
    bias = c.flag("attention_bias", True)
    sizes = MixtureOfExperts(
        **_llama_sizes(c, head_size=64, kv_heads=8),
        **_experts(c, "num_local_experts", 128, 4, 2880, "intermediate_size"),
        qkv_bias=bias,
        out_bias=bias,
        window=c.size("sliding_window", default=128),
        sinks=True,
        expert_bias=True,
    )
    length = c.tokens(c.size("max_position_embeddings", default=131072), "max_position_embeddings")
    return tokens_entry(decoder, length, sizes)


def _dense_layers(c: Config) -> int:
    """Return the number of leading blocks without experts; records a fault if other blocks have none."""
    c.only(decoder_sparse_step=1)
    dense = c.value("mlp_only_layers", [])
    if dense != list(range(len(dense) if isinstance(dense, list) else 0)):
        c.refuse("mlp_only_layers", f"{one_line(dense, 40)} is not modelled; the first layers (0, 1, ...) or none are")
        return 0
    return len(dense)


def _qwen2_moe(c: Config) -> ZooEntry:
    sizes = MixtureOfExperts(
        **_llama_sizes(c),
        inner=c.size("intermediate_size", default=5632),
        qkv_bias=c.flag("qkv_bias", True),
        **_experts(c, "num_experts", 60, 4, 1408, "moe_intermediate_size"),
        shared_inner=c.size("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
        dense_layers=_dense_layers(c),
    )
    return _of_llama(c, sizes)


def _qwen3_moe(c: Config) -> ZooEntry:
    bias = c.flag("attention_bias", False)
    sizes = MixtureOfExperts(
        **_llama_sizes(c),
        inner=c.size("intermediate_size", default=6144),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        **_experts(c, "num_experts", 128, 8, 768, "moe_intermediate_size"),
        dense_layers=_dense_layers(c),
    )
    return _of_llama(c, sizes)


def _deepseek(c: Config) -> ZooEntry:
    of_v3 = c.value("model_type") != "deepseek_v2"
    c.ignored("num_key_value_heads", "head_dim", "qk_head_dim")  # latent attention has as many as query heads
    c.only(attention_bias=False, moe_layer_freq=1, mlp_bias=False)
    c.usual(hidden_act=("silu", "swish"), attention_dropout=0.0)
    if c.value("num_nextn_predict_layers"):
        left_out = "layers that predict a second token are left out, as transformers does"
        c.note("num_nextn_predict_layers", f"{left_out}; {mention('sizes', 'mtp_layers=1')} adds one")
    expert_inner = c.size("moe_intermediate_size", default=2048 if of_v3 else 1407)
    sizes = LatentAttentionMixture(
        "llama",
        **c.sizes(hidden=("hidden_size",), heads=("num_attention_heads",), layers=("num_hidden_layers",)),
        **c.sizes(vocabulary=("vocab_size",), inner=("intermediate_size",)),
        attention="fused",
        tied=int(c.flag("tie_word_embeddings", False)),
        **c.sizes(experts=("n_routed_experts", "num_local_experts", 256 if of_v3 else 64)),
        **c.sizes(chosen=("num_experts_per_tok", 8 if of_v3 else 6), query_rank=("q_lora_rank", 0)),
        expert_inner=expert_inner,
        shared_inner=expert_inner * c.size("n_shared_experts", default=1 if of_v3 else 2, least=0),
        dense_layers=c.size("first_k_dense_replace", default=3 if of_v3 else 0, least=0),
        **c.sizes(kv_rank=("kv_lora_rank", 512), plain_size=("qk_nope_head_dim", 128)),
        **c.sizes(rotary_size=("qk_rope_head_dim", 64), value_size=("v_head_dim", 128)),
    )
    return _of_llama(c, sizes)


def _t5(c: Config) -> ZooEntry:
    sizes = T5(
        **c.sizes(hidden=("d_model", 512), heads=("num_heads", 8), layers=("num_layers", 6), inner=("d_ff", 2048)),
        **c.sizes(head_size=("d_kv", 64), vocabulary=("vocab_size", 32128)),
    )
    c.only(num_decoder_layers=sizes.layers, relative_attention_num_buckets=32, feed_forward_proj="relu")
    c.only(tie_word_embeddings=True)
    if not c.value("dropout_rate", 0.1):
        c.note("dropout_rate", "0 is not modelled; simulated with dropout")
    return tokens_entry(t5, c.size("n_positions", default=512), sizes)


_BERT_HEADS = {
    "BertForPreTraining": "pretraining",
    "BertForQuestionAnswering": "question-answering",
    "BertForSequenceClassification": "classification",
    "BertModel": "none",
}


def _bert(c: Config) -> ZooEntry:
    hidden = c.size("hidden_size", default=768)
    positions = c.size("max_position_embeddings", default=512)
    listed = c.value("architectures", [])
    named = str(listed[0]) if isinstance(listed, list) and listed else ""
    head = _BERT_HEADS.get(named, "auto")
    if head == "auto" and listed:
        shown = one_line(named or listed, 40)
        c.note("architectures", f"{shown} is simulated with the head of BertForPreTraining")
    sizes = Encoder(
        hidden,
        **c.sizes(heads=("num_attention_heads", 12), layers=("num_hidden_layers", 12)),
        **c.sizes(vocabulary=("vocab_size", 30522)),
        positions=positions,
        head=head,  # type: ignore[arg-type]
    )
    c.only(3072, intermediate_size=4 * hidden)
    c.only(type_vocab_size=2, position_embedding_type="absolute", tie_word_embeddings=True, is_decoder=False)
    c.usual(hidden_act="gelu")
    if not c.value("hidden_dropout_prob", 0.1):
        c.note("hidden_dropout_prob", "0 is not modelled; simulated with dropout")
    c.ignored("attention_probs_dropout_prob")
    return tokens_entry(encoder, positions, sizes)


def _vit(c: Config) -> ZooEntry:
    hidden = c.size("hidden_size", default=768)
    sizes = (
        c.size("patch_size", default=16),
        hidden,
        c.size("num_attention_heads", default=12),
        c.size("num_hidden_layers", default=12),
    )
    c.only(3072, intermediate_size=4 * hidden)
    c.only(qkv_bias=True)
    c.usual(hidden_act="gelu")
    c.ignored("attention_probs_dropout_prob")
    dropout = _drops(c, "hidden_dropout_prob", default=0.0)
    labels = c.value("id2label", {"0": "", "1": ""})
    classes = c.size("num_labels", default=len(labels) if isinstance(labels, dict) and labels else 2)
    image = c.size("image_size", default=224)
    return vit_entry(sizes, image, c.size("num_channels", default=3), classes, dropout)


FAMILIES: dict[str, Callable[[Config], ZooEntry]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "mpt": _mpt,
    "bloom": _bloom,
    "llama": lambda c: _biased(c, _llama_sizes(c)),
    "mistral": _mistral,
    "qwen2": lambda c: _of_llama(c, Decoder(**_llama_sizes(c), inner=c.size("intermediate_size"), qkv_bias=True)),
    "qwen3": lambda c: _biased(c, _llama_sizes(c, head_size=128), qk_norm=True),
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "t5": _t5,
    "bert": _bert,
    "vit": _vit,
}


@dataclass(frozen=True, slots=True)
class ConfiguredNetwork:
    """The network of a file, and a note on each of its settings that is not simulated."""

    entry: ZooEntry
    notes: tuple[Fault, ...]


def read_config(text: str, *, sequence_length: int | None = None) -> ConfiguredNetwork:
    """Return the network of *text*, a file or a folder with a ``config.json``.

    *sequence_length*: tokens in a sequence; by default the model's own maximum, up to 8,192.

    Raises InputError with every fault of the file and its position: a missing file, invalid JSON, an unknown model
    type, a missing key, a setting that is not modelled.
    """
    path = Path(text)
    source = read_json(path / "config.json" if os.path.isdir(path) else path, "config.json")
    kind = source.data.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        key = ("model_type",) if "model_type" in source.data else ()
        said = f"no model_type '{one_line(kind, 40)}' is known" if key else "needs the key 'model_type'"
        raise InputError(source.fault(key, f"{said}; {nearest(str(kind), FAMILIES, listed=20)}"))
    config = Config(source, sequence_length)
    entry = FAMILIES[kind](config)
    config.finish()
    return ConfiguredNetwork(entry, tuple(config.notes))
