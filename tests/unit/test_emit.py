"""Steps as launch lines of other programs, and back: ``--emit``."""

from __future__ import annotations

import json
import shlex

import pytest

from simulator.cli import run
from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.launch.emit.emitted import EMITTERS, Emitter
from simulator.launch.emit.parts import Emission
from tests.emitted import asked, judged

STEP = "--topology dgx-h100 --workload llama3-8b --batch 1 --seq-len 2048"


@pytest.mark.parametrize("framework", EMITTERS)
def test_a_line_without_comments_reads_back_as_the_same_plan(framework: Emitter) -> None:
    kinds, wrong = judged(framework, 40)
    assert wrong == []
    assert kinds["same"] >= 10, kinds


@pytest.mark.slow
@pytest.mark.parametrize("framework", EMITTERS)
def test_so_do_many(framework: Emitter) -> None:
    kinds, wrong = judged(framework, 160, first=1000)
    assert wrong == []
    assert kinds["same"] >= 40, kinds


def shown(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(shlex.split(words)) == 0
    return capsys.readouterr().out


def test_what_a_framework_cannot_say_is_a_comment(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(f"{STEP} --parallel fsdp --strategy ring --emit accelerate", capsys)
    assert "# not said: --strategy ring; NCCL exchanges" in text
    text = shown(f"{STEP} --parallel pp=2,schedule=gpipe --framework megatron --emit megatron", capsys)
    assert "# not said: a pipeline in the order of gpipe; 1F1B runs" in text


def test_variables_and_gpus_go_before_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{STEP} --parallel fsdp --gpus 0,2,4,6 --algorithm ring --expandable-segments --emit torchtitan"
    text = shown(words, capsys)
    for said in ("CUDA_VISIBLE_DEVICES=0,2,4,6", "NCCL_ALGO=Ring", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"):
        assert said in text
    mine = CommandOptions(
        topology="dgx-h100", workload="llama3-8b", batch="1", seq_len="2048", parallel=("fsdp",), gpus="0,2,4,6",
        algorithm="ring", expandable_segments=True,
    )  # fmt: skip
    back = asked(with_launch(CommandOptions(topology="dgx-h100", launch=text))[0])
    assert back.gpus == asked(mine).gpus == (0, 2, 4, 6)
    assert back.algorithm == "ring"
    assert back.options == asked(mine).options


def test_deepspeeds_file_is_written_by_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{STEP} --parallel fsdp --framework deepspeed-zero3 --precision master-bf16 --fused-optimizer"
    found = json.loads(shown(f"{words} --emit deepspeed --json", capsys))
    config = json.loads(found["files"]["ds.json"])
    assert config["zero_optimization"]["stage"] == 3
    assert config["bf16"] == {"enabled": True}
    assert found["not_said"] == []
    assert found["line"].startswith("deepspeed --num_gpus 8 train.py --model_name_or_path llama3-8b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{STEP} --emit megatorn", "--emit megatorn: no such choice; did you mean 'megatron'?"),
        (f"{STEP} --emit megatron", "add it"),
        (f"{STEP} --framework megatron --precision bf16 --emit megatron", "has no --precision bf16"),
        (f"{STEP} --parallel tp=8 --emit accelerate", "has no --parallel tp=8"),
        (f"{STEP} --precision amp-bf16 --emit deepspeed", "has no --precision amp-bf16"),
        (f"{STEP} --mode forward --emit torchtitan", "is of training"),
        ("--topology dgx-h100 --workload resnet50 --batch 8 --emit accelerate", "is of language models"),
        ("--topology dgx-h100 --workload gpt2 --batch 8 --emit torchtitan", "has no options for gpt2"),
        ("--topology dgx-h100 --workload bert-base --batch 8 --framework megatron --precision fp32 --emit megatron",
         "has no options for bert-base"),
        (f"{STEP} --parallel dp --parallel fsdp --emit accelerate", "name one of each"),
        ("--topology dgx-h100 --workload bytes:1MB --emit megatron", "is about a step"),
    ],
)  # fmt: skip
def test_what_has_no_line_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_each_row_of_a_search_has_its_command_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = "best --topology dgx-h100 --gpus 4 --workload gpt2 --set layers=2 --seq-len 256 --global-batch 16 --jobs 1 "
    words += "--framework megatron --parallel tp=2 --top 3"
    assert "next: run the fastest (--json has the commands of the others):" in shown(words, capsys)
    text = shown(f"{words} --emit megatron", capsys)
    assert text.count("pretrain_gpt.py") == 3
    rows = json.loads(shown(f"{words} --emit megatron --json", capsys))["ranking"]
    assert len(rows) == 3
    for row in rows:
        assert row["launch"]["line"].startswith("torchrun --nproc-per-node 4 pretrain_gpt.py")
        again = json.loads(shown(f"{row['command'].removeprefix('simulate ')} --json", capsys))["results"][0]
        assert again["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-9)


def test_a_line_is_its_parts() -> None:
    found = Emission(["torchrun"], ["train.py"])
    found.options = {"--a": "x y", "--b": True, "--c": None}
    found.lacks = {"that": True, "this": False}
    assert found.line == "torchrun train.py --a 'x y' --b"
    assert found.text == "# not said: that\ntorchrun train.py \\\n    --a 'x y' \\\n    --b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--workload gpt3-125m --precision fp16 --optimizer muon --emit megatron",
            "is of --framework megatron; add it",
        ),
        ("--workload resnet18 --emit megatron", "is of language models; resnet18 is none"),
        ("--workload gpt2 --emit megatron", "is of --framework megatron; add it"),
        ("--workload gpt2 --emit torchtitan", "has no options for gpt2; "),
    ],
)
def test_what_no_layout_can_say_is_refused_before_the_search(words: str, said: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("simulator.cli.search_command.find_best", None)
    assert run(["best", "--topology", "p3.16xlarge", "--global-batch", "8", "--jobs", "1", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"simulate: --emit {words.rsplit(maxsplit=1)[-1]}: {said}")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_layout_that_is_refused_alone_stops_no_search(capsys) -> None:
    words = (
        "--topology p3.16xlarge --workload gpt2 --set layers=2 --global-batch 8 --framework deepspeed-zero3 "
        "--parallel fsdp --top 1"
    )
    out = shown(f"best {words} --jobs 1 --emit deepspeed", capsys)
    assert "deepspeed" in out.split("# 1: ")[1]


def test_a_line_is_no_page_and_micro_batches_fit_the_batch(tmp_path, capsys) -> None:
    for option, name in (("--report", "page.html"), ("--trace", "trace.json"), ("--plot", "links.svg")):
        words = f"{STEP} --framework megatron --emit megatron {option} {tmp_path / name}"
        assert run(words.split()) == 2
        assert capsys.readouterr().err.startswith(f"simulate: {option}: shows an answer, and --emit prints")
        assert not (tmp_path / name).exists()
    words = "best --topology dgx-h100 --workload gpt2 --global-batch 64 --micro-batch 65 --jobs 1"
    assert run(words.split()) == 2
    assert capsys.readouterr().err == (
        "simulate: --micro-batch 65: no degrees share 64 samples out in such micro-batches\n"
    )
