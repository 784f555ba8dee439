"""Attention on GPUs whose generation has no FlashAttention 2: PyTorch's kernel, and Transformer Engine's products."""

from __future__ import annotations

import json

import pytest

from simulator.api import Session
from simulator.cli import run as simulate
from simulator.devices.gpu.attention import attention_cost
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.workload.operators import Attention, FusedAttention, Softmax
from tests.devices import find_gpu


def asked(topology: str, attention: str) -> StepQuestion:
    return StepQuestion(
        where=Where(topology), workload="gpt2", batch=1, sizes=(("attention", attention), ("layers", 1))
    )


@pytest.mark.parametrize("attention", ["fused-native", "fused-fourth"])
@pytest.mark.parametrize(("topology", "fused"), [("p3.2xlarge", False), ("1x-t4", False), ("1x-a100-pcie-40gb", True)])
def test_transformer_engine_writes_the_scores_before_ampere(topology: str, fused: bool, attention: str) -> None:
    session, question = Session(), asked(topology, attention)
    operators = [layer.operator for layer in session.network(question).layers]
    assert any(isinstance(operator, Attention) for operator in operators) == fused
    assert any(isinstance(operator, Softmax) for operator in operators) != fused
    notes = session.source(question).notes
    assert sum(f"attention={attention}: runs from Ampere on" in note for note in notes) == (not fused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "device", "attention", "said"),
    [
        ("1x-a100-pcie-40gb", None, "fused-fourth", "runs from Hopper on"),
        ("8x-mi355x", "gpu0", "fused-fourth", "runs on NVIDIA's GPUs"),
        ("p3.2xlarge", "cpu", "fused-fourth", "runs on GPUs"),
        ("p3.2xlarge", "cpu", "fused-native", "runs on GPUs"),
        ("p3.2xlarge", "cpu", "fused-first", "runs on GPUs"),
        ("p3.2xlarge", None, "fused-first", "is modelled from Ampere on"),
        ("dgx-h100", "gpu0", "fused-fourth", ""),
        ("8x-mi355x", "gpu0", "fused-native", ""),
        ("1x-a100-pcie-40gb", None, "fused-first", ""),
    ],
)
def test_a_kernel_that_a_device_has_not_is_replaced_aloud(
    topology: str, device: str | None, attention: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--topology", topology, "--workload", "gpt2", "--batch", "1", "--set", "layers=1"]
    options += ["--device", device] if device else []
    assert simulate([*options, "--set", f"attention={attention}"]) == 0
    printed = capsys.readouterr()
    assert (f"attention={attention}: {said}" in printed.err) == bool(said)
    called = {"dgx-h100": "FlashAttention 4", "1x-a100-pcie-40gb": "FlashAttention 1"}  # as NVIDIA's users say
    shown = "fused attention" if said else called.get(topology, f"{attention} attention")
    assert shown in " ".join(printed.out.split())
    assert simulate([*options, "--set", "attention=fused", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert simulate([*options, "--set", f"attention={attention}", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step_time_s"] == plain["step_time_s"]) or not said


def test_pytorch_keeps_its_own_kernel_there() -> None:
    session = Session()
    network = session.network(asked("p3.2xlarge", "fused"))
    assert any(isinstance(layer.operator, Attention) for layer in network.layers)
    assert session.source(asked("p3.2xlarge", "fused")).notes == ()
    kernel = FusedAttention("fwd", 1, 16, 16, 2048, 2048, 64, True, "fp16")
    found = {"v100-sxm2-16gb": "memory-efficient", "t4": "memory-efficient", "l4": "flash", "mi300x": "flash"}
    assert {name: attention_cost(find_gpu(name), kernel).detail for name in found} == found
