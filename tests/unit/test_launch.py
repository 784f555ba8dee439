"""Launch lines: the options they imply, the resulting questions, refusals and remarks."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import simulate
from simulator.cli import run
from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.errors import InputError
from simulator.launch.arguments import NOT_MODELLED, is_timeless
from simulator.launch.launch import LaunchLine, read_launch
from simulator.launch.shell import commands_of
from simulator.workload.find import find_network
from tests.examples import few

GPT3 = (
    "torchrun --nnodes 64 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 "
    "--pipeline-model-parallel-size 8 --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 1536 --bf16 --sequence-parallel "
    "--use-distributed-optimizer --recompute-activations --attention-backend flash --vocab-size 50257 --lr 6e-5 "
    "--seed 1 --data-path /data/text --save-interval 100 --tensorboard-dir /logs"
)
OF_LLAMA = (
    "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --hidden-dropout 0 "
    "--attention-dropout 0 --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 "
    "--use-mcore-models --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
)
LLAMA3_8B = (
    "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
    "--num-attention-heads 32 --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 "
    "--global-batch-size 128 --tensor-model-parallel-size 1 --context-parallel-size 2 --vocab-size 128256 "
    f"--fp8-format hybrid {OF_LLAMA}"
)
LLAMA3_70B = (
    "torchrun --nnodes=8 --nproc-per-node=8 pretrain_gpt.py --num-layers 80 --hidden-size 8192 "
    "--ffn-hidden-size 28672 --num-attention-heads 64 --seq-length 8192 --max-position-embeddings 8192 "
    "--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 "
    "--num-layers-per-virtual-pipeline-stage 5 --sequence-parallel --vocab-size 128256 "
    f"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 {OF_LLAMA}"
)
MIXTRAL = (
    "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 32768 "
    "--micro-batch-size 1 --global-batch-size 256 --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm "
    "--expert-model-parallel-size 8 --tokenizer-type Llama2Tokenizer --tokenizer-model /x/tokenizer.model "
    f"--moe-aux-loss-coeff 1e-2 --moe-token-dispatcher-type alltoall {OF_LLAMA}"
)
SCRIPT = r"""#!/bin/bash
# Trains GPT-3 175B.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8   # of each
NNODES=64
TP=8; PP="8"
WORLD_SIZE=$(($GPUS_PER_NODE * NNODES))
HIDDEN=${HIDDEN:-12288}
DISTRIBUTED_ARGS=(
    --nproc-per-node $GPUS_PER_NODE
    --nnodes $NNODES  # nodes
    --master-addr "$(hostname)"
)
GPT_ARGS="
    --num-layers 96 --hidden-size ${HIDDEN} --num-attention-heads 96 \
    --seq-length 2048 --max-position-embeddings 2048
    --vocab-size 50257 --attention-backend flash
"
PARALLEL="--tensor-model-parallel-size $TP"
PARALLEL="$PARALLEL --pipeline-model-parallel-size ${PP}"
TRAINING=(--micro-batch-size 1 --global-batch-size $((WORLD_SIZE * 3)) --bf16 --sequence-parallel)
TRAINING+=(--use-distributed-optimizer --recompute-activations)
mkdir -p /logs
echo "torchrun other.py --num-layers 3"
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    $GPT_ARGS $PARALLEL \
    ${TRAINING[@]} 2>&1 | tee /logs/out.txt
"""


def options(line: str) -> dict[str, object]:
    found = read_launch(line)
    return {**found.options, **{f"set {name}": size for name, size in found.sizes.items()}}


# -- published configurations ------------------------------------------------------------


def test_gpt3_175b() -> None:
    assert options(GPT3) == {
        "nodes": "64", "workload": "gpt", "framework": "megatron", "precision": "master-bf16", "optimizer": "adam",
        "fused_optimizer": True, "seq_len": "2048", "parallel": "tp=8,pp=8,dp=8,sp,zero=1", "overlap": "none",
        "reduce_fp32": True, "global_batch": "1536", "micro_batch": "1", "recompute_attention": True,
        "set layers": 96, "set hidden": 12288, "set heads": 96, "set inner": 4 * 12288, "set vocabulary": 51200,
        "set tied": 1, "set attention": "fused",
    }  # fmt: skip
    assert read_launch(GPT3).notes == []


def network_of(found: LaunchLine, batch: int = 1):
    length = int(str(found.options["seq_len"]))
    return find_network(str(found.options["workload"]), sequence_length=length, settings=found.sizes).build(batch)


def test_what_hides_and_limits_exchanges_of_experts() -> None:
    more = "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity --moe-token-drop-policy position "
    more += "--overlap-moe-expert-parallel-comm"
    found = options(f"{MIXTRAL} {more}")
    assert (found["set expert_capacity"], found["set pad_capacity"]) == (125, 1)
    assert "ep_overlap" in found["parallel"].split(",")
    assert "ep_overlap,delay_wgrad" in options(f"{MIXTRAL} {more} --delay-wgrad-compute")["parallel"]
    shared = "--moe-shared-expert-intermediate-size 64 --moe-shared-expert-overlap"
    assert "shared_overlap" in options(f"{MIXTRAL} {shared}")["parallel"].split(",")
    assert "shared_overlap" not in options(f"{MIXTRAL} --moe-shared-expert-overlap")["parallel"]
    assert "set expert_capacity" not in options(f"{MIXTRAL} --moe-expert-capacity-factor -1")
    for wrong in ("x", "nan", "0", "1e9"):
        with pytest.raises(InputError, match="is no number from 0"):
            options(f"{MIXTRAL} --moe-expert-capacity-factor {wrong}")


@pytest.mark.parametrize(
    ("line", "name", "vocabulary", "parallel"),
    [
        (GPT3, "megatron-175b", 51200, "tp=8,pp=8,dp=8,sp,zero=1"),
        (LLAMA3_8B, "llama3-8b", 128256, "cp=2,dp=4,zero=1"),
        (LLAMA3_70B, "llama3-70b", 128512, "tp=4,pp=4,dp=4,sp,vp=4,zero=1"),
        (MIXTRAL, "mixtral-8x7b", 32000, "dp=16,ep=8,zero=1"),
    ],
)
def test_a_published_line_is_the_network_of_the_zoo(line: str, name: str, vocabulary: int, parallel: str) -> None:
    found = read_launch(line)
    assert found.notes == []
    assert found.options["parallel"] == parallel
    asked = {"vocabulary": vocabulary, "attention": found.sizes["attention"]}
    length = int(str(found.options["seq_len"]))
    own = find_network(name, sequence_length=length, settings=asked).build(1)
    ours = network_of(found)
    assert ours.layers == own.layers


def test_one_gpu_exchanges_nothing_and_no_argument_is_unknown() -> None:
    alone = read_launch(LLAMA3_8B.replace("nproc_per_node=8", "nproc_per_node=1").replace("size 2", "size 1"))
    assert alone.notes == []
    assert not {"parallel", "overlap", "reduce_fp32"} & set(alone.options)


def test_overlap_takes_megatrons_buckets() -> None:
    # Data parallelism of 8 = cp x dp: 40 M elements of 4 bytes, the larger of that and 8 M.
    assert options(LLAMA3_8B)["overlap"] == "bucket:160MB"
    assert options(LLAMA3_8B.replace("nproc_per_node=8", "nproc_per_node=8 --nnodes 12"))["overlap"] == "bucket:384MB"
    assert options(f"{LLAMA3_8B} --ddp-bucket-size 1000000 --grad-reduce-in-bf16")["overlap"] == "bucket:2MB"


def test_exchanges_beside_products_are_read_where_sequences_are_split() -> None:
    found = read_launch(f"{GPT3} --tp-comm-overlap")
    assert (found.options["parallel"], found.notes) == ("tp=8,pp=8,dp=8,sp,tp_overlap,zero=1", [])


def test_vocabularies_are_padded_as_megatron_pads_them() -> None:
    def words(more: str) -> object:
        return options(GPT3.replace("--vocab-size 50257", more))["set vocabulary"]

    assert words("--vocab-size 1024") == 1024  # a multiple of 128 x tp=8
    assert words("--vocab-size 1024 --tokenizer-type NullTokenizer") == 2048  # and the end-of-document token
    assert words("--vocab-size 1025 --make-vocab-size-divisible-by 1") == 1032
    assert words("--padded-vocab-size 1025") == 1025
    assert words("--tokenizer-type GPT2BPETokenizer") == 51200


def test_experts_without_grouped_products_are_remarked_on() -> None:
    line = MIXTRAL.replace("--moe-grouped-gemm", "")
    assert [note.split()[0] for note in read_launch(line).notes] == ["--moe-grouped-gemm:"]


def test_how_tokens_reach_experts_is_megatrons_default() -> None:
    """``allgather``, of tp x ep ranks, unless a line says otherwise, DeepSpeed runs it, or tokens are the same."""
    plain = MIXTRAL.replace("--moe-token-dispatcher-type alltoall", "")
    for more in ("", "--moe-token-dispatcher-type allgather", "--moe-router-dtype fp32"):
        found = read_launch(f"{plain} {more}")
        assert "ep_comm=all_gather" in str(found.options["parallel"]).split(",")
        assert len(found.notes) == ("fp32" in more)
    alone = plain.replace("--expert-model-parallel-size 8", "")
    assert "ep_comm" not in str(options(alone)["parallel"])
    assert "ep_comm" in str(options(f"{alone} --tensor-model-parallel-size 2 --sequence-parallel")["parallel"])
    for more in ("--moe-token-dispatcher-type flex", "--moe-enable-deepep", "--moe-token-dispatcher-type alltoall_seq"):
        assert "ep_comm" not in str(options(f"{plain} {more}")["parallel"])
    refused = "--moe-shared-expert-intermediate-size 64 --moe-shared-expert-overlap --overlap-moe-expert-parallel-comm"
    with pytest.raises(InputError) as error:
        options(f"{plain} {refused}")
    assert [fault.message.split()[0] for fault in error.value.faults] == [
        "--overlap-moe-expert-parallel-comm:",
        "--moe-shared-expert-overlap:",
    ]


def test_blocks_that_predict_further_tokens() -> None:
    assert options(f"{MIXTRAL} --mtp-num-layers 1")["set mtp_layers"] == 1
    assert options(MIXTRAL)["set mtp_layers"] == 0
    (note,) = read_launch(f"{GPT3} --mtp-num-layers 1").notes
    assert note.startswith("--mtp-num-layers: is modelled beside experts")


def test_arguments_that_matter_are_not_passed_over() -> None:
    assert [name for name in NOT_MODELLED if is_timeless(name)] == []


def test_precision_and_recomputation() -> None:
    assert options(LLAMA3_8B)["precision"] == "master-fp8"
    assert options(f"{GPT3} --fp4-format e2m1 --fp4-recipe nvfp4")["precision"] == "nvfp4"
    assert "reduce_fp32" not in options(GPT3.replace("--bf16", ""))
    assert options(GPT3.replace("--bf16", ""))["precision"] == "fp32"
    assert options(GPT3.replace("--bf16", "--fp16"))["precision"] == "master-fp16"
    assert "reduce_fp32" not in options(GPT3.replace("--bf16", "--fp16"))
    assert options(LLAMA3_70B)["recompute"] is True
    assert "recompute_attention" not in options(LLAMA3_70B)
    assert options(f"{LLAMA3_8B} --checkpoint-activations")["recompute"] is True
    block = options(f"{LLAMA3_8B} --recompute-granularity full --recompute-method block --recompute-num-layers 5")
    assert (block["recompute"], block["recompute_blocks"]) == (True, "5")
    parts = f"{LLAMA3_8B} --recompute-granularity selective --recompute-modules layernorm core_attn"
    assert options(parts)["recompute_parts"] == "core_attn,layernorm"
    with pytest.raises(InputError, match=r"core_atn: no such part; did you mean 'core_attn'"):
        options(parts.replace("core_attn", "core_atn"))


def test_older_names() -> None:
    old = (
        "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 pretrain_gpt2.py --model-parallel-size 4 "
        "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
        "--batch-size 8 --fp16 --vocab-file v.json --merge-file m.txt --checkpoint-activations"
    )
    found = options(old)
    assert (found["gpus"], found["parallel"], found["recompute"]) == ("8", "tp=4,dp=2", True)
    assert (found["global_batch"], found["micro_batch"]) == ("16", "8")  # a micro-batch for each replica
    assert (found["set vocabulary"], found["set attention"]) == (50688, "fused-softmax")


# -- scripts ---------------------------------------------------------------------------


def test_a_script_says_what_its_line_says(tmp_path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    found = read_launch(f"@{path}")
    assert (found.options, found.sizes, found.notes) == (read_launch(GPT3).options, read_launch(GPT3).sizes, [])


def test_nothing_is_executed(tmp_path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "train.sh"
    path.write_text(f"X=$(touch {mark})\nY=`touch {mark}`\ntouch {mark}\n{GPT3} --load $X$Y\n", encoding="utf-8")
    read_launch(f"@{path}")
    assert not mark.exists()


def test_slurm_says_how_many_there_are(tmp_path) -> None:
    path = tmp_path / "train.sbatch"
    arguments = GPT3.partition("pretrain")[2]
    path.write_text(
        f"#!/bin/bash\n#SBATCH --nodes=64 --ntasks-per-node=8 # all\n"
        f'CMD="python pretrain{arguments}"\nsrun bash -c "$CMD"\n',
        encoding="utf-8",
    )
    found = read_launch(f"@{path}")
    assert (found.options["nodes"], found.options["parallel"]) == ("64", "tp=8,pp=8,dp=8,sp,zero=1")


def test_deepspeeds_file(tmp_path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(
        '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}, "bf16": {"enabled": true},'
        ' "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3, "odd": 1}',
        encoding="utf-8",
    )
    found = read_launch(f"deepspeed --num_gpus 8 train.py --deepspeed_config {path}")
    assert found.options == {
        "gpus": "8",
        "parallel": "dp=8,zero=2",
        "precision": "master-bf16",
        "global_batch": "96",
        "micro_batch": "4",
        "overlap": "none",
        "reduce_whole": True,
    }
    assert [note.partition(": ")[2] for note in found.notes] == ["not known, and without effect: odd"]


def test_deepspeeds_third_stage_has_its_hooks(tmp_path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    found = read_launch(f"deepspeed --num_gpus 8 train.py --deepspeed_config {path}")
    assert (found.options["framework"], found.options["parallel"]) == ("deepspeed-zero3", "dp=8,fsdp")


TRAINER = (
    "torchrun --nproc-per-node 8 train.py --model_name_or_path x --per_device_train_batch_size 4 "
    "--gradient_accumulation_steps 8 --fsdp 'full_shard auto_wrap' --gradient_checkpointing True --bf16 True"
)


def test_a_line_of_hugging_faces_trainer() -> None:
    said = {"global_batch": "256", "micro_batch": "4", "precision": "amp-bf16"}
    said["optimizer"] = "adam"
    assert options(TRAINER) == {"gpus": "8", "parallel": "dp=8,fsdp", "recompute": True, **said}
    of_trainer = TRAINER.replace(" --bf16 True", "").replace("torchrun --nproc-per-node 8", "")
    accelerated = f"accelerate launch --num_processes 8 --mixed_precision bf16 {of_trainer}"
    assert options(accelerated) == options(TRAINER)
    without = TRAINER.replace("'full_shard auto_wrap'", "shard_grad_op").replace(
        "checkpointing True", "checkpointing 0"
    )
    # FSDP keeps such parameters whole in bf16, and fp32 shards of them.
    assert options(without) == {"gpus": "8", "parallel": "dp=8,zero=2", **said, "precision": "master-bf16"}
    assert options(TRAINER.replace("--bf16 True", "--bf16 False"))["precision"] == "fp32"
    assert options("accelerate launch --num_processes 4 --use_fsdp train.py")["parallel"] == "dp=4,fsdp"


def test_a_line_without_a_batch_is_told_so() -> None:
    for line in (TRAINER.replace("--per_device_train_batch_size 4", ""), "torchrun --nproc-per-node 8 train.py --bf16"):
        with pytest.raises(InputError, match="launch: the line names no batch"):
            with_launch(CommandOptions(launch=line, workload="gpt2"))
        assert with_launch(CommandOptions(launch=line, batch="4", workload="gpt2"))[0].parallel


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ('"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2',
         "train_batch_size 32 is not 4 a GPU x 2 accumulated x 8 GPUs, which is 64"),
        ('"train_batch_size": 32, "train_micro_batch_size_per_gpu": 3',
         "train_batch_size 32 is no multiple of 3 a GPU x 8 GPUs, which is 24"),
        ('"train_batch_size": 36', "train_batch_size 36 is no multiple of 8 GPUs, which is 8"),
        ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2', None),
        ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4', None),
    ],
)  # fmt: skip
def test_batches_that_deepspeed_refuses_are_refused(file: str, told: str | None, tmp_path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(f"{{{file}}}", encoding="utf-8")
    line = f"deepspeed --num_gpus 8 train.py --deepspeed_config {path}"
    if told is None:
        assert read_launch(line).options["global_batch"] == "64"
        return
    with pytest.raises(InputError) as error:
        read_launch(line)
    assert told in error.value.spelt("command")


def test_layers_are_transformer_engines_where_nothing_says_otherwise() -> None:
    plain = GPT3.replace("--attention-backend flash ", "")
    found = read_launch(plain)
    assert found.sizes["attention"] == "fused-native"
    assert any(
        "the default of current checkouts" in note and "--transformer-impl local" in note for note in found.notes
    )
    narrow = ("--fp8-format hybrid", "--fp4-format e2m1")
    for more in ("--tp-comm-overlap", *narrow, "--transformer-impl transformer_engine"):
        asked = read_launch(f"{plain} {more}")
        assert asked.sizes["attention"] == "fused-native"
        assert not any("transformer-impl" in note for note in asked.notes)
    assert read_launch(f"{plain} --transformer-impl local").sizes["attention"] == "fused-softmax"
    with pytest.raises(InputError, match="local has no fp8"):
        read_launch(f"{plain} --transformer-impl local --fp8-format hybrid")


@pytest.mark.parametrize(
    ("more", "attention", "told"),
    [
        ("", "fused-native", "ignores --use-flash-attn"),
        ("--transformer-impl transformer_engine", "fused-native", None),
        ("--use-mcore-models", "fused-native", None),
        ("--use-mcore-models --transformer-impl local", "fused-softmax", None),
        ("--transformer-impl local", "fused", None),
        ("--use-legacy-models", "fused", None),
        ("--zero-stage 1", "fused", None),
        ("--attention-backend unfused", "fused-softmax", None),
    ],
)
def test_flash_attention_is_asked_for_in_layers_of_older_checkouts_alone(
    more: str, attention: str, told: str | None
) -> None:
    found = read_launch(GPT3.replace("--attention-backend flash", f"--use-flash-attn {more}"))
    assert found.sizes["attention"] == attention
    assert [told in note for note in found.notes] == [True] * (told is not None)


_VALUES = st.text(alphabet="ab1 #$'\"\\-=", max_size=6)


@settings(max_examples=few(150), deadline=None)
@given(values=st.lists(_VALUES, min_size=1, max_size=5))
def test_quoted_words_are_those_that_shlex_reads(values: list[str]) -> None:
    line = shlex.join(["run", *values])
    (words,) = commands_of(line, "x").commands
    assert [word.text for word in words] == ["run", *values]


@pytest.mark.parametrize(
    "script",
    [
        'A=1; B="$A 2"; printf "%s\\n" run $A "$B" $B "${A}x" \'$A\' a\\ b',
        'A=(--x 1)\nA+=(--y "2 3")\nprintf "%s\\n" run "${A[@]}"',
        'N=4; M=$((N*2+1)); printf "%s\\n" run $M $(( (M-1)/N )) ${Z:-7} ${N:-9}',
        'A="--p 1 \\\n --q 2"\nprintf "%s\\n" run $A "" \\\n  end # no --more\n',
        "printf '%s\\n' run a#b c;# d",
    ],
)
def test_words_are_those_that_a_shell_makes(script: str) -> None:
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    words = next(words for words in commands_of(script, "x").commands if words[0].text == "printf")
    assert [word.text for word in words][2:] == ran.stdout.splitlines()


@pytest.mark.parametrize(("text", "told"), [("a 'b", "x:1:3: this quote"), ("A=(b", "x:1:3: this bracket")])
def test_what_does_not_end_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        commands_of(text, "x")
    assert error.value.spelt("command").startswith(told)


# -- faults and remarks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "dense"),
    [
        ("1", 0),
        ("([0]*1+[1]*31)", 1),
        ("([0]*1+[1]*31)*1", 1),
        ("[0]*2+[1]*15+[1]*15", 2),
        (f"[{', '.join('0' * 3 + '1' * 29)}]", 3),
        *((no_list, None) for no_list in ("2", "x", "(", "[1]*32-0", "[[1], 0] + [1] * 31")),
        *((other, None) for other in ("([0]*1+[1]*3)*8", "[0]*1+[1]*30", "[0]*32", "[1]*2**20", "[1] * 999999999999")),
    ],
)
def test_which_layers_have_experts_is_written_as_a_list(pattern: str, dense: int | None) -> None:
    line = f'{MIXTRAL} --moe-layer-freq "{pattern}"'
    if dense is None:
        with pytest.raises(InputError, match="moe-layer-freq"):
            read_launch(line)
    else:
        assert dict(read_launch(line).sizes).get("dense_layers", 0) == dense


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("--num-layers 96", "--num-layers many"), "--launch: --num-layers: many is not a whole number, 1 to"),
        (("--num-layers 96", "--num-layers $LAYERS"), "--num-layers: $LAYERS is set nowhere in what is read"),
        (("--num-layers 96", ""), "--num-layers: is missing"),
        (("--vocab-size 50257", ""), "--vocab-size: is missing"),
        (("--nnodes 64", "--nnodes 3"), "tp=8 x pp=8 x cp=1 is 64 ranks, and the launcher starts 24"),
        (("--bf16", "--fp8-format hybrid"), "--fp8-format: goes with --bf16 or --fp16"),
        (("--bf16", "--fp4-format e2m1"), "--fp4-format: goes with --bf16, and without fp8"),
        (("--bf16", "--bf16 --fp8-format hybrid --fp4-format e2m1"), "--fp4-format: goes with --bf16, and without fp8"),
        (("--bf16", "--bf16 --fp4-format e2m3"), "--fp4-format: "),
        (("--bf16", "--bf16 --num-experts 8"), "--num-experts: experts are modelled with a gate"),
        (("pretrain_gpt", "pretrain_t5"), "--num-layers: pretrain_t5.py trains no GPT"),
        (("--bf16", "--bf16 --group-query-attention"), "--group-query-attention: is modelled for blocks of Llama's"),
        (
            ("--attention-backend flash", "--attention-backend flahs"),
            "--attention-backend: 'flahs' is not known; did you mean 'fla",
        ),
        (("--bf16", "--bf16 --num-layers-per-virtual-pipeline-stage 5"), "5 x 8 stages do not divide 96 layers"),
    ],
)
def test_what_cannot_be_read_is_refused(change: tuple[str, str], told: str) -> None:
    with pytest.raises(InputError) as error:
        read_launch(GPT3.replace(*change))
    assert told in error.value.spelt("command")


def test_faults_of_a_script_have_their_places_all_at_once(tmp_path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace("--seq-length 2048", "--seq-length x").replace("--bf16", "--bf16 --num-experts 2"))
    with pytest.raises(InputError) as error:
        read_launch(f"@{path}")
    told = [fault.spelt("command") for fault in error.value.faults]
    assert len(told) == 2
    assert told[0].startswith(f"{path}:")
    assert "--seq-length: x is not a whole number" in told[0]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--cp-comm-type a2a+p2p", []),
        ("--cp-comm-type p2p a2a", ["--cp-comm-type: is not modelled; a sequence is split in one ring"]),
        ("--cp-comm-type a2a", []),
        ("--window-size 4096,0 --cpu-offloading-num-layers 0", []),
        ("--patch-size 3", ["not known, and without effect: --patch-size"]),
        ("--foo 3 --bar", ["not known, and without effect: --foo, --bar"]),
        ("--rampup-batch-size 16 16 1000", ["--rampup-batch-size: is not modelled; the step is one of the full batch"]),
        ("--normalization RMSNorm", ["--normalization: is not modelled here; simulated as LayerNorm"]),
        ("--weight-decay 0.1 --log-interval 10 --tokenizer-type GPT2BPETokenizer --distributed-backend nccl", []),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_named(more: str, told: list[str]) -> None:
    assert read_launch(f"{GPT3} {more}").notes == told


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ("--bf-16", "--bf16"),
        ("--bf17", "--bf16"),
        ("--use-distributed-optimiser", "--use-distributed-optimizer"),
        ("--sequence-paralel", "--sequence-parallel"),
        ("--recompute_granularty full", "--recompute-granularity"),
        ("--swi-glu --group-query-attention --num-query-groups 8", "--swiglu"),
    ],
)
def test_an_option_that_is_nearly_a_known_one_is_refused_alone(more: str, meant: str, tmp_path: Path) -> None:
    wrong = more.split(maxsplit=1)[0].replace("_", "-")
    path = tmp_path / "run.sh"
    path.write_text(f"# trains\n{GPT3} {more}\n", encoding="utf-8")
    for text, place in ((f"{GPT3} {more}", "--launch"), (f"@{path}", f"{path}:2:{len(GPT3) + 2}")):
        with pytest.raises(InputError) as error:
            read_launch(text)
        told = f"{place}: {wrong}: is not known; did you mean '{meant}'? If not, leave it out"
        assert error.value.spelt("command") == told


@pytest.mark.slow
def test_what_has_no_effect_is_in_the_document_and_the_page(tmp_path: Path, capsys) -> None:
    page = tmp_path / "page.html"
    told = "not known, and without effect: --foo"
    asked = ["--topology", "dgx-h100", "--launch", f"{SMALL} --foo 3", "--quiet", "--json", "--report", str(page)]
    assert run(asked) == 0
    assert told in json.loads(capsys.readouterr().out)["launch_notes"]
    assert f"launch line: {told}" in page.read_text(encoding="utf-8")


def test_a_batch_that_differs_is_told_as_the_line_says_it() -> None:
    line = "torchrun --nproc_per_node 8 train.py --batch_size 4"
    with pytest.raises(InputError) as error:
        with_launch(CommandOptions(launch=line, workload="resnet50", batch="32"))
    assert "--launch says --batch_size 4, which is --global-batch 32;" in error.value.spelt("command")


@pytest.mark.parametrize(
    ("said", "words"), [("p2p", ""), ("a2a", ",cp_comm=a2a"), ("allgather", ",cp_comm=all_gather")]
)
def test_what_ranks_of_a_sequence_exchange_is_read(said: str, words: str) -> None:
    found = read_launch(f"{LLAMA3_8B} --context-parallel-size 2 --cp-comm-type {said}")
    assert ("cp=2" in str(found.options["parallel"]), words in str(found.options["parallel"])) == (True, True)
    assert not any("cp-comm" in note for note in found.notes)


def test_rings_between_ranks_that_exchange_heads_are_read() -> None:
    line = f"{LLAMA3_8B} --context-parallel-size 4 --cp-comm-type a2a+p2p"
    found = read_launch(f"{line} --hierarchical-context-parallel-sizes 2 2")
    assert "cp_a2a=2" in str(found.options["parallel"]).split(",")
    assert found.notes == read_launch(f"{LLAMA3_8B} --context-parallel-size 4").notes
    assert "cp_a2a" not in str(options(f"{line} --hierarchical-context-parallel-sizes 1 4")["parallel"])
    for more, why in (("", "is missing"), ("--hierarchical-context-parallel-sizes 2 4", "'2 4' are not two sizes")):
        with pytest.raises(InputError, match=f"--hierarchical-context-parallel-sizes: {why}"):
            read_launch(f"{line} {more}")


# -- the command ---------------------------------------------------------------------------

SMALL = LLAMA3_8B.replace("--num-layers 32", "--num-layers 4").replace("--seq-length 8192", "--seq-length 1024")


@pytest.mark.slow
def test_the_options_that_are_shown_ask_the_same(capsys) -> None:
    assert run(["--topology", "dgx-h100", "--launch", SMALL, "--show-options"]) == 0
    shown = shlex.split(capsys.readouterr().out)
    assert shown[0] == "simulate"
    answers = []
    for words in (["--topology", "dgx-h100", "--launch", SMALL, "--json"], [*shown[1:], "--json"]):
        assert run(words) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"precision": "fp16"}, "--precision fp16: --launch says master-bf16; leave one of the two out"),
        ({"nodes": "2"}, "--nodes 2: --launch says 64;"),
        ({"parallel": ("tp=4",)}, "--parallel tp=4: --launch says tp=8,pp=8,dp=8,sp,zero=1;"),
        ({"sizes": ("layers=3",)}, "--set layers=3: --launch says layers=96;"),
        ({"batch": "3"}, "--batch 3: --launch says --global-batch-size 1536, which is --global-batch 1536;"),
    ],
)
def test_options_that_say_something_else_are_refused(more: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as error:
        with_launch(CommandOptions(launch=GPT3, **more))  # type: ignore[arg-type]
    assert error.value.spelt("command").startswith(told)


def test_options_that_say_the_same_or_more_are_taken() -> None:
    own = CommandOptions(
        launch=GPT3, nodes="64", parallel=("dp=8,zero=1,sp,tp=8,pp=8",), sizes=("layers=96",), nccl="2.18"
    )
    written, _ = with_launch(own)
    assert (written.nccl, written.parallel, written.sizes.count("layers=96")) == ("2.18", own.parallel, 1)


def test_a_missing_script_is_an_error_of_one_line(tmp_path, capsys) -> None:
    assert run(["--topology", "dgx-h100", "--launch", f"@{Path(tmp_path) / 'no.sh'}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["--topology", "dgx-h100", "--launch", "echo hello"]) == 2
    assert "no command with arguments" in capsys.readouterr().err
    script = Path(tmp_path) / "yes.sh"
    script.write_text("torchrun pretrain_gpt.py --num-layers 2\n", encoding="utf-8")
    assert run(["--topology", "dgx-h100", "--launch", str(script)]) == 2
    assert f"--launch: {script} is a file; write @{script}" in capsys.readouterr().err


def test_a_line_without_a_network_is_refused_unless_one_is_named(capsys) -> None:
    """The default network was simulated in its place; named, even that network is an answer."""
    words = ["--topology", "dgx-h100", "--launch"]
    words.append("torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 8")
    assert run([*words]) == 2
    told = capsys.readouterr().err
    assert "--launch: the line names no network; add --workload, for example" in told
    assert told.count("\n") == 1
    assert run([*words, "--workload", "resnet50", "--show-options"]) == 0
    assert "--workload resnet50" in capsys.readouterr().out
    with pytest.raises(InputError, match="launch: the line names no network; add workload"):
        simulate("dgx-h100", launch=words[-1])


def test_a_network_that_the_line_names_is_simulated_or_asked_for(tmp_path) -> None:
    """A language model was answered as the default network, with a warning."""
    line = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 8 "
    for words, network in (
        ("--model_name_or_path gpt2", "gpt2"),
        ("--model_name=openai-community/gpt2-xl", "gpt2-xl"),
        ("--arch resnet101", "resnet101"),
    ):
        assert options(line + words)["workload"] == network
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    assert options(f"{line} --model_name_or_path {tmp_path}")["workload"] == str(tmp_path)
    unknown = f"{line} --model_name_or_path my-org/my-model"
    with pytest.raises(InputError, match="by the name in --model_name_or_path my-org/my-model; add workload,"):
        with_launch(CommandOptions(launch=unknown))
    assert with_launch(CommandOptions(launch=unknown, workload="bert-base"))[0].workload == "bert-base"


@pytest.mark.parametrize(
    ("more", "option", "note"),
    [
        ("--cuda-graph-impl transformer_engine", "cuda_graph_blocks", ""),
        ("--external-cuda-graph", "cuda_graph_blocks", ""),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "cuda_graph", ""),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn", "cuda_graph_blocks", "whole layers"),
        ("--cuda-graph-impl none", "", ""),
    ],
)
def test_graphs_of_a_launch_line(more: str, option: str, note: str) -> None:
    line = "torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
    line += "--seq-length 64 --vocab-size 99 --micro-batch-size 1 --global-batch-size 4 --bf16 "
    found = read_launch(line + more)
    assert {name for name in ("cuda_graph", "cuda_graph_blocks") if found.options.get(name)} == {option} - {""}
    assert any(note in each for each in found.notes) if note else not any("graph" in each for each in found.notes)


def test_copies_of_the_optimiser_are_shards_of_fewer_ranks() -> None:
    line = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
    line += "--seq-length 64 --vocab-size 99 --micro-batch-size 1 --global-batch-size 8 --bf16 "
    found = read_launch(f"{line} --use-distributed-optimizer --num-distributed-optimizer-instances 2")
    assert found.options["parallel"] == "dp=8,zero=1,shards=4"
    assert read_launch(f"{line} --use-distributed-optimizer --overlap-grad-reduce").options["prefetch"] is False
    both = f"{line} --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    assert "prefetch" not in read_launch(both).options
    with pytest.raises(InputError, match="3 do not divide 8 ranks"):
        read_launch(f"{line} --use-distributed-optimizer --num-distributed-optimizer-instances 3")
    kept = read_launch(f"{line} --use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward")
    assert kept.options["parallel"] == "dp=8,zero=2"


def test_the_trainers_buckets_and_newer_names() -> None:
    line = "torchrun --nproc-per-node 2 run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 1"
    assert read_launch(f"{line} --ddp_bucket_cap_mb 100").options["overlap"] == "bucket:100MiB"
    assert "overlap" not in read_launch(f"{line} --ddp_bucket_cap_mb 100 --fsdp full_shard").options
    assert read_launch(f"{line} --activation_checkpointing").options["recompute"] is True


def test_llama_factory_recomputes_unless_told() -> None:
    line = "torchrun --nproc-per-node 2 src/train.py --stage sft --do_train --model_name_or_path llama2-7b "
    line += "--finetuning_type full --per_device_train_batch_size 1 --cutoff_len 1024 --bf16"
    assert read_launch(line).options["recompute"] is True
    assert "recompute" not in read_launch(f"{line} --disable_gradient_checkpointing true").options
    assert read_launch(f"{line} --pure_bf16 true").options["precision"] == "bf16"
    without = "torchrun --nproc-per-node 2 run_clm.py --model_name_or_path llama2-7b --block_size 1024 "
    without += "--per_device_train_batch_size 1"
    assert "recompute" not in read_launch(without).options


def test_an_unknown_way_to_exchange_parts_of_a_sequence_is_refused() -> None:
    with pytest.raises(InputError, match="--cp-comm-type: 'a2x' is no such way; did you mean 'a2a'"):
        read_launch(f"{LLAMA3_8B} --context-parallel-size 2 --cp-comm-type a2x")
    found = read_launch(f"{LLAMA3_8B} --context-parallel-size 2 --cp-comm-type p2p a2a")  # one for each layer
    assert any("--cp-comm-type: is not modelled" in note for note in found.notes)
