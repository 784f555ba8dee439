"""Copies of what FSDP gathers and scatters: parameters out of one buffer, gradients into one."""

import pytest

from simulator.api import load_machine
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import TODAY, Software
from simulator.records import replace
from simulator.results.training import TrainingResult
from simulator.training.worker import LaunchLabel
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-h100")
LAYERS = 2
NETWORK = build_network("llama2-7b", batch=1, sequence_length=512, layers=LAYERS, loss=True)
PLAIN = StepOptions(precision="bf16", optimizer="adam", fused_optimizer=True)
NAMES = ("(gathered)", "(to scatter)")


def copies(software: Software = TODAY, **asked: object) -> dict[str, list[int]]:
    """Return the bytes of each copy in a step, by what it copies."""
    options = asked.pop("options", PLAIN)
    found = step_on(MACHINE, NETWORK, options, layout=parse_layout("fsdp"), software=software, **asked)
    return {name: _bytes(found, name) for name in NAMES}


def _bytes(found: TrainingResult, name: str) -> list[int]:
    about = [task.about for task in found.timeline.plan.tasks if isinstance(task.about, LaunchLabel)]
    ours = [each.issue for each in about if each.issue.name.endswith(name) and not each.on_host]
    return [sum(cost.bytes for cost in issue.work.costs) for issue in ours]


def test_parameters_are_copied_out_and_gradients_in() -> None:
    block = sum(p.elements for p in NETWORK.parameters if p.name.startswith("layers.0."))
    found = copies()
    out, into = (found[name] for name in NAMES)
    assert len(out) % (2 * LAYERS + 1) == 0  # in both passes of each block, and once what is outside of blocks
    assert len(into) % (LAYERS + 1) == 0
    assert out.count(2 * 2 * block) == 2 * into.count(2 * 2 * block) > 0


def test_gradients_that_are_summed_in_fp32_are_written_in_fp32() -> None:
    narrow, wide = copies()["(to scatter)"], copies(sums_in_fp32=True)["(to scatter)"]
    assert [6 * n for n in narrow] == [4 * n for n in wide]


def test_one_flat_parameter_needs_no_copy() -> None:
    """FSDP before PyTorch 2.6, whose parameters are views of what was gathered."""
    old = copies(replace(TODAY, libraries=(2024, 6)))
    assert old["(gathered)"] == []
    assert old["(to scatter)"]


@pytest.mark.parametrize("name", NAMES)
def test_without_contention_nothing_is_copied(name: str) -> None:
    assert copies(contention=False)[name] == []
