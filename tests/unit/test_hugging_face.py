"""Networks from a ``config.json``: the zoo's own where it has them, transformers' parameter counts, faults."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli import run
from simulator.errors import InputError
from simulator.workload.find import find_network
from simulator.workload.hugging_face import read_config

# Excerpts of published models' files, as far as they concern sizes.
_LLAMA = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16"}
_QWEN = {"hidden_act": "silu", "use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28}
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257, "activation_function": "gelu_new",
        "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "initializer_range": 0.02,
    },
    "opt-350m": {
        "model_type": "opt", "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24,
        "vocab_size": 50272, "max_position_embeddings": 2048, "ffn_dim": 4096, "word_embed_proj_dim": 512,
        "do_layer_norm_before": False, "dropout": 0.1, "attention_dropout": 0.0, "activation_function": "relu",
    },
    "bloom-560m": {
        "model_type": "bloom", "n_embed": 1024, "num_attention_heads": 16, "n_layer": 24, "vocab_size": 250880,
        "apply_residual_connection_post_layernorm": False, "offset_alibi": 100, "skip_bias_add": True,
    },
    "llama3-8b": _LLAMA | {
        "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "attention_bias": False,
        "tie_word_embeddings": False, "rope_theta": 500000.0, "rope_scaling": None, "pretraining_tp": 1,
    },
    "qwen2-7b": _QWEN | {
        "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 4096,
        "tie_word_embeddings": False, "attention_dropout": 0.0,
    },
    "qwen3-32b": _QWEN | {
        "model_type": "qwen3", "hidden_size": 5120, "num_attention_heads": 64, "num_hidden_layers": 64,
        "num_key_value_heads": 8, "intermediate_size": 25600, "vocab_size": 151936, "max_position_embeddings": 4096,
        "head_dim": 128, "attention_bias": False, "tie_word_embeddings": False,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 4096,
        "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None, "output_router_logits": False,
    },
    "qwen3-30b-a3b": _QWEN | {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 4096,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61,
        "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "max_position_embeddings": 4096, "moe_layer_freq": 1, "n_group": 8, "topk_group": 4,
    },
    "t5-3b": {
        "model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_heads": 32, "num_layers": 24,
        "vocab_size": 32128, "n_positions": 512, "relative_attention_num_buckets": 32, "dropout_rate": 0.1,
    },
    "bert-large": {
        "model_type": "bert", "architectures": ["BertForPreTraining"], "hidden_size": 1024, "num_attention_heads": 16,
        "num_hidden_layers": 24, "intermediate_size": 4096, "vocab_size": 30522, "max_position_embeddings": 512,
        "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    },
    "vit-l16": {
        "model_type": "vit", "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24,
        "intermediate_size": 4096, "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True,
        "id2label": {str(i): str(i) for i in range(1000)}, "hidden_dropout_prob": 0.0,
    },
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a config.json and returns its path."""

    def write(said: dict[str, Any]) -> str:
        (tmp_path / "config.json").write_text(json.dumps(said, indent=2), encoding="utf-8")
        return str(tmp_path / "config.json")

    return write


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_is_the_network_of_the_zoo(name: str, config) -> None:
    found = find_network(config(PUBLISHED[name]))
    assert found.notes == ()
    ours, own = found.build(1), find_network(name).build(1)
    assert ours.layers == own.layers
    assert ours.elements == own.elements


# -- transformers' parameter counts -----------------------------------------------------

# Sizes that no published model has, so that none can be mistaken for another.
_SMALL = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 1009}
_GROUPED = _SMALL | {"num_key_value_heads": 2, "intermediate_size": 208, "max_position_embeddings": 64}
COUNTED: list[dict[str, Any]] = [
    {"model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_layer": 3, "vocab_size": 1009, "n_positions": 64},
    {"model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_layer": 3, "vocab_size": 1009, "n_inner": 200,
     "tie_word_embeddings": False},
    {"model_type": "opt", **_SMALL, "ffn_dim": 208, "max_position_embeddings": 64, "word_embed_proj_dim": 96},
    {"model_type": "opt", **_SMALL, "ffn_dim": 208, "max_position_embeddings": 64, "word_embed_proj_dim": 48,
     "do_layer_norm_before": False},
    {"model_type": "mpt", "d_model": 96, "n_heads": 6, "n_layers": 3, "vocab_size": 1009, "max_seq_len": 64},
    {"model_type": "bloom", "hidden_size": 96, "n_head": 6, "n_layer": 3, "vocab_size": 1009},
    {"model_type": "llama", **_GROUPED},
    {"model_type": "llama", **_GROUPED, "head_dim": 32, "attention_bias": True, "tie_word_embeddings": True},
    {"model_type": "mistral", **_GROUPED, "head_dim": 32, "sliding_window": None},
    {"model_type": "qwen2", **_GROUPED},
    {"model_type": "qwen3", **_GROUPED},
    {"model_type": "qwen3", **_GROUPED, "head_dim": 16, "attention_bias": True},
    {"model_type": "phi3", **_GROUPED, "pad_token_id": 0},
    {"model_type": "granite", **_GROUPED, "embedding_multiplier": 12.0, "tie_word_embeddings": True},
    {"model_type": "gemma", **_GROUPED, "head_dim": 32},
    {"model_type": "smollm3", **_GROUPED, "no_rope_layers": [1, 1, 0], "pad_token_id": 0},
    {"model_type": "ernie4_5", **_GROUPED, "head_dim": 32, "use_bias": False},
    {"model_type": "hunyuan_v1_dense", **_GROUPED, "head_dim": 32},
    {"model_type": "seed_oss", **_GROUPED, "head_dim": 32, "attention_bias": True, "attention_out_bias": False},
    {"model_type": "granitemoe", **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 3},
    {"model_type": "nemotron_h", **_GROUPED, "hybrid_override_pattern": "M*-", "head_dim": 32, "mamba_num_heads": 4,
     "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "chunk_size": 16},
    {"model_type": "mixtral", **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": None},
    {"model_type": "gpt_oss", **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 3, "head_dim": 32},
    {"model_type": "qwen2_moe", **_GROUPED, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
     "shared_expert_intermediate_size": 72, "mlp_only_layers": [0]},
    {"model_type": "qwen3_moe", **_GROUPED, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
     "head_dim": 16},
    {"model_type": "deepseek_v2", **_GROUPED, "n_routed_experts": 5, "num_experts_per_tok": 3, "n_shared_experts": 2,
     "moe_intermediate_size": 40, "q_lora_rank": None, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
     "qk_rope_head_dim": 8, "v_head_dim": 12, "first_k_dense_replace": 1},
    {"model_type": "deepseek_v3", **_GROUPED, "n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 1,
     "topk_group": 1, "moe_intermediate_size": 40, "q_lora_rank": 28, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
     "qk_rope_head_dim": 8, "v_head_dim": 12, "first_k_dense_replace": 1},
    {"model_type": "t5", "d_model": 96, "d_kv": 12, "d_ff": 200, "num_heads": 6, "num_layers": 3, "vocab_size": 1009},
    {"model_type": "bert", **_SMALL, "intermediate_size": 384, "architectures": ["BertForPreTraining"]},
    {"model_type": "bert", **_SMALL, "intermediate_size": 384, "architectures": ["BertForQuestionAnswering"]},
    {"model_type": "vit", "hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3,
     "intermediate_size": 384, "image_size": 48, "patch_size": 12, "num_channels": 1},
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("said", COUNTED, ids=lambda said: str(said["model_type"]))
def test_parameters_are_those_that_transformers_counts(said: dict[str, Any], config) -> None:
    import torch
    import transformers

    path = config(said)
    read = transformers.AutoConfig.from_pretrained(str(Path(path).parent))
    heads = {"t5": "T5ForConditionalGeneration", "vit": "ViTForImageClassification"}
    named = heads.get(said["model_type"], (said.get("architectures") or [""])[0])
    with torch.device("meta"):
        model = getattr(transformers, named)(read) if named else transformers.AutoModelForCausalLM.from_config(read)
    counted = sum(p.numel() for p in model.parameters())
    size = {} if said["model_type"] == "vit" else {"sequence_length": 32}
    assert find_network(path, **size).build(2).parameter_count == counted


# Families that transformers builds, as no list of keys here says how they are built.
_BUILT: list[dict[str, Any]] = [
    {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], **_GROUPED, "head_dim": 16, "pad_token_id": 0},
    {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], **_GROUPED, "n_routed_experts": 5, "n_group": 1,
     "topk_group": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 16, "pad_token_id": 0},
    {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], **_GROUPED, "head_dim": 16},
    {"model_type": "falcon", **_SMALL, "new_decoder_architecture": True, "num_kv_heads": 2},
    {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 96, "d_kv": 12, "d_ff": 200,
     "num_heads": 6, "num_layers": 3, "vocab_size": 1009, "feed_forward_proj": "gated-gelu",
     "decoder_start_token_id": 0},
    {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], **_SMALL, "intermediate_size": 200,
     "max_position_embeddings": 66},
    {"model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 96, "num_attention_heads": 6,
     "num_hidden_layers": 3, "intermediate_size": 384, "image_size": 48, "patch_size": 12},
    {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 24,
     "text_config": {**_SMALL, "eos_token_id": 2},
     "vision_config": {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 2}},
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("said", _BUILT, ids=lambda said: str(said["model_type"]))
def test_what_is_not_built_here_is_built_by_transformers(said: dict[str, Any], config) -> None:
    import torch
    import transformers

    path = config(said)
    found = find_network(path)
    assert "simulated as transformers runs it" in found.notes[0]
    read = transformers.AutoConfig.from_pretrained(str(Path(path).parent))
    with torch.device("meta"):
        model = getattr(transformers, said.get("architectures", ["FalconForCausalLM"])[0])(read)
    assert found.build(2).parameter_count == sum(p.numel() for p in model.parameters())


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"]}, "Mamba2Mixer has kernels of its own"),
        ({"model_type": "hubert", "architectures": ["HubertModel"]}, "how long the input_values of HubertModel are"),
        ({"model_type": "chatglm"}, ":2:17: no model_type 'chatglm' is known to transformers"),
        ({"model_type": "roberta", "architectures": ["MyModel"]}, ":3:20: ['MyModel'] is no class of transformers"),
        ({"model_type": "roberta", "max_position_embeddings": 66}, "positions; a longer sequence has none"),
    ],
)
def test_what_transformers_cannot_say_is_refused(said: dict[str, Any], told: str, config) -> None:
    with pytest.raises(InputError) as error:
        find_network(config(said), sequence_length=128).build(1)
    assert told in str(error.value)


def test_without_transformers_its_families_are_refused(config, monkeypatch) -> None:
    monkeypatch.setattr("simulator.workload.find.find_spec", lambda name: None)
    for said in ({"model_type": "glm4"}, {"model_type": "t5", "feed_forward_proj": "gated-gelu"}):
        with pytest.raises(InputError, match=r"(no model_type|feed_forward_proj).*pip install torch transformers"):
            find_network(config(said))


def test_texts_alone_are_said_to_be_simulated(config, monkeypatch) -> None:
    monkeypatch.setattr("simulator.workload.find.find_spec", lambda name: name)
    found = find_network(config({"model_type": "llava", "text_config": {}, "vision_config": {}}))
    assert [note.partition(": ")[2] for note in found.notes] == [
        "no model_type 'llava' is known here; simulated as transformers runs it, operator by operator",
        "vision_config: sequences of text alone are simulated, without images and the layers that read them",
    ]
    with pytest.raises(InputError, match="is for networks of the zoo; transformers builds"):
        find_network(config({"model_type": "glm4"}), settings={"layers": 2})


# -- faults ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"model_type": "lama"}, ":2:17: no model_type 'lama' is known; did you mean 'llama'?"),
        ({"hidden_size": 8}, ":1:1: needs the key 'model_type'; "),
        ({"_class_name": "UNet2DConditionModel"}, ":2:18: UNet2DConditionModel of diffusers is not read; "),
        ({"model_type": "t5", "feed_forward_proj": "gated-gelu"}, ':3:24: feed_forward_proj: "gated-gelu" is not'),
        ({**PUBLISHED["llama3-8b"], "hidden_size": "big"}, ":6:18: hidden_size: must be a whole number, 1 to"),
        ({**PUBLISHED["llama3-8b"], "hidden_size": True}, ":6:18: hidden_size: must be a whole number, 1 to"),
        ({**PUBLISHED["llama3-8b"], "hidden_size": "4096"}, '; got "4096"'),
        ({**PUBLISHED["llama3-8b"], "mlp_bias": True}, "mlp_bias: true is not modelled; false is"),
        ({**PUBLISHED["llama3-8b"], "num_attention_heads": 24}, "num_attention_heads: 24 heads do not divide"),
        ({"model_type": "qwen3_moe", **_GROUPED, "mlp_only_layers": [2]}, "mlp_only_layers: [2] is not modelled"),
    ],
)
def test_what_is_not_modelled_is_refused_at_its_place(said: dict[str, Any], told: str, config) -> None:
    path = config(said)
    with pytest.raises(InputError) as error:
        read_config(path)
    assert [str(fault) for fault in error.value.faults if f"{path}{told}" in str(fault) or told in str(fault)]


def test_heads_of_their_own_size_need_not_divide_the_hidden_size(config) -> None:
    said = {**PUBLISHED["llama3-8b"], "num_attention_heads": 24, "head_dim": 128}
    assert find_network(config(said)).build(1).parameter_count > 7e9


def test_all_faults_are_told_at_once(config) -> None:
    said = {**PUBLISHED["llama3-8b"], "num_hidden_layers": 0, "vocab_size": -1, "mlp_bias": True}
    with pytest.raises(InputError) as error:
        read_config(config(said))
    assert len(error.value.faults) == 3


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"hiden_size": 7}, "hiden_size: is not known and has no effect; did you mean 'hidden_size'?"),
        ({"new_trick": 1}, "new_trick: is not known and has no effect"),
        ({"new_trick": False}, ""),
        (
            {"sliding_window": 1024},
            "sliding_window: fused attention reads 1,024 keys, as FlashAttention does; sdpa reads all and hides",
        ),
        ({"sliding_window": 9000}, ""),
        ({"hidden_act": "gelu"}, 'hidden_act: "gelu" is not modelled; simulated as "silu"'),
        ({"max_position_embeddings": 131072}, "max_position_embeddings: sequences of 8,192 tokens are simulated"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: is not modelled"),
    ],
)
def test_what_has_no_effect_is_remarked_on(more: dict[str, Any], told: str, config) -> None:
    notes = [str(note) for note in read_config(config({**PUBLISHED["llama3-8b"], **more}))[1]]
    assert len(notes) == bool(told)
    assert told in "".join(notes)
    assert "allowed" not in "".join(notes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "config.json:1:2: is not valid JSON"),
        ("[]", "config.json:1:1: a config.json is a mapping"),
        ('{"model_type": "gpt2",\n "n_embd": 1, "n_embd": 2}', "config.json:2:2: 'n_embd' is there twice"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_what_is_no_config_is_refused(text: str, told: str, tmp_path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"valid JSON|mapping|twice") as error:
        read_config(str(tmp_path))
    assert told in str(error.value)


def test_a_command_takes_a_file_a_folder_and_sizes_besides(config, capsys) -> None:
    path = config({**PUBLISHED["llama3-8b"], "hiden_size": 7})
    step = ["--topology", "h100-sxm5-80gb", "--batch", "1", "--seq-len", "512", "--set", "layers=2", "--json"]
    answers = []
    for workload in (path, str(Path(path).parent), "llama3-8b"):
        assert run([*step, "--workload", workload]) == 0
        out, err = capsys.readouterr()
        answers.append(json.loads(out)["step_time_s"])
        assert err.count("hiden_size: is not known") == (workload != "llama3-8b")
    assert len(set(answers)) == 1
    assert run(["--topology", "dgx-h100", "--workload", path, "--strategy", "ring", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.count("hiden_size") == 1
    assert f"{4 * 8_030_261_248}" in out


def test_a_missing_file_is_an_error_of_one_line(tmp_path, capsys) -> None:
    assert run(["--topology", "dgx-h100", "--batch", "1", "--workload", str(tmp_path / "no.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
