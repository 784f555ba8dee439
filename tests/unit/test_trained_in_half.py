"""Default precision and attention of language-model training."""

from __future__ import annotations

import json

import pytest

from simulator.cli import run
from simulator.workload.zoo.registry import find_entry

pytestmark = pytest.mark.usefixtures("answered_once")

GPT = ["--workload", "gpt2", "--batch", "1", "--seq-len", "64", "--set", "layers=1", "--json"]


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str | None]:
    """Return the precision and the attention of a step."""
    assert run(list(arguments)) == 0
    document = json.loads(capsys.readouterr().out)
    (result,) = document["results"]
    return document["options"]["precision"], result["sizes"].get("attention")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "precision"),
    [
        (["dgx-h100", "--device", "gpu0"], "amp-bf16"),
        (["dgx-h100", "--device", "gpu0", "--mode", "inference"], "bf16"),
        (["p3.2xlarge", "--device", "gpu0"], "amp-fp16"),  # V100: no bf16
        (["1x-gtx-1080"], "torch"),  # fp16 at a 64th of the rate
        (["p3.2xlarge", "--device", "cpu"], "torch"),
        (["dgx-h100", "--gpus", "2"], "amp-bf16"),
    ],
)
def test_language_models_train_in_half_precision_where_the_device_has_it(
    machine: list[str], precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = "fused-native" if "dgx-h100" in machine else "fused"  # where PyTorch prefers cuDNN
    assert asked(capsys, "--topology", *machine, *GPT) == (precision, kernel)


def test_what_is_written_counts(capsys: pytest.CaptureFixture[str]) -> None:
    h100 = ["--topology", "dgx-h100", "--device", "gpu0", *GPT]
    assert asked(capsys, *h100, "--precision", "tf32") == ("tf32", "fused-native")
    assert asked(capsys, *h100, "--set", "attention=eager") == ("amp-bf16", "eager")
    native = [*h100, "--precision", "torch", "--set", "attention=fused-native"]
    assert asked(capsys, *native) == ("torch", "fused-native")


@pytest.mark.slow
def test_others_are_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    h100 = ["--topology", "dgx-h100", "--device", "gpu0", "--batch", "2", "--json"]
    assert asked(capsys, *h100, "--workload", "resnet18") == ("torch", None)
    assert asked(capsys, *h100, "--workload", "bert-base", "--seq-len", "64") == ("torch", None)
    assert find_entry("gpt2").in_half
    assert not find_entry("bert-base").in_half


def test_the_answer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "dgx-h100", "--device", "gpu0", *GPT[:-1]]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "amp-bf16, cuDNN 9 attention, adam" in out
