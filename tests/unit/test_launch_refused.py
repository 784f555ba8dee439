"""Launch lines and configurations whose step is another one than the one simulated: refused, with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.errors import InputError
from simulator.launch.arguments import NOT_MODELLED, REFUSED
from simulator.launch.launch import LaunchLine, read_launch

GPT = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 "
    "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 1000 --micro-batch-size 1 --global-batch-size 8 "
    "--transformer-impl transformer_engine --bf16"
)
TRAINER = "torchrun --nproc-per-node 8 train.py --per_device_train_batch_size 4 --bf16"
ACCELERATE = "accelerate launch --num_processes 8 --mixed_precision bf16 {} train.py --per_device_train_batch_size 4"
FAR_OFF = "moves data between GPU and host in every step, which is not modelled"
DISKS = "reads and writes disks in every step, and the line does not say which"
HELD = "add --offload optimizer or optimizer+parameters"


def by_file(folder: Path, zero: dict[str, object], line: str = "", **more: object) -> LaunchLine:
    path = folder / "ds.json"
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, **more}
    path.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return read_launch((line or "deepspeed --num_gpus 8 train.py --deepspeed_config {}").format(path))


OFF: list[dict[str, object]] = [
    {},
    {"offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}},
    {"offload_optimizer": {}, "offload_param": None},
    {"cpu_offload": False, "zero_hpz_partition_size": 1, "zero_quantized_weights": False, "mics_shard_size": -1},
]


@pytest.mark.parametrize("off", OFF)
def test_settings_that_are_off_are_no_reason(off: dict[str, object], tmp_path: Path) -> None:
    found = by_file(tmp_path, {"stage": 3, **off}, activation_checkpointing={"cpu_checkpointing": False})
    assert (found.options["parallel"], found.notes) == ("dp=8,fsdp", [])


@pytest.mark.parametrize(
    ("zero", "more", "place", "why"),
    [
        ({"offload_optimizer": {"device": "nvme"}}, {}, "zero_optimization.offload_optimizer.device", DISKS),
        ({"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"}}, {}, "offload_param.device", DISKS),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, {}, "offload_param.device", "offload_optimizer too is"),
        ({"offload_optimizer": {"device": "gpu"}}, {}, "offload_optimizer.device", "'gpu' is not known; cpu, nvme"),
        ({"stage": 3, "cpu_offload_params": True}, {}, "zero_optimization.cpu_offload_params", "too is"),
        ({"offload_optimizer": "cpu"}, {}, "zero_optimization.offload_optimizer", "must be a mapping; got cpu"),
        ({}, {"activation_checkpointing": {"cpu_checkpointing": True}}, "cpu_checkpointing", FAR_OFF),
        ({"zero_quantized_gradients": True}, {}, "zero_quantized_gradients", "fewer bits"),
        ({"zero_hpz_partition_size": 8}, {}, "zero_hpz_partition_size", "within a node"),
        ({}, {"optimizer": {"type": "OneBitAdam"}}, "optimizer.type", "fewer bits"),
        ({}, {"sequence_parallel_size": 4}, "sequence_parallel_size", "--parallel cp=2"),
        ({}, {"sparse_attention": {"mode": "fixed"}}, "sparse_attention.mode", "some of the tokens"),
    ],
)
@pytest.mark.parametrize("line", ["", TRAINER + " --deepspeed {}", GPT + " --deepspeed --deepspeed_config {}"])
def test_deepspeeds_configuration(
    zero: dict[str, object], more: dict[str, object], place: str, why: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        by_file(tmp_path, {"stage": 2, **zero}, line, **more)
    told = error.value.spelt("command")
    assert told.startswith(f"{tmp_path}/ds.json:")
    assert f"{place}: " in told
    assert why in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("line", "name", "why"),
    [
        (f"{GPT} --optimizer-cpu-offload --optimizer-offload-fraction 0.5", "optimizer-cpu-offload", FAR_OFF),
        (f"{GPT} --cpu-offloading-num-layers 2", "cpu-offloading-num-layers", FAR_OFF),
        (f"{GPT} --fine-grained-activation-offloading --offload-modules core_attn", "fine-grained", FAR_OFF),
        (f"{GPT} --cpu-optimizer", "cpu-optimizer", HELD),
        (f"{TRAINER} --cpu_offload true", "cpu-offload", HELD),
        (f"{GPT} --remote-device nvme", "remote-device", FAR_OFF),
        (f"{GPT} --window-size 128,0", "window-size", "attention to 129 of 1,024 tokens"),
        (f"{GPT} --yaml-cfg x.yaml", "yaml-cfg", "write its settings as arguments"),
        (f"{GPT} --hybrid-override-pattern M-M*", "hybrid-override-pattern", "layers other than attention"),
        (f"{TRAINER} --load_in_8bit True", "load-in-8bit", "fewer bits"),
        (f"{TRAINER} --load_in_4bit True", "load-in-4bit", "add --lora-r"),
        (f"{TRAINER} --lora_r 8 --quantization_bit 8", "quantization-bit", "8 bits are not modelled; 4 are"),
        (f"{GPT} --load-in-4bit", "load-in-4bit", "fewer bits"),
        (f"{TRAINER} --use_peft", "use-peft", "add --lora-r"),
        (ACCELERATE.format("--use_deepspeed --zero_stage 3 --offload_param_device nvme"), "offload-param", DISKS),
        (ACCELERATE.format("--zero_stage 3 --offload_optimizer_device cpu"), "offload-optimizer", HELD),
        (ACCELERATE.format("--use_megatron_lm"), "use-megatron-lm", "degrees of parallelism are not read"),
        (ACCELERATE.format("--use_fsdp --fsdp_sharding_strategy 7"), "fsdp-sharding-strategy", "'7' is not known"),
    ],
)
def test_arguments(line: str, name: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        read_launch(line)
    told = error.value.spelt("command")
    assert told.startswith(f"--launch: --{name}")
    assert why in told
    assert "\n" not in told


def test_an_argument_that_is_off_is_no_reason() -> None:
    words = "--use_deepspeed --zero_stage 3 --offload_optimizer_device none --offload_param_device none"
    assert read_launch(ACCELERATE.format(words)).options["parallel"] == "dp=8,fsdp"
    assert read_launch(f"{GPT} --remote-device none").options["micro_batch"] == "1"


def test_a_file_of_fsdps_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fsdp.json"
    path.write_text('{"fsdp_offload_params": false, "activation_checkpointing": true}', encoding="utf-8")
    assert read_launch(f"{TRAINER} --fsdp full_shard --fsdp_config {path}").options["recompute"] is True
    path.write_text('{"offload_params": true}', encoding="utf-8")
    found = read_launch(f"{TRAINER} --fsdp full_shard --fsdp_config {path}")
    assert found.options["offload"] == "optimizer+parameters"


ZERO3 = """\
distributed_type: DEEPSPEED
deepspeed_config:
  gradient_accumulation_steps: auto
  offload_optimizer_device: none
  zero_stage: 3
fsdp_config: {fsdp_offload_params: true}
mixed_precision: bf16
num_machines: 2
num_processes: 16
use_cpu: false
"""


def test_accelerates_file_says_what_its_arguments_say(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    line = f"accelerate launch --config_file {path} train.py --per_device_train_batch_size 4"
    path.write_text(ZERO3, encoding="utf-8")
    found = read_launch(line).options
    assert (found["parallel"], found["nodes"], found["precision"]) == ("dp=16,fsdp", "2", "master-bf16")
    assert read_launch(line.replace("train.py", "--zero_stage 2 train.py")).options["parallel"] == "dp=16,zero=2"
    path.write_text(ZERO3.replace("device: none", "device: cpu"), encoding="utf-8")
    assert read_launch(line).options["offload"] == "optimizer"
    path.write_text(ZERO3.replace("device: none", "device: nvme"), encoding="utf-8")
    with pytest.raises(InputError, match=rf"a\.yaml:4:29: --offload-optimizer-device: {DISKS}"):
        read_launch(line)
    path.write_text(ZERO3.replace("DEEPSPEED", "FSDP"), encoding="utf-8")
    assert read_launch(line).options["offload"] == "optimizer+parameters"
    path.write_text("- 1", encoding="utf-8")
    with pytest.raises(InputError, match="is a mapping"):
        read_launch(line)


@pytest.mark.parametrize(
    ("said", "layout"), [("true", "dp=8,fsdp"), ("false", "dp=8,zero=2"), ("SHARD_GRAD_OP", "dp=8,zero=2")]
)
def test_fsdp2_reshards_or_not(said: str, layout: str) -> None:
    found = read_launch(ACCELERATE.format(f"--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward {said}"))
    assert found.options["parallel"] == layout


def test_the_command_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}', encoding="utf-8")
    line = f"deepspeed --num_gpus 8 train.py --deepspeed_config {path}"
    assert run(["--topology", "dgx-h100", "--workload", "llama2-7b", "--launch", line, "--batch", "1"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert DISKS in told


def test_an_argument_has_one_meaning() -> None:
    assert not set(REFUSED) & set(NOT_MODELLED)


# -- what DeepSpeed and FSDP keep ---------------------------------------------------------


@pytest.mark.parametrize("half", [{}, {"bf16": {"enabled": "auto"}}, {"bf16": {"enabled": True}}])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_parameters_are_in_half_precision_under_deepspeed(half: dict[str, object], stage: int, tmp_path: Path) -> None:
    """``auto`` and nothing both end as the Trainer's --bf16 (Accelerate, ``DeepSpeedPlugin.set_mixed_precision``)."""
    found = by_file(tmp_path, {"stage": stage}, TRAINER.replace(" 4", " 1") + " --deepspeed {}", **half)
    assert found.options["precision"] == "master-bf16"


@pytest.mark.parametrize(
    ("half", "precision"),
    [({}, "fp32"), ({"bf16": {"enabled": False}}, "fp32"), ({"fp16": {"enabled": True}}, "master-fp16")],
)
def test_deepspeed_alone_trains_in_fp32_unless_told(half: dict[str, object], precision: str, tmp_path: Path) -> None:
    assert by_file(tmp_path, {"stage": 2}, **half).options["precision"] == precision
    line = "deepspeed --num_gpus 8 train.py --bf16 --deepspeed_config {}"
    assert by_file(tmp_path, {"stage": 2}, line).options["precision"] == "master-bf16"
    assert "precision" not in by_file(tmp_path, {"stage": 2}, bf16={"enabled": "auto"}).options


def test_mics_shards_within_groups(tmp_path: Path) -> None:
    assert by_file(tmp_path, {"stage": 3, "mics_shard_size": 4}).options["parallel"] == "dp=8,fsdp=4"


def test_adapters_are_a_size_of_the_network() -> None:
    assert read_launch(f"{TRAINER} --use_peft --lora_r 16").sizes == {"lora": 16}


@pytest.mark.parametrize(
    ("said", "weights"),
    [
        ("--load_in_4bit", "nf4"),
        ("--use_qlora True --bnb_4bit_quant_type nf4", "nf4"),
        ("--load_in_4bit --use_bnb_nested_quant", "nf4-nested"),
        ("--load_in_4bit true --bnb_4bit_use_double_quant True", "nf4-nested"),
        ("--quantization_bit 4", "nf4-nested"),
        ("--bits 4 --quant_type nf4 --double_quant", "nf4-nested"),
        ("--bits 16", None),
        ("--quantization_bit 4 --double_quantization false", "nf4"),
        ("--load_in_4bit False", None),
    ],
)
def test_adapters_beside_weights_in_four_bits(said: str, weights: str | None) -> None:
    found = read_launch(f"{TRAINER} --lora_r 16 {said}")
    assert found.sizes == {"lora": 16, **({"lora_weights": weights} if weights else {})}
    assert not any("4bit" in note or "quant" in note for note in found.notes)


@pytest.mark.parametrize(
    ("said", "layout"), [("1", "dp=8,fsdp"), ("SHARD_GRAD_OP", "dp=8,zero=2"), ("2", "dp=8,zero=2")]
)
def test_accelerates_strategies_have_numbers_too(said: str, layout: str) -> None:
    found = read_launch(ACCELERATE.format(f"--use_fsdp --fsdp_sharding_strategy {said}"))
    assert found.options["parallel"] == layout
