"""Configuration files of launch lines: each key is used, known not to matter, or told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.launch.arguments import divides, is_off, is_on
from simulator.launch.launch import LaunchLine, read_launch

TRAINER = "torchrun --nproc-per-node 8 train.py --per_device_train_batch_size 4 --bf16"
ACCELERATE = "accelerate launch --config_file {} train.py --per_device_train_batch_size 4"
# As `accelerate config` writes it, with its defaults.
FSDP = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""


def by_yaml(folder: Path, text: str) -> LaunchLine:
    path = folder / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return read_launch(ACCELERATE.format(path))


def by_json(folder: Path, settings: dict[str, object], line: str) -> LaunchLine:
    path = folder / "f.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return read_launch(line.format(path))


def test_a_file_as_accelerate_writes_it_needs_no_remark(tmp_path: Path) -> None:
    found = by_yaml(tmp_path, FSDP)
    assert (found.options["parallel"], found.options["precision"], found.notes) == ("dp=8,fsdp", "amp-bf16", [])


@pytest.mark.parametrize(
    ("was", "new", "note"),
    [
        ("debug: false", "quux: 3", "not known, and without effect: --quux"),
        ("debug: false", "quux: [1, 2]", "not known, and without effect: --quux"),
        ("debug: false", "quux: {inner: 1.5}", "not known, and without effect: --inner"),
        ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "--fsdp-auto-wrap-policy: is not modelled; FSDP's units are"),
        ("BACKWARD_PRE", "BACKWARD_POST", "--fsdp-backward-prefetch: is not modelled; "),
        ("forward_prefetch: false", "forward_prefetch: true", "--fsdp-forward-prefetch: is not modelled; "),
        ("debug: false", "dynamo_config: {dynamo_backend: AOT_EAGER}", "--dynamo-backend AOT_EAGER: is not modelled"),
    ],
)
def test_what_is_not_simulated_is_told(was: str, new: str, note: str, tmp_path: Path) -> None:
    (told,) = by_yaml(tmp_path, FSDP.replace(was, new)).notes
    assert note in told


def test_sections_that_accelerate_does_not_read_say_nothing(tmp_path: Path) -> None:
    found = by_yaml(tmp_path, f"{FSDP}deepspeed_config: {{zero_stage: 3, offload_param_device: cpu}}\n")
    assert (found.options["parallel"], found.notes) == ("dp=8,fsdp", [])


@pytest.mark.parametrize(
    ("more", "layout"),
    [
        ("  fsdp_version: 2\n  fsdp_reshard_after_forward: false", "dp=8,zero=2"),
        ("  fsdp_version: 2\n  fsdp_reshard_after_forward: 'no'", "dp=8,zero=2"),
        ("  fsdp_version: 2\n  fsdp_reshard_after_forward: true", "dp=8,fsdp"),
        ("  fsdp_reshard_after_forward: HYBRID_SHARD", "dp=8,fsdp"),
    ],
)
def test_resharding_decides_the_stage(more: str, layout: str, tmp_path: Path) -> None:
    assert by_yaml(tmp_path, FSDP.replace("  fsdp_use_orig_params: true", more)).options["parallel"] == layout


def test_meshes_of_accelerate(tmp_path: Path) -> None:
    mesh = "parallelism_config: {{parallelism_config_dp_replicate_size: {}, parallelism_config_dp_shard_size: {}}}\n"
    assert by_yaml(tmp_path, FSDP + mesh.format(2, 4)).options["parallel"] == "dp=8,fsdp=4"
    assert by_yaml(tmp_path, FSDP + mesh.format(1, 8)).options["parallel"] == "dp=8,fsdp"
    with pytest.raises(
        InputError, match=r"a\.yaml:29:\d+: --parallelism-config-tp-size: is not read; .* --parallel tp=2"
    ):
        by_yaml(tmp_path, f"{FSDP}parallelism_config: {{parallelism_config_tp_size: 2}}\n")


@pytest.mark.parametrize(
    ("settings", "layout", "note"),
    [
        ({"version": 2, "reshard_after_forward": False}, "dp=8,zero=2", None),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": "no"}, "dp=8,zero=2", None),
        ({"version": 2, "reshard_after_forward": True, "limit_all_gathers": True}, "dp=8,fsdp", None),
        ({"transformer_layer_cls_to_wrap": ["GPT2Block"], "use_orig_params": "true"}, "dp=8,fsdp", None),
        ({"min_num_params": 100000}, "dp=8,fsdp", "--fsdp-min-num-params: is not modelled; FSDP's units are"),
        ({"min_num_params": 0}, "dp=8,fsdp", None),
        ({"reshard_quux": False}, "dp=8,fsdp", "f.json: not known, and without effect: --fsdp-reshard-quux"),
    ],
)
def test_the_file_of_fsdps_settings(settings: dict[str, object], layout: str, note: str | None, tmp_path: Path) -> None:
    found = by_json(tmp_path, settings, TRAINER + " --fsdp full_shard --fsdp_config {}")
    assert found.options["parallel"] == layout
    assert len(found.notes) == (note is not None)
    assert note is None or note in found.notes[0]


def test_a_misspelt_key_of_a_file_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a.yaml:12:\d+: --fsdp-ofload: .* mean '--fsdp-offload'"):
        by_yaml(tmp_path, FSDP.replace("  fsdp_offload_params: false", "  fsdp_ofload: 1"))
    with pytest.raises(InputError, match=r"f.json:1:\d+: --fsdp-reshard-after-foward: .*-forward'"):
        by_json(tmp_path, {"reshard_after_foward": False}, TRAINER + " --fsdp full_shard --fsdp_config {}")


DS = "deepspeed --num_gpus 8 train.py --deepspeed_config {}"


@pytest.mark.parametrize(
    ("zero", "options"),
    [
        ({"stage": 2}, {"overlap": "none"}),
        ({"stage": 0}, {"overlap": "none"}),
        ({"stage": 1, "overlap_comm": True}, {"overlap": "bucket:1000MB", "prefetch": False}),
        ({"stage": 2, "overlap_comm": True, "reduce_bucket_size": 2e8}, {"overlap": "bucket:400MB", "prefetch": False}),
        ({"stage": 3}, {"framework": "deepspeed-zero3"}),
    ],
)
def test_deepspeed_exchanges_as_its_file_says(
    zero: dict[str, object], options: dict[str, object], tmp_path: Path
) -> None:
    """Stages below 3 exchange after the backward pass unless ``overlap_comm`` is on (its runtime/zero/config.py)."""
    settings = {"zero_optimization": zero, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    found = by_json(tmp_path, settings, DS).options
    assert {name: found.get(name) for name in ("overlap", "prefetch", "framework")} == {
        **dict.fromkeys(("overlap", "prefetch", "framework")),
        **options,
    }


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ({"type": "AdamW", "params": {"lr": 1e-4}}, {"optimizer": "adam", "fused_optimizer": True}),
        ({"type": "Adam", "params": {"torch_adam": True}}, {"optimizer": "adam"}),
        ({"type": "SGD", "params": {"momentum": 0.9}}, {"optimizer": "momentum"}),
    ],
)
def test_deepspeeds_update(optimizer: dict[str, object], options: dict[str, object], tmp_path: Path) -> None:
    found = by_json(tmp_path, {"optimizer": optimizer, "train_micro_batch_size_per_gpu": 1}, DS).options
    assert {name: found[name] for name in ("optimizer", "fused_optimizer") if name in found} == options


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        (
            {"zero_optimization": {"stage": 2, "reduce_bucket_sise": 1}},
            "without effect: zero_optimization.reduce_bucket_sise",
        ),
        ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, "master weights are in fp32"),
        ({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}}, "unit by unit, one unit ahead"),
        ({"zero_optimization": {"stage": 3, "overlap_comm": False}}, "overlap_comm false: is not modelled"),
        ({"communication_data_type": "fp32"}, "communication_data_type: is not modelled; gradients go as they are"),
        ({"optimizer": {"type": "Lion"}}, "optimizer.type Lion: is not modelled; simulated as Adam"),
    ],
)
def test_keys_of_deepspeed_that_are_not_simulated_are_told(
    settings: dict[str, object], note: str, tmp_path: Path
) -> None:
    (told,) = by_json(tmp_path, {"train_micro_batch_size_per_gpu": 1, **settings}, DS).notes
    assert note in told


def test_what_is_on_and_off_is_so_everywhere(tmp_path: Path) -> None:
    for said in ("true", "True", "1", "yes", "Y", "on", True, 1):
        assert (is_on(said), is_off(said)) == (True, False)
        settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": said}}
        assert by_json(tmp_path, settings, DS).options["precision"] == "master-bf16"
        assert read_launch(f"{TRAINER} --gradient_checkpointing {said}").options["recompute"] is True
    for said in ("false", "0", "No", "n", "off", "none", False, 0, None):
        assert (is_on(said), is_off(said), divides(said)) == (False, True, False)
        settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": said}}
        assert by_json(tmp_path, settings, DS).options["precision"] == "fp32"
        assert "recompute" not in read_launch(f"{TRAINER} --gradient_checkpointing {said}").options
    with pytest.raises(InputError, match=r"f\.json:1:\d+: bf16\.enabled: must be true or false; got 7"):
        by_json(tmp_path, {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": 7}}, DS)
    with pytest.raises(InputError, match="--gradient-checkpointing: 'maybe' is neither true nor false"):
        read_launch(f"{TRAINER} --gradient_checkpointing maybe")


JOB = """\
#!/bin/bash
#SBATCH -N4
#SBATCH --ntasks-per-node=1   # one launcher each
#SBATCH --gres=gpu:a100:8
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_id $SLURM_JOB_ID \\
    train.py --per_device_train_batch_size 4 --gradient_accumulation_steps $((64 / SLURM_JOB_NUM_NODES / 8))
"""


def test_a_job_has_the_variables_that_its_lines_give(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(JOB, encoding="utf-8")
    found = read_launch(f"@{path}").options
    assert (found["nodes"], found["parallel"], found["global_batch"]) == ("4", "dp=32", "256")
    path.write_text(JOB.replace("$SLURM_NNODES", "$SLURM_NTASKS"), encoding="utf-8")
    assert read_launch(f"@{path}").options["nodes"] == "4"
    path.write_text(JOB.replace("--gres=gpu:a100:8", "--gpus-per-node=a100:2"), encoding="utf-8")
    assert read_launch(f"@{path}").options["parallel"] == "dp=8"
    path.write_text(JOB.replace("--gres=gpu:a100:8", "--gpus-per-task=4"), encoding="utf-8")
    assert read_launch(f"@{path}").options["parallel"] == "dp=16"
    path.write_text(JOB.replace("#SBATCH -N4", "##SBATCH -N4").replace("#SBATCH --n", "#"), encoding="utf-8")
    assert "nodes" not in read_launch(f"@{path}").options  # a job without a number of nodes has one
    path.write_text(JOB.replace("#SBATCH", "#"), encoding="utf-8")
    with pytest.raises(InputError, match=r"\$SLURM_NNODES is set nowhere"):
        read_launch(f"@{path}")


@pytest.mark.parametrize(
    ("before", "options"),
    [
        ("srun --nodes=4 --ntasks=4 torchrun --nproc-per-node 8", {"nodes": "4", "parallel": "dp=32"}),
        ("srun --nodes=4 --ntasks-per-node=8 python", {"nodes": "4", "parallel": "dp=32"}),
        ("mpirun -np 16 -H a:8,b:8 python", {"nodes": "2", "parallel": "dp=16"}),
        ("mpirun -np 16 -N 8 --bind-to none python", {"nodes": "2", "parallel": "dp=16"}),
        ("mpirun -np 16 --map-by ppr:4:node python", {"nodes": "4", "parallel": "dp=16"}),
        ("torchrun --nnodes=1:4 --nproc_per_node=8 --rdzv_id 1", {"nodes": "4", "parallel": "dp=32"}),
        ("torchrun", {"gpus": "1"}),
        ("deepspeed --include localhost:0,1,2", {"gpus": "3", "parallel": "dp=3"}),
        ("CUDA_VISIBLE_DEVICES=0,2 accelerate launch --multi_gpu", {"gpus": "0,2", "parallel": "dp=2"}),
        ("CUDA_VISIBLE_DEVICES=0 python", {"gpus": "1"}),
    ],
)
def test_launchers_start_as_many_as_they_say(before: str, options: dict[str, str]) -> None:
    found = read_launch(f"{before} train.py --per_device_train_batch_size 4", 8).options
    assert {name: found[name] for name in ("nodes", "gpus", "parallel") if name in found} == options
