"""Wording about steps: bends, times, typing errors, heads, baselines."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from reports.curves import _machines
from simulator.cli import run
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.results.step_view import change_words
from simulator.results.training_run import Alternative
from simulator.search import run as searched
from simulator.search.run import curve_of
from simulator.units import format_duration


def results(*efficiencies: float) -> list:
    return [
        SimpleNamespace(device_count=n, throughput=n * each, samples=n)
        for n, each in zip((8, 16, 32, 64), efficiencies, strict=False)
    ]


def test_what_grows_faster_than_devices_does_not_bend(monkeypatch) -> None:
    monkeypatch.setattr(searched, "_cause", lambda before, after: "why")
    assert curve_of(results(1.0, 1.023, 1.023)).knee is None
    assert curve_of(results(1.0, 1.05, 1.04)).knee is None
    knee = curve_of(results(1.0, 1.05, 1.05, 0.84)).knee
    assert knee is not None
    assert (knee.before, knee.after, knee.drop) == (32, 64, pytest.approx(0.2))


def test_a_title_names_all_sizes_of_machines() -> None:
    assert _machines("dgx-h100", "32 x dgx-h100") == "1 to 32 x dgx-h100"
    assert _machines("2 x dgx-h100", "32 x dgx-h100") == "2 to 32 x dgx-h100"
    assert _machines("dgx-h100", "dgx-h100") == "dgx-h100"


@pytest.mark.parametrize(
    ("seconds", "words"), [(86400, "24 h"), (9999, "9999 s"), (1e5, "27.78 h"), (1.8e8, "50,000 h")]
)
def test_long_times_have_no_exponent(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_samples_are_named_where_another_batch_has_others() -> None:
    step = SimpleNamespace(samples=16, sample="sequences")
    question = SimpleNamespace(programs=1, batch=2, micro_batches=8)
    result = SimpleNamespace(step=step, question=question, shares=(), samples=128)
    assert change_words(Alternative("--compile", 1.0, True, 2, 16), result) == "--compile"
    assert change_words(Alternative("--batch 4", 1.0, True, 4, 32), result) == "--batch 4 (per 16 sequences)"


def test_a_step_divided_best_has_the_same_samples_with_each_change() -> None:
    step = SimpleNamespace(samples=6, sample="sequences")  # of the device that is shown; others have 3
    question = SimpleNamespace(programs=1, batch=4, micro_batches=1)
    result = SimpleNamespace(step=step, question=question, shares=(("gpu0", "", 6), ("gpu1", "", 3)), samples=12)
    assert change_words(Alternative("--compile", 1.0, True, 4, 4), result) == "--compile"
    assert change_words(Alternative("--batch 8", 1.0, True, 8, 8), result) == "--batch 8 (per 12 sequences)"


@pytest.mark.parametrize(
    ("words", "told", "not_told"),
    [
        (["--staleness", "2"], "--staleness: is for --strategy parameter-server; others wait for all", "--lose"),
        (
            ["--gradient-as-bucket-view", "--overlap", "none"],
            "--framework pytorch and the buckets of --overlap",
            "nccl",
        ),
        (["--offload", "optimizer", "--offload-to", "nvme"], "takes --parallel fsdp; each rank", "zero=2"),
        (
            ["--mode", "inference", "--offload", "optimizer", "--offload-to", "nvme"],
            "--offload: is about training, and --mode inference updates nothing",
            "--offload-to: applies",
        ),
        *(
            (["--mode", "forward", *words], f"{words[0]}: is {why}, and --mode forward", "nccl")
            for words, why in (
                (["--recompute"], "for the backward pass"),
                (["--recompute-attention"], "for the backward pass"),
                (["--gradient-as-bucket-view"], "about an exchange"),
                (["--mtbf", "1000h"], "about training"),
            )
        ),
        (["--libraries", "torch-9.9"], "a version of PyTorch, torch-1.0 to torch-2.9", "torch-2.1"),
        (["--precision", "mxfp8"], "--precision mxfp8: no such choice; did you mean 'master-fp8'?", "allowed"),
        (["--precision", "zzz"], "master-bf16, master-fp16, master-fp8, nvfp4, tf32, torch", "in all"),
        (["--workload", "llama3-8b", "--parallel", "tp=3"], "does not divide the 32 heads of", "keys and values"),
        (["--workload", "llama3-8b", "--parallel", "tp=16"], "does not divide the 8 heads of keys and values", "32"),
    ],
)
def test_errors_say_what_is_meant(words: list[str], told: str, not_told: str, capsys) -> None:
    nodes = ["--nodes", "6"] if "--parallel" in words else []
    assert run(["--topology", "dgx-h100", *nodes, "--batch", "1", "--quiet", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert not_told not in error


def test_a_typing_error_in_a_launch_line_is_told() -> None:
    line = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hiden-size 64 --num-attention-heads 4"
    with pytest.raises(InputError, match="--hiden-size: is not known; did you mean '--hidden-size'"):
        read_launch(line)
    with pytest.raises(InputError, match="--hidden-size: is missing"):
        read_launch(line.replace("hiden-size", "ffn-hidden-size"))


def test_throughput_is_of_a_device_above_and_of_all_in_results(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "resnet18", "--batch", "4", "--json", "--quiet"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["throughput_per_s"] * 8 == pytest.approx(found["results"][0]["throughput_per_s"], rel=1e-6)


def test_a_point_of_a_curve_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scale", "--topology", "p3.8xlarge", "--gpus", "4..8", "--workload", "lenet", "--batch", "1"]) == 2
    assert capsys.readouterr().err == "simulate: --gpus 8: p3.8xlarge has 4 GPUs\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "--topology dgx-h100 --gpus 1 --workload resnet18 --batch 8 --precision amp-fp16",
            "4.7 to 31 s longer in eight",
        ),
        ("--topology dgx-h100 --gpus 1 --workload resnet18 --batch 8 --precision fp32", "longer, and not measured"),
        ("--topology dgx-h100 --workload bert-base --batch 2", "0.6 to 4.9 s longer in nine logs of BERT"),
        ("--topology dgx-h100 --nodes 2 --workload resnet18 --batch 8", "longer, and not measured"),
        ("--topology dgx-h100 --gpus 1 --workload resnet18 --batch 8 --cuda-graph", "longer, and not measured"),
        ("--topology dgx-h100 --gpus 1 --workload lenet --batch 8 --mode inference", "longer, and not measured"),
        ("--topology 8x-mi300x --gpus 1 --workload resnet18 --batch 8", "longer, and not measured"),
    ],
)
def test_a_first_step_is_what_logs_of_such_steps_say(words: str, told: str, capsys) -> None:
    """No step is simulated as the first of a run; without logs of its kind there is no figure."""
    assert run([*words.split(), "-v"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("first step")]
    assert told in line
    assert run(words.split()) == 0
    assert "first step" not in capsys.readouterr().out
