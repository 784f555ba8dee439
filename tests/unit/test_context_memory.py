"""The memory of the driver's context, by what the software loads into it."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Software, Where

SESSION = Session()


def context(topology: str, software: Software, framework: str = "pytorch") -> float:
    options = StepOptions(framework=framework)  # type: ignore[arg-type]
    where = Where(topology=topology)
    asked = StepQuestion(where=where, workload="resnet18", batch=2, gpus=(0,), options=options, software=software)
    return SESSION.memory(asked).context_bytes


@pytest.mark.parametrize("topology", ["1x-t4", "dgx-a100-80gb", "dgx-h100"])
def test_kernels_are_loaded_when_first_used(topology: str) -> None:
    assert context(topology, Software()) == context(topology, Software(nccl=(2, 14))) == 0.5e9
    assert context(topology, Software(libraries=(2022, 10))) == 0.5e9


@pytest.mark.parametrize("software", [Software(nccl=(2, 13)), Software(libraries=(2022, 9))])
def test_earlier_software_loads_all_of_them(software: Software) -> None:
    """In a context that is larger for Ampere than for GPUs before."""
    assert context("dgx-a100-80gb", software) == 1.6e9
    assert context("1x-t4", software) == 0.9e9


@pytest.mark.parametrize("framework", ["tensorflow", "caffe"])
def test_it_is_that_of_pytorch(framework: str) -> None:
    assert context("1x-t4", Software(libraries=(2022, 9)), framework) == 0.5e9


def test_before_pytorch_had_so_many_kernels() -> None:
    assert context("1x-t4", Software(libraries=(2018, 11))) == 0.5e9


@pytest.mark.parametrize(
    ("topology", "each"), [("1x-t4", 8.125), ("dgx-a100-80gb", 8.125), ("dgx-h100", 32.0), ("8x-mi300x", 128.0)]
)
def test_each_thread_has_a_workspace_for_products(topology: str, each: float) -> None:
    """The forward and the backward pass run in a thread each."""
    for mode, threads in (("train", 2), ("forward", 1)):
        options = StepOptions(mode=mode)  # type: ignore[arg-type]
        asked = StepQuestion(where=Where(topology=topology), workload="resnet18", batch=2, gpus=(0,), options=options)
        found = SESSION.memory(asked)
        assert found.workspace_bytes == threads * each * 2**20
        assert found.by_use["working"] == found.working_bytes + found.workspace_bytes
        assert found.allocated_bytes > found.workspace_bytes
