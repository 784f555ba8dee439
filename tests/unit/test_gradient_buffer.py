"""The passes of Megatron-LM over all gradients of a rank, whatever share of the state it keeps."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.training.worker import ChunkRun, LaunchLabel
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

OPTIONS = StepOptions(precision="master-bf16", optimizer="adam", framework="megatron")
NETWORK = build_network("llama3-8b", batch=1, loss=True, sequence_length=512, layers=4, hidden=1024, heads=8)


def updates(words: str) -> dict[str, float]:
    """Return the seconds of each update or pass before it on the first device, those of a stage as one."""
    machine = load_machine("dgx-h100")
    found = step_on(machine, NETWORK, OPTIONS, layout=parse_layout(words), micro_batches=2)
    first: dict[str, float] = {}
    for task, span in found.step.timeline.ran(ChunkRun, LaunchLabel):
        about = task.about
        if isinstance(about, ChunkRun) and about.part == "update":
            first.setdefault(" and ".join(issue.name for issue in about.issues), span.length_s)
        elif isinstance(about, LaunchLabel) and about.issue.part == "update" and not about.on_host:
            first.setdefault(about.issue.name, span.length_s)
    return first


def test_all_gradients_are_zeroed_and_averaged_by_a_rank_that_keeps_a_share_of_the_state() -> None:
    whole, shared = updates("dp=8"), updates("dp=8,zero=1")
    for name in ("gradients zeroed", "gradients averaged"):
        assert shared[name] == pytest.approx(whole[name])
    assert shared["adam step"] < 0.2 * whole["adam step"]


def test_ranks_that_sum_no_gradients_average_none() -> None:
    assert "gradients averaged" not in updates("tp=8")
    assert "gradients averaged" in updates("tp=4,dp=2")


def test_a_stage_zeroes_and_averages_its_gradients_once() -> None:
    names = list(updates("pp=2,dp=4,zero=1"))
    assert names[0] == "gradients zeroed and gradients checked and gradients averaged"
    assert names[1].startswith("norm of gradients")
    assert next(iter(updates("pp=2,tp=4"))) == "gradients zeroed and gradients checked"
