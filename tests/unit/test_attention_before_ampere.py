"""Attention on GPUs whose generation has no FlashAttention 2: PyTorch's kernel, and Transformer Engine's products."""

from __future__ import annotations

import pytest

from simulator.api import Session
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
    assert [f"attention={attention}: runs from Ampere on" in note for note in notes] == [True] * (not fused)


def test_pytorch_keeps_its_own_kernel_there() -> None:
    session = Session()
    network = session.network(asked("p3.2xlarge", "fused"))
    assert any(isinstance(layer.operator, Attention) for layer in network.layers)
    assert session.source(asked("p3.2xlarge", "fused")).notes == ()
    kernel = FusedAttention("fwd", 1, 16, 16, 2048, 2048, 64, True, "fp16")
    found = {"v100-sxm2-16gb": "memory-efficient", "t4": "memory-efficient", "l4": "flash", "mi300x": "flash"}
    assert {name: attention_cost(find_gpu(name), kernel).detail for name in found} == found
