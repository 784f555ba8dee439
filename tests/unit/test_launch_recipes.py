"""Files of settings are read as the arguments that say the same."""

from __future__ import annotations

import pytest

from simulator.errors import InputError
from simulator.launch.launch import LaunchLine, read_launch
from simulator.workload.zoo.registry import entry_of

_SIZES = (
    "--num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --seq-length 4096 --padded-vocab-size 128256 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 "
    "--untie-embeddings-and-output-weights --bf16 --micro-batch-size 2 "
)
_LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: sft
finetuning_type: lora
lora_rank: 8
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
_AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3.1-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
sequence_len: 4096
sample_packing: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_32bit
bf16: auto
gradient_checkpointing: true
"""
_NANOTRON = """\
general: {project: p, run: r}
model:
  dtype: bfloat16
  model_config: {hidden_size: 2048, intermediate_size: 8192, num_attention_heads: 32, num_hidden_layers: 16,
                 num_key_value_heads: 8, vocab_size: 128256, tie_word_embeddings: false}
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true}
parallelism:
  dp: 2
  tp: 2
  pp: 2
  tp_mode: REDUCE_SCATTER
  pp_engine: 1f1b
tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 4, sequence_length: 4096}
"""
_NEMO = """\
trainer: {devices: 8, num_nodes: 2, precision: bf16, logger: false}
model:
  micro_batch_size: 2
  global_batch_size: 64
  tensor_model_parallel_size: 2
  sequence_parallel: true
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 16
  hidden_size: 2048
  ffn_hidden_size: 8192
  num_attention_heads: 32
  num_query_groups: 8
  hidden_dropout: 0.0
  attention_dropout: 0.0
  kv_channels: null
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  vocab_size: 128256
  make_vocab_size_divisible_by: 1
  transformer_engine: true
  fp8: false
  fp8_hybrid: true
  optim: {name: distributed_fused_adam, overlap_grad_sync: true, overlap_param_sync: true, lr: 1e-4}
"""


def _line(line: str, text: str) -> LaunchLine:
    return read_launch(f"cat > c.yaml <<'EOF'\n{text}EOF\n{line}", own=8)


def _same(found: LaunchLine, line: str) -> bool:
    wanted = read_launch(line, own=8)
    return (found.options, found.sizes) == (wanted.options, wanted.sizes)


def test_llama_factory_reads_the_trainers_arguments() -> None:
    found = _line("torchrun --nproc-per-node 8 src/train.py c.yaml", _LLAMA_FACTORY)
    words = " ".join(f"--{row.replace(': ', ' ')}" for row in _LLAMA_FACTORY.splitlines())
    assert _same(found, f"torchrun --nproc-per-node 8 src/train.py {words}")
    assert (found.options["global_batch"], found.sizes["lora"], found.options["recompute"]) == ("64", 8, True)


def test_axolotl_has_names_of_its_own() -> None:
    found = _line("accelerate launch --num_processes 8 -m axolotl.cli.train c.yaml", _AXOLOTL)
    assert _same(
        found,
        "accelerate launch --num_processes 8 train.py --model_name_or_path Meta-Llama-3.1-8B --load_in_4bit "
        "--bnb_4bit_use_double_quant --use_lora --lora_r 32 --cutoff_len 4096 --per_device_train_batch_size 2 "
        "--gradient_accumulation_steps 4 --optim paged_adamw_32bit --bf16 --gradient_checkpointing",
    )
    assert not [note for note in found.notes if "not known" in note]
    assert found.sizes["lora_weights"] == "nf4-nested"


def test_parameters_of_axolotl_have_the_format_of_layers_unless_something_else_keeps_them() -> None:
    whole = "base_model: gpt2\nmicro_batch_size: 1\nsequence_len: 64\nbf16: true\n"
    line = "accelerate launch --num_processes 2 -m axolotl.cli.train c.yaml"
    assert _line(line, whole).options["precision"] == "bf16"
    assert _line(line, f"{whole}fsdp_config: {{offload_params: true}}\n").options["precision"] == "amp-bf16"
    assert _line(line, f"{whole}fsdp_config: {{offload_params: true}}\n").options["offload"] == "optimizer+parameters"


def test_the_command_line_goes_before_the_file() -> None:
    line = "accelerate launch --num_processes 8 -m axolotl.cli.train c.yaml --micro-batch-size 4"
    assert _line(line, _AXOLOTL).options["micro_batch"] == "4"
    line = "python pretrain.py --config-path . --config-name c model.global_batch_size=128"
    assert _line(line, _NEMO).options["global_batch"] == "128"


def test_nanotron_says_what_a_megatron_line_says() -> None:
    found = _line("torchrun --nproc-per-node 8 run_train.py --config-file c.yaml", _NANOTRON)
    assert _same(
        found,
        f"torchrun --nproc-per-node 8 pretrain_gpt.py {_SIZES} --global-batch-size 16 --sequence-parallel "
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer "
        "--overlap-grad-reduce --attention-backend flash",
    )
    assert not [note for note in found.notes if "not known" in note]
    all_first = _NANOTRON.replace("1f1b", "afab")
    found = _line("torchrun --nproc-per-node 8 run_train.py --config-file c.yaml", all_first)
    assert "schedule=gpipe" in str(found.options["parallel"])


def test_nemo_says_what_a_megatron_line_says() -> None:
    found = _line("python megatron_gpt_pretraining.py --config-path=. --config-name=c.yaml", _NEMO)
    assert _same(
        found,
        f"torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py {_SIZES} --global-batch-size 64 --sequence-parallel "
        "--tensor-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
        "--transformer-impl transformer_engine",
    )
    assert not [note for note in found.notes if "not known" in note]


def test_settings_of_a_bridge_recipe_are_read_without_a_file() -> None:
    line = "torchrun --nnodes 2 --nproc-per-node 8 pretrain_llama3_8b.py model.tensor_model_parallel_size=2 "
    found = read_launch(f"{line} train.micro_batch_size=1 train.global_batch_size=128 mixed_precision=bf16_mixed")
    assert found.options["parallel"] == "tp=2,dp=8"
    assert (found.options["global_batch"], found.options["precision"]) == ("128", "master-bf16")


def _refused(line: str, text: str) -> str:
    with pytest.raises(InputError) as error:
        _line(line, text)
    return str(error.value)


def test_recipes_send_tokens_to_experts_unless_a_setting_says_otherwise() -> None:
    line = "torchrun --nproc-per-node 4 pretrain_qwen3.py model.num_layers=4 model.hidden_size=64 model.seq_length=64 "
    line += "model.num_attention_heads=2 model.gated_linear_unit=true model.normalization=RMSNorm model.vocab_size=99 "
    line += "model.num_moe_experts=4 model.expert_model_parallel_size=2 train.micro_batch_size=1 "
    rings = "model.context_parallel_size=2 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=[2,1]"
    found = [read_launch(line + more) for more in ("", f"model.moe_token_dispatcher_type=allgather {rings}")]
    sent, gathered = (set(str(each.options["parallel"]).split(",")) for each in found)
    assert {"ep=2", "ep_comm=all_gather", "cp_a2a=2"} & sent == {"ep=2"}
    assert {"ep=2", "ep_comm=all_gather", "cp_a2a=2"} <= gathered


def test_faults_have_their_place_in_the_file() -> None:
    line = "accelerate launch --num_processes 8 -m axolotl.cli.train c.yaml"
    assert _refused(line, _AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: two")).startswith("c.yaml:10:19")
    assert "adapters other than LoRA's" in _refused(line, _AXOLOTL.replace("qlora", "llama-adapter"))
    assert "is for 8 ranks, and the launcher starts 4" in _refused(
        "torchrun --nproc-per-node 4 run_train.py --config-file c.yaml", _NANOTRON
    )
    assert "a configuration is a mapping" in _refused(line, "- base_model\n")


def test_keys_that_nobody_knows_are_told() -> None:
    found = _line("torchrun --nproc-per-node 8 run_train.py --config-file c.yaml", f"{_NANOTRON}extra: {{a: 1}}\n")
    assert [note for note in found.notes if "not known, and without effect: extra.a" in note]


_OF_BRIDGE = "torchrun --nnodes 2 --nproc-per-node 8 pretrain.py --config-file c.yaml"
_BRIDGE = "train: {micro_batch_size: 1, global_batch_size: 128}\nmodel: {tensor_model_parallel_size: 2}\n"


def test_formats_of_bridge_are_read_or_refused() -> None:
    fp8 = _line(_OF_BRIDGE, f"{_BRIDGE}mixed_precision: bf16_with_mxfp8_mixed\n")
    assert fp8.options["precision"] == "master-fp8"
    parts = _line(_OF_BRIDGE, f"{_BRIDGE}mixed_precision: {{bf16: true, fp8: hybrid}}\n")
    assert parts.options["precision"] == "master-fp8"
    told = _refused(_OF_BRIDGE, f"{_BRIDGE}mixed_precision: bf16_with_fp9_mixed\n")
    assert told.startswith("c.yaml:3:18: mixed_precision: 'bf16_with_fp9_mixed' is not modelled; did you mean ")


def test_values_of_the_line_mean_what_those_of_a_file_mean() -> None:
    line = "python megatron_gpt_pretraining.py --config-path=. --config-name=c.yaml trainer.precision=16"
    assert _line(line, _NEMO).options["precision"] == "master-fp16"
    assert _line(line.replace("=16", "='16-mixed'"), _NEMO).options["precision"] == "master-fp16"


def test_references_lead_to_others() -> None:
    text = _NEMO.replace("encoder_seq_length: 4096", "encoder_seq_length: ${.a}\n  a: ${model.b}\n  b: 2048")
    assert _line("python pretrain.py --config-name c", text).options["seq_len"] == "2048"


def test_a_file_that_is_not_here_is_told() -> None:
    line = "torchrun --nproc-per-node 8 pretrain.py --config-file none.yaml train.micro_batch_size=1"
    found = read_launch(f"{line} train.global_batch_size=8 mixed_precision=bf16_mixed")
    assert "not read, and without effect: none.yaml" in found.notes


def test_other_programs_have_trainers_and_models_too() -> None:
    found = read_launch("python train.py trainer=ddp model=resnet50 trainer.devices=4", own=8)
    assert "precision" not in found.options


def test_nanotron_runs_all_forward_passes_first_unless_told_and_recomputes_layers() -> None:
    unsaid = _NANOTRON.replace("  pp_engine: 1f1b\n", "  recompute_layer: true\n")
    found = _line("torchrun --nproc-per-node 8 run_train.py --config-file c.yaml", unsaid)
    assert "schedule=gpipe" in str(found.options["parallel"])
    assert found.options["recompute"] is True


def test_settings_of_deepspeed_within_the_file_are_refused() -> None:
    text = f"{_AXOLOTL}deepspeed: {{zero_optimization: {{stage: 3}}}}\n"
    told = _refused("accelerate launch --num_processes 8 -m axolotl.cli.train c.yaml", text)
    assert "deepspeed: is read from a file; write these settings to one" in told


# -- adapters, methods and defaults of programs on the Trainer ---------------------------

_TRL = "accelerate launch --num_processes 8 sft.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 "


@pytest.mark.parametrize(
    ("said", "layers", "told"),
    [
        ("--lora_target_modules all-linear", "all", ""),
        ("--lora_target_modules q_proj k_proj v_proj o_proj", None, ""),
        ("--lora_target_modules q_proj k_proj v_proj o_proj gate_proj up_proj down_proj", "all", ""),
        ("--lora_target_modules q_proj v_proj", None, "q_proj v_proj: is not modelled; all products of attention"),
        (
            "--lora_target_modules query_key_value dense dense_h_to_4h",
            "all",
            "all products of attention and feed-forward",
        ),
        ("", None, "--lora-target-modules is not given; all products of attention"),
    ],
)
def test_adapters_are_where_the_line_has_them(said: str, layers: str | None, told: str) -> None:
    found = read_launch(f"{_TRL} --use_peft --lora_r 16 {said}")
    assert found.sizes.get("lora_layers") == layers
    notes = [note for note in found.notes if "lora" in note]
    assert len(notes) == bool(told)
    assert told in "".join(notes)


def test_files_adapt_all_layers_where_their_programs_do() -> None:
    assert _line("torchrun --nproc-per-node 8 train.py c.yaml", _LLAMA_FACTORY).sizes["lora_layers"] == "all"
    linear = f"{_AXOLOTL}lora_target_linear: true\n"
    assert (
        _line("accelerate launch --num_processes 8 -m axolotl.cli.train c.yaml", linear).sizes["lora_layers"] == "all"
    )
    listed = f"{_AXOLOTL}lora_target_modules: [q_proj, k_proj, v_proj, o_proj]\n"
    assert "lora_layers" not in _line("accelerate launch --num_processes 8 -m axolotl.cli.train c.yaml", listed).sizes


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("llamafactory-cli train c.yaml", _LLAMA_FACTORY.replace("stage: sft", "stage: dpo")),
        ("axolotl train c.yaml", f"{_AXOLOTL}rl: grpo\n"),
        ("axolotl train c.yaml", f"{_AXOLOTL}reward_model: true\n"),
        (_TRL.replace("sft.py", "dpo.py"), ""),
        ("trl grpo --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1", ""),
    ],
)
def test_methods_other_than_fine_tuning_are_refused(line: str, text: str) -> None:
    assert "compares answers with a second network's, or generates them" in _refused(line, text)


def test_training_of_some_layers_is_refused() -> None:
    frozen = _LLAMA_FACTORY.replace("finetuning_type: lora", "finetuning_type: freeze")
    assert "trains some layers" in _refused("llamafactory-cli train c.yaml", frozen)
    assert "expert-parallel-size" in _refused("axolotl train c.yaml", f"{_AXOLOTL}expert_parallel_size: 4\n")


def test_trl_has_defaults_of_its_own() -> None:
    options = read_launch("trl sft --model_name_or_path Qwen/Qwen3-8B", 8).options
    assert [options[name] for name in ("recompute", "precision", "seq_len", "micro_batch")] == [
        True,
        "amp-bf16",
        "1024",
        "8",
    ]
    options = read_launch("trl sft --model_name_or_path Qwen/Qwen3-8B --gradient_checkpointing False --fp16", 8).options
    assert "recompute" not in options
    assert options["precision"] == "amp-fp16"


def test_accelerate_starts_one_process_without_distribution(tmp_path) -> None:
    (tmp_path / "one.yaml").write_text('distributed_type: "NO"\nnum_processes: 8\nmixed_precision: bf16\n')
    line = f"accelerate launch --config_file {tmp_path}/one.yaml sft.py --per_device_train_batch_size 1"
    assert read_launch(line).options["gpus"] == "1"


def test_automatic_buckets_have_the_square_of_the_hidden_size(tmp_path) -> None:
    zero = (
        '{"zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": "auto"}, "compile": {"x": 1}}'
    )
    (tmp_path / "ds.json").write_text(zero)
    line = f"deepspeed --num_gpus 8 run_clm.py --deepspeed {tmp_path}/ds.json --bf16 --per_device_train_batch_size 1"
    found = read_launch(f"{line} --model_name_or_path Qwen/Qwen3-8B --optim adamw_torch_8bit")
    assert found.options["overlap"] == f"bucket:{2 * 4096 * 4096}B"
    assert found.options["optimizer"] == "adam-8bit"
    assert any("compile: is not modelled" in note for note in found.notes)
    assert read_launch(line).options["overlap"] == "bucket:1000MB"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo"),
        ("mistralai/Mistral-Small-24B-Base-2501", "mistral-small-24b"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini-4k"),
        ("google/gemma-7b-it", "gemma-7b"),
        ("Qwen/Qwen3-14B-Base", "qwen3-14b"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
    ],
)
def test_names_of_hugging_face_are_networks(said: str, name: str) -> None:
    line = f"torchrun --nproc-per-node 8 run_clm.py --model_name_or_path {said} --per_device_train_batch_size 1"
    assert entry_of(str(read_launch(line).options["workload"])) is entry_of(name)


def test_synchronised_batch_normalisation_is_read() -> None:
    found = read_launch("torchrun --nproc-per-node 8 train.py --model resnet50 -b 64 --amp --sync-bn")
    assert found.options["parallel"] == "dp=8,sync_bn"
    assert not any("sync-bn" in note for note in found.notes)
    alone = read_launch("torchrun --nproc-per-node 1 train.py --model resnet50 -b 64 --amp --sync-bn")
    assert "sync_bn" not in str(alone.options)
    off = read_launch("torchrun --nproc-per-node 8 train.py --model resnet50 -b 64 --amp --sync-bn false")
    assert off.options["parallel"] == "dp=8"


_TORCHTUNE = """\
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, k_proj, v_proj, output_proj]
  apply_lora_to_mlp: true
  lora_rank: 8
tokenizer: {max_seq_len: 2048, path: /tmp/tokenizer.model}
batch_size: 2
gradient_accumulation_steps: 8
optimizer: {_component_: torch.optim.AdamW, fused: true, lr: 3e-4}
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
enable_activation_checkpointing: true
dtype: bf16
"""


def test_torchtunes_recipes_say_how_they_are_divided() -> None:
    found = _line("tune run --nproc_per_node 8 lora_finetune_distributed --config c.yaml", _TORCHTUNE)
    same = (
        "torchrun --nproc-per-node 8 train.py --model_name_or_path llama3-8b --cutoff_len 2048 --pure_bf16 "
        "--fsdp full_shard --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradient_checkpointing "
        "--optim adamw_torch_fused"
    )
    assert _same(found, f"{same} --use_lora --lora_r 8 --lora_target_modules all-linear")
    assert not [note for note in found.notes if "not known" in note]
    alone = _line("tune run lora_finetune_single_device --config c.yaml", _TORCHTUNE)
    assert alone.options["gpus"] == "1"
    assert "parallel" not in alone.options


def test_what_torchtune_has_and_a_step_has_not_is_refused() -> None:
    line = "tune run --nproc_per_node 8 lora_finetune_distributed --config c.yaml"
    assert "gemma2_9b' is not modelled" in _refused(
        line, _TORCHTUNE.replace("llama3_1.lora_llama3_1_8b", "gemma2.gemma2_9b")
    )
    assert "cpu-offloading" in _refused(line, f"{_TORCHTUNE}enable_activation_offloading: true\n")
    assert "distill compares" in _refused(
        line, f"{_TORCHTUNE}teacher_model: {{_component_: torchtune.models.llama3.llama3_8b}}\n"
    )
