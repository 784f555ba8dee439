"""Launch lines of torchtitan, of both kinds of its versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.launch.launch import LaunchLine, read_launch

OLD = "torchrun --nproc-per-node 8 -m torchtitan.train --model.name llama3 --model.flavor 8B"
NEW = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b"
REPLICAS = "--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 8"
STAGES = "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B"


def read(more: str, line: str = OLD) -> LaunchLine:
    return read_launch(f"{line} {more}", own=8)


def test_defaults_are_torchtitans() -> None:
    found = read("")
    assert found.options == {
        "workload": "llama3-8b", "precision": "amp-bf16", "seq_len": "2048", "optimizer": "adam",
        "fused_optimizer": True, "parallel": "dp=8,fsdp", "global_batch": "64", "micro_batch": "8", "gpus": "8",
        "recompute": True, "recompute_blocks": "16",
    }  # fmt: skip
    assert found.notes == ["every 2 layers are recomputed: simulated as the first 16 of 32"]
    assert read("", NEW).options["recompute_operators"] is True


@pytest.mark.parametrize(
    ("more", "parallel"),
    [
        ("--parallelism.tensor_parallel_degree 2", "tp=2,dp=4,sp,fsdp"),
        ("--parallelism.tensor_parallel_degree=2 --parallelism.enable_async_tensor_parallel",
         "tp=2,dp=4,sp,tp_overlap,fsdp"),
        ("--parallelism.data_parallel_replicate_degree 2", "dp=8,fsdp=4"),
        ("--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 8", "dp=8"),
        ("--parallelism.fsdp_reshard_after_forward never", "dp=8,zero=2"),
        ("--parallelism.pipeline_parallel_degree 2", "pp=2,dp=4,zero=1"),
        ("--parallelism.pipeline_parallel_degree 2 --parallelism.fsdp_reshard_after_forward always", "pp=2,dp=4,fsdp"),
        ("--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule GPipe",
         "pp=2,dp=4,schedule=gpipe,zero=1"),
        (STAGES, "pp=2,dp=4,vp=2,zero=1"),
        (f"{STAGES} --parallelism.pipeline_parallel_layers_per_stage 4", "pp=2,dp=4,vp=4,zero=1"),
        ("--parallelism.context_parallel_degree 2", "cp=2,dp=4,fsdp"),
        ("--parallelism.expert_parallel_degree 4", "dp=8,ep=4,fsdp"),
    ],
)  # fmt: skip
def test_degrees(more: str, parallel: str) -> None:
    assert read(more).options["parallel"] == parallel


@pytest.mark.parametrize(
    ("starts", "parallel"),
    [
        ("layers.18", "pp=2,dp=4,blocks=18-14,zero=1"),
        ("layers.16", "pp=2,dp=4,zero=1"),
        ("layers.0", "pp=2,dp=4,blocks=0-32,zero=1"),
        ("layers.10,layers.20,norm", "pp=2,dp=4,vp=2,blocks=10-10-12-0,zero=1"),
    ],
)
def test_parts_begin_where_the_line_says(starts: str, parallel: str) -> None:
    more = f"--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_split_points {starts}"
    more += " --parallelism.pipeline_parallel_schedule Interleaved1F1B" * ("norm" in starts)
    assert read(more).options["parallel"] == parallel


@pytest.mark.parametrize(("starts", "why"), [("layers.20,layers.10,norm", "do not ascend"), ("out", "name layers")])
def test_starts_that_cannot_be(starts: str, why: str) -> None:
    more = "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B"
    with pytest.raises(InputError, match=why):
        read(f"{more} --parallelism.pipeline_parallel_split_points {starts}{',norm,norm' * (starts == 'out')}")


def test_new_versions_count_the_embedding_and_the_logits_as_layers() -> None:
    more = "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B "
    more += "--parallelism.pipeline_parallel_layers_per_stage"
    assert read(f"{more} 9", NEW).options["parallel"] == "pp=2,dp=4,vp=2,blocks=8-9-8-7,zero=1"  # 34 in 4 stages
    plain = "--parallelism.pipeline_parallel_degree 2"
    assert read(plain, NEW).options["parallel"] == "pp=2,dp=4,zero=1"  # 17 each, less one
    less = "--parallelism.pipeline_parallel_last_stage_less_layers 3"
    assert read(f"{plain} {less}", NEW).options["parallel"] == "pp=2,dp=4,blocks=17-15,zero=1"
    assert read(f"{plain} {less}").options["parallel"] == "pp=2,dp=4,blocks=18-14,zero=1"
    assert read(f"{more} 8").options["parallel"] == "pp=2,dp=4,vp=2,zero=1"  # 32 in 4 stages


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--training.local_batch_size 2 --training.global_batch_size 32", {"micro_batch": "2", "global_batch": "32"}),
        ("--training.local_batch_size 4 --parallelism.pipeline_parallel_degree 2",
         {"micro_batch": "1", "global_batch": "16"}),
        ("--training.compile", {"compiled": True}),
        ("--compile.enable", {"compiled": True}),
        ("--activation_checkpoint.mode full", {"recompute": True}),
        ("--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
         {"recompute_operators": True}),
        ("--training.enable_cpu_offload", {"offload": "optimizer+parameters"}),
        ("--training.mixed_precision_param float32", {"precision": "fp32"}),
        ("--training.dtype bfloat16", {"precision": "bf16"}),
        ("--optimizer.implementation for-loop", {"optimizer": "adam-loop"}),
        ("--training.seq_len 8192", {"seq_len": "8192"}),
        ("--model.converters float8", {"precision": "master-fp8", "reduce_fp32": True}),
        (f"--model.converters quantize.linear.float8 {REPLICAS}", {"precision": "master-fp8", "parallel": "dp=8"}),
        ("--activation_checkpoint.mode memory_budget", {"recompute_operators": True}),
    ],
)  # fmt: skip
def test_settings(more: str, said: dict[str, object]) -> None:
    assert said.items() <= read(more).options.items()


@pytest.mark.parametrize(
    ("more", "line", "why"),
    [
        ("--parallelism.tensor_parallel_degree 3", OLD, "do not divide 8"),
        ("--parallelism.data_parallel_shard_degree 4", OLD, "4 x 1 ranks of the other degrees is 4, and 8 take part"),
        ("", OLD.replace("8B", "9B"), "llama3 9b; "),
        ("--parallelism.fsdp_reshard_after_forward no", OLD, "'no' is not known"),
        ("--activation_checkpoint.mode all", OLD, "'all' is not known"),
    ],
)
def test_what_cannot_be_is_refused(more: str, line: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read(more, line)


def test_what_has_no_influence_is_not_told() -> None:
    more = "--optimizer.lr 3e-4 --lr_scheduler.warmup_steps 10 --checkpoint.interval 500 --metrics.log_freq 1"
    assert read(f"{more} --activation_checkpoint.mode none").notes == []


@pytest.mark.parametrize(("schedule", "blocks"), [("1F1B", "8"), ("Interleaved1F1B", "4"), ("ZBVZeroBubble", "4")])
def test_layers_recomputed_are_those_of_a_part_of_a_pipeline(schedule: str, blocks: str) -> None:
    more = "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule"
    assert read(f"{more} {schedule}", OLD).options["recompute_blocks"] == blocks


def test_other_schedules_are_told() -> None:
    more = "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule"
    assert any("LoopedBFS: is not modelled; simulated as 1F1B" in note for note in read(f"{more} LoopedBFS").notes)
    for theirs, ours in (("ZBVZeroBubble", "zb-v"), ("DualPipeV", "dualpipe-v")):
        found = read(f"{more} {theirs}")
        assert found.options["parallel"] == f"pp=2,dp=4,schedule={ours},zero=1"
        assert not any(theirs in note for note in found.notes)
    with pytest.raises(InputError, match="ZBVZeroBubble has 4 stages"):
        read(f"{more} ZBVZeroBubble --parallelism.pipeline_parallel_layers_per_stage 4")


def test_its_file_is_read_behind_the_line(tmp_path: Path) -> None:
    file = tmp_path / "llama3_8b.toml"
    file.write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\ncompile = true\n'
        '[activation_checkpoint]\nmode = "none"\n[parallelism]\ntensor_parallel_degree = 2\n'
    )
    line = f"torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file {file}"
    found = read("--training.seq_len 4096", line)
    assert found.options["workload"] == "llama3-8b"
    assert found.options["parallel"] == "tp=2,dp=4,sp,fsdp"
    assert found.options["seq_len"] == "4096"
    assert found.options["compiled"] is True
    assert found.options["micro_batch"] == "1"
    assert "recompute" not in found.options
    assert found.notes == []


EXPERTS = "torchrun --nproc-per-node 8 -m torchtitan.train --model.name deepseek_v3 --model.flavor 16B"


def test_experts_are_divided_as_it_says() -> None:
    more = "--parallelism.tensor_parallel_degree 2 --parallelism.expert_parallel_degree 4"
    assert read(more, EXPERTS).options["parallel"] == "tp=2,dp=4,ep=4,sp,fsdp"
    more += " --parallelism.expert_tensor_parallel_degree"
    assert read(f"{more} 2", EXPERTS).options["parallel"] == "tp=2,dp=4,ep=4,sp,fsdp"
    more += " 1 --parallelism.expert_parallel_comm_backend deepep"
    assert read(more, EXPERTS).options["parallel"] == "tp=2,dp=4,ep=4,etp=1,flex,sp,fsdp"


def test_settings_of_8_bits_count_where_layers_are_converted(tmp_path: Path) -> None:
    """Its files have them all, in sections within sections, whether or not a converter reads them."""
    file = tmp_path / "llama3_405b.toml"
    text = (
        '[model]\nname = "llama3"\nflavor = "405B"\nconverters = [%s]\n[training.dataloader]\nnum_workers = 4\n'
        '[compile]\nenable = true\ncomponents = ["model", "loss"]\n[quantize.linear.float8]\n'
        'enable_fsdp_float8_all_gather = true\nfilter_fqns = ["output"]\n[activation_checkpoint]\nmode = "none"\n'
    )
    line = f"torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file {file}"
    file.write_text(text % "")
    found = read("", line)
    assert (found.options["precision"], found.notes) == ("amp-bf16", [])
    file.write_text(text % '"quantize.linear.float8"')
    found = read("", line)
    assert (found.options["precision"], found.options["compiled"]) == ("master-fp8", True)
    assert [note.partition(": ")[0] for note in found.notes] == [
        "--quantize.linear.float8.enable-fsdp-float8-all-gather"
    ]


def test_what_is_simulated_instead_is_told() -> None:
    for more, said in (
        ("--model.converters quantize.linear.mx", "is simulated as fp8"),
        ("--model.converters lora", "is not modelled"),
        ("--compile.enable --compile.components loss", "nothing is compiled"),
        ("--activation_checkpoint.mode memory_budget", "simulated as selective, op"),
    ):
        assert any(said in note for note in read(more).notes)
    assert "compiled" not in read("--compile.enable --compile.components loss").options


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("a = [")
    with pytest.raises(InputError, match=r"x.toml:1:1: is not TOML"):
        read("", f"torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file {file}")
