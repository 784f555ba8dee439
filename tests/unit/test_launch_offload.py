"""Launch lines that keep something in the host's memory become ``--offload``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.launch.launch import read_launch
from tests.unit.test_launch_refused import ACCELERATE, GPT, TRAINER, by_file

CPU = {"device": "cpu", "pin_memory": True}


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        ({"stage": 2, "offload_optimizer": CPU}, {"parallel": "dp=8,zero=2", "offload": "optimizer"}),
        ({"stage": 1, "cpu_offload": True}, {"parallel": "dp=8,zero=1", "offload": "optimizer"}),
        (
            {"stage": 3, "offload_optimizer": CPU},
            {"parallel": "dp=8,fsdp", "offload": "optimizer", "framework": "deepspeed-zero3"},
        ),
        (
            {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
            {"parallel": "dp=8,fsdp", "offload": "optimizer+parameters", "framework": "deepspeed-zero3"},
        ),
        (
            {"stage": 2, "offload_optimizer": CPU, "round_robin_gradients": True},
            {"offload": "optimizer", "round_robin_gradients": True},
        ),
    ],
)
def test_deepspeeds_sections(zero: dict[str, object], expected: dict[str, object], tmp_path: Path) -> None:
    found = by_file(tmp_path, zero)
    assert expected.items() <= found.options.items()
    assert found.notes == []
    assert ("round_robin_gradients" in found.options) is ("round_robin_gradients" in zero)


def test_copies_go_bucket_by_bucket_whether_they_overlap_or_not(tmp_path: Path) -> None:
    for overlaps in (True, False):
        zero = {"stage": 2, "offload_optimizer": CPU, "overlap_comm": overlaps, "reduce_bucket_size": 50_000_000}
        found = by_file(tmp_path, zero, bf16={"enabled": True})
        assert found.options["overlap"] == "bucket:100MB"
        assert found.options["prefetch"] is False


def test_one_gpu_has_no_shards_and_offloads_too(tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 1 train.py --deepspeed_config {}"
    zero = {"stage": 2, "offload_optimizer": CPU, "reduce_bucket_size": 50_000_000, "round_robin_gradients": True}
    found = by_file(tmp_path, zero, line, bf16={"enabled": True})
    assert (found.options["offload"], found.options["overlap"]) == ("optimizer", "bucket:100MB")
    assert not {"parallel", "prefetch", "round_robin_gradients"} & found.options.keys()
    path = tmp_path / "ds.json"
    words = ["--topology", "dgx-h100", "--workload", "gpt2", "--set", "layers=2", "--launch", line.format(path)]
    assert run([*words, "--json"]) == 0


@pytest.mark.parametrize(
    ("zero", "note"),
    [
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, "offload_optimizer.pin_memory: is not on"),
        ({"stage": 2, "offload_optimizer": {**CPU, "ratio": 0.3}}, "ratio: is not modelled"),
        ({"stage": 2, "offload_optimizer": CPU, "offload_param": CPU}, "offload_param: is for stage 3"),
        ({"stage": 0, "offload_optimizer": CPU}, "is for shards (stages 1 to 3), and without effect"),
    ],
)
def test_what_is_simulated_otherwise_is_told(zero: dict[str, object], note: str, tmp_path: Path) -> None:
    (told,) = by_file(tmp_path, zero).notes
    assert note in told


def test_torchs_adam_goes_from_tensor_to_tensor(tmp_path: Path) -> None:
    zero = {"stage": 2, "offload_optimizer": CPU}
    plain = by_file(tmp_path, zero, optimizer={"type": "Adam", "params": {"torch_adam": True}}).options
    assert plain["optimizer"] == "adam-loop"
    assert "fused_optimizer" not in plain
    fused = by_file(tmp_path, zero, optimizer={"type": "Adam"}).options
    assert (fused["optimizer"], fused["fused_optimizer"]) == ("adam", True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{TRAINER} --fsdp 'full_shard offload auto_wrap'", ("optimizer+parameters", None)),
        (ACCELERATE.format("--use_fsdp --fsdp_offload_params true"), ("optimizer+parameters", None)),
        (
            ACCELERATE.format("--use_deepspeed --zero_stage 2 --offload_optimizer_device cpu"),
            ("optimizer", None),
        ),
        (
            ACCELERATE.format(
                "--use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --offload_param_device cpu"
            ),
            ("optimizer+parameters", "deepspeed-zero3"),
        ),
        (
            "torchrun --nproc-per-node 8 t.py --model gpt2 --batch_size 1 --strategy deepspeed_stage_2_offload",
            ("optimizer", None),
        ),
        (
            "torchrun --nproc-per-node 8 t.py --model gpt2 --batch_size 1 --strategy deepspeed_stage_3_offload",
            ("optimizer+parameters", "deepspeed-zero3"),
        ),
        (
            "torchrun --nproc-per-node 8 t.py --model gpt2 --batch_size 1 --enable_fsdp --fsdp_cpu_offload",
            ("optimizer+parameters", None),
        ),
    ],
)
def test_words_of_others(line: str, expected: tuple[str, str | None]) -> None:
    found = read_launch(line).options
    assert (found["offload"], found.get("framework")) == expected


def test_megatron_lines_with_deepspeed(tmp_path: Path) -> None:
    line = f"{GPT} --cpu-optimizer --deepspeed --deepspeed_config {{}}"
    found = by_file(tmp_path, {"stage": 2, "offload_optimizer": CPU}, line)
    assert found.options["offload"] == "optimizer"


def test_a_line_is_answered_as_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds.json"
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "Adam"},
        "zero_optimization": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
    }
    path.write_text(json.dumps(settings), encoding="utf-8")
    network = ["--topology", "dgx-h100", "--workload", "gpt2", "--set", "layers=2", "--json"]
    answers = []
    for words in (
        ["--launch", f"deepspeed --num_gpus 8 --bind_cores_to_rank train.py --deepspeed_config {path}"],
        [
            *("--batch", "1", "--parallel", "fsdp", "--offload", "optimizer+parameters", "--precision", "master-bf16"),
            *("--optimizer", "adam", "--fused-optimizer", "--framework", "deepspeed-zero3", "--bind-cores-to-rank"),
        ],
    ):
        assert run([*network, *words]) == 0
        answers.append(json.loads(capsys.readouterr().out)["results"][0])
    assert answers[0]["offload"] == answers[1]["offload"]
    assert answers[0]["step_time_s"] == answers[1]["step_time_s"]


def test_several_ranks_of_a_host_need_cores_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds.json"
    zero = {"stage": 2, "offload_optimizer": CPU}
    settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    path.write_text(json.dumps(settings), encoding="utf-8")
    network = ["--topology", "dgx-h100", "--workload", "gpt2", "--set", "layers=2", "--json"]
    for word, status in (("", 2), ("--bind_cores_to_rank ", 0)):
        line = f"deepspeed --num_gpus 2 {word}train.py --deepspeed_config {path}"
        assert run([*network, "--launch", line]) == status
    assert "2 ranks share a host's cores" in capsys.readouterr().err
