"""Arguments of Megatron-LM as its versions and forks spell them, and what the program would refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.launch.launch import LaunchLine, read_launch

LINE = (
    "torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --num-layers 16 --hidden-size 1024 --num-attention-heads "
    "16 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 --swiglu "
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --use-mcore-models --hidden-dropout "
    "0 --attention-dropout 0 --untie-embeddings-and-output-weights "
)
DENSE = f"{LINE} --vocab-size 32000"
EXPERTS = f"{DENSE} --num-experts 8 --expert-model-parallel-size 4 --moe-grouped-gemm --moe-ffn-hidden-size 512"
LATENT = f"{EXPERTS} --multi-latent-attention --q-lora-rank 1536"


def _plan(found: LaunchLine) -> tuple[dict[str, str | bool], dict[str, int | str]]:
    return found.options, found.sizes


@pytest.mark.parametrize(
    ("base", "spelt", "usual"),
    [
        (DENSE, "--num-key-value-heads 4", "--group-query-attention --num-query-groups 4"),
        (DENSE, "--ds-sequence-parallel-size 2", "--context-parallel-size 2 --cp-comm-type a2a"),
        (LINE, "--pad-vocab-size-to 32768", "--padded-vocab-size 32768"),
        (DENSE.replace("--normalization RMSNorm", ""), "--use-rms-norm", "--normalization RMSNorm"),
        (DENSE.replace("--swiglu", ""), "--glu-activation swiglu", "--swiglu"),
        (DENSE.replace("type rope", "type rotary"), "", "--position-embedding-type rope"),
        (
            DENSE.replace("--untie-embeddings-and-output-weights", ""),
            "--no-tie-embed-logits",
            "--untie-embeddings-and-output-weights",
        ),
        (LATENT, "--qk-nope-head-dim 128 --qk-rope-head-dim 64", "--qk-head-dim 128 --qk-pos-emb-head-dim 64"),
        (LATENT, "--num-mtp-predictor 1", "--mtp-num-layers 1"),
        (LATENT, "--kv-channels 16", "--kv-channels 128"),
        (EXPERTS, "--n-shared-experts 2", "--moe-shared-expert-intermediate-size 1024"),
        (EXPERTS, "--first-k-dense-replace 1 --moe-layer-freq 1", "--moe-layer-freq [0]*1+[1]*15"),
        (
            EXPERTS,
            "--moe-layer-freq \"'([0]*1+[1]*15)'\"",
            "--moe-layer-freq '([0]*1+[1]*15)'",
        ),
        (DENSE, "--context-parallel-size 2 --cp-comm-type a2a a2a a2a", "--context-parallel-size 2 --cp-comm-type a2a"),
        (DENSE, "--recompute-granularity full --recompute-method block --recompute-num-layers 0", ""),
        (DENSE, "--data-parallel-sharding-strategy optim_grads_params", ""),
    ],
)
def test_a_forks_spelling_is_the_usual_one(base: str, spelt: str, usual: str) -> None:
    assert _plan(read_launch(f"{base} {spelt}")) == _plan(read_launch(f"{base} {usual}"))


def test_an_fsdps_strategy_counts_with_it_alone() -> None:
    strategy = "--data-parallel-sharding-strategy optim_grads_params"
    assert read_launch(f"{DENSE} {strategy} --use-megatron-fsdp").options["parallel"] == "dp=32,fsdp"
    assert read_launch(f"{DENSE} {strategy} --use-distributed-optimizer").options["parallel"] == "dp=32,zero=1"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--hidden-dropout 0 --moe-num-experts 0x8", "--num-experts: 0x8 is not a whole number"),
        ("--glu-activation geglu", "gates other than SwiGLU are not modelled"),
        ("--hybrid-layer-pattern M-M*-", "layers other than attention and feed-forward layers are not modelled"),
        ("--pipeline-model-parallel-size 32", "--num-layers: 16 layers do not fill 32 parts alike"),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3", "do not fill 12 parts alike"),
    ],
)
def test_what_would_be_another_step_is_refused(more: str, told: str) -> None:
    with pytest.raises(InputError, match=told.replace("*", r"\*")):
        read_launch(f"{DENSE} {more}")


@pytest.mark.parametrize(
    ("more", "told"), [("--embed-layernorm", "embeddings are not normalised"), ("--parallel-attn", "follows")]
)
def test_what_differs_little_is_told(more: str, told: str) -> None:
    (note,) = set(read_launch(f"{DENSE} {more}").notes) - set(read_launch(DENSE).notes)
    assert "is not modelled" in note
    assert told in note


def test_an_argument_beside_the_one_it_resembles_is_no_slip() -> None:
    with pytest.raises(InputError, match="did you mean '--model'"):
        read_launch("torchrun --nproc-per-node 2 train.py --mode gpt2 --batch-size 1")
    read_launch("torchrun --nproc-per-node 2 train.py --mode pdp --model gpt2 --batch-size 1")


@pytest.mark.parametrize(
    "line",
    [
        (
            "torchrun --nproc-per-node 8 run_recipe.py --recipe llama model.tensor_model_parallel_size=2 "
            "train.global_batch_size=64 train.micro_batch_size=1"
        ),
        (
            "nemo llm pretrain --factory llama trainer.devices=8 trainer.num_nodes=1 data.micro_batch_size=1 "
            "trainer.strategy.tensor_model_parallel_size=2 data.global_batch_size=64"
        ),
    ],
)
def test_a_recipes_line_is_megatrons_and_says_what_is_not_read(line: str) -> None:
    found = read_launch(line)
    assert found.options["framework"] == "megatron"
    assert found.options["parallel"] == "tp=2,dp=4"
    assert "global_batch" in found.options
    assert any("the line names no format: fp32, unless" in note for note in found.notes)
    assert any("what the recipe sets is not read" in note for note in found.notes)


def test_stages_of_deepspeed_may_be_unequal() -> None:
    ds = f"cat > ds.json <<E\n{json.dumps({'bf16': {'enabled': True}})}\nE\n"
    line = DENSE.replace("--num-layers 16", "--num-layers 15").replace("torchrun --nnodes 4", "torchrun --nnodes 1")
    found = read_launch(f"{ds}{line} --pipeline-model-parallel-size 8 --deepspeed --deepspeed_config ds.json")
    assert found.options["parallel"] == "pp=8,dp=1,zero=1"


@pytest.mark.parametrize(
    "line", ["megatron sft --model Qwen/Qwen3-8B --micro_batch_size 1", "python deepy.py train.py a.yml"]
)
def test_other_programs_are_named(line: str) -> None:
    with pytest.raises(InputError, match="not read; write the line of Megatron-LM's program"):
        read_launch(line)


def test_a_file_computes_sizes_as_nemos_launcher_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("gpt.yaml").write_text(
        "trainer: {devices: 8, num_nodes: 1, precision: bf16}\nmodel:\n  micro_batch_size: 1\n  global_batch_size: 16\n"
        "  tensor_model_parallel_size: 2\n  encoder_seq_length: 512\n  num_layers: 4\n  hidden_size: 512\n"
        "  ffn_hidden_size: ${multiply:3, ${.hidden_size}}\n  num_attention_heads: "
        "${divide_ceil:${model.hidden_size}, 65}\n"
        "  tokenizer: {type: GPT2BPETokenizer}\n  activations_checkpoint_granularity: selective\n"
        "  activations_checkpoint_num_layers: 0\n"
    )
    found = read_launch("python megatron_gpt_pretraining.py --config-path . --config-name gpt")
    assert (found.sizes["inner"], found.sizes["heads"]) == (1536, 8)


@pytest.mark.parametrize(
    ("stage", "half", "layout"), [(0, "bf16", "dp=8,zero=1"), (0, "fp16", "dp=8"), (2, "bf16", "dp=8,zero=2")]
)
def test_deepspeed_without_stages_shards_the_state_of_bf16(stage: int, half: str, layout: str) -> None:
    settings = {half: {"enabled": True}, "zero_optimization": {"stage": stage}}
    ds = f"cat > ds.json <<E\n{json.dumps(settings)}\nE\n"
    line = DENSE.replace("torchrun --nnodes 4", "torchrun --nnodes 1").replace("--bf16", f"--{half}")
    found = read_launch(f"{ds}{line} --deepspeed --deepspeed_config ds.json")
    assert found.options["parallel"] == layout
    assert found.options.get("accumulate") == ("fp32" if layout.endswith("=1") else None)
