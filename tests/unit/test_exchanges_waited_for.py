"""Whoever reads what an exchange brings waits for it, even where the reading layer runs no kernel of its own."""

from __future__ import annotations

import pytest

from simulator.api import Session, load_machine
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.training import divided
from simulator.workload.network import backward_needs, forward_needs
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

DEVICE = Session().device(Where("dgx-h100"))
SHORT = {"batch": 1, "loss": True, "sequence_length": 256, "layers": 4}
TRAINED = StepOptions(precision="master-bf16", optimizer="adam")


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["pytorch", "megatron"])
@pytest.mark.parametrize("mode", ["train", "inference"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2", "tp=2"),
        ("llama3-8b", "cp=2"),
        ("bert-large", "tp=2"),
        ("llama3-8b", "tp=2,sp"),
        ("mixtral-8x7b", "ep=8"),
        ("qwen3-30b-a3b", "ep=8,flex"),
        ("gpt-oss-120b", "ep=8"),
        ("gpt-oss-120b", "tp=2,ep=4,sp"),
        ("nemotron-3-nano", "ep=8,flex"),
        ("deepseek-v3", "ep=8,flex"),
    ],
)
def test_each_exchange_is_waited_for_by_the_layer_that_reads_it(
    name: str, words: str, mode: str, framework: str
) -> None:
    network = divided(build_network(name, **SHORT), parse_layout(words).on(8))
    options = StepOptions(
        mode=mode,  # type: ignore[arg-type]  # both are modes
        precision="master-bf16" if mode == "train" else "bf16",
        optimizer="adam" if mode == "train" else "none",
        framework=framework,  # type: ignore[arg-type]  # both are frameworks
    )
    issues = launches_of(DEVICE, network, options)
    ways = [("forward", forward_needs(network))]
    if mode == "train":
        ways.append(("backward", backward_needs(network)[0]))
    for part, needs in ways:
        waited: dict[str, set[str]] = {}
        for issue in issues:
            if issue.part == part:
                waited.setdefault(issue.layer, set()).update(issue.needs)
        for layer, needed in needs.items():
            if part == "forward" or layer in waited:  # nothing runs backward before the first trained layer
                assert set(needed) <= waited[layer], layer


@pytest.mark.parametrize(("name", "words"), [("bert-large", "tp=2,sp"), ("llama3-8b", "cp=2")])
def test_gradients_are_added_once_both_parts_are_there(name: str, words: str) -> None:
    network = build_network(name, batch=1, loss=True, sequence_length=512, layers=2)
    result = step_on(load_machine("dgx-h100"), network, TRAINED, layout=parse_layout(words))
    plan, spans = result.timeline.plan, result.timeline.spans
    issues = {issue.name: issue for issue in launches_of(DEVICE, divided(network, parse_layout(words).on(8)), TRAINED)}
    added = [n for n, task in enumerate(plan.tasks) if "gradients added" in task.label and "compute" in task.stream]
    waiting = [n for n in added if issues[plan.tasks[n].label].needs]
    assert added
    assert waiting
    for number in waiting:
        sent = [n for n in plan.tasks[number].after if "communication" in plan.tasks[n].stream]
        assert sent
        assert all(spans[n].end_s <= spans[number].start_s for n in sent)


@pytest.mark.parametrize("words", ["ep=8", "ep=8,flex"])
def test_without_a_shared_expert_nothing_runs_beside_the_all_to_all(words: str) -> None:
    network = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=4096, layers=2)
    options = StepOptions(precision="master-bf16", optimizer="adam", framework="megatron")
    result = step_on(load_machine("dgx-h100"), network, options, layout=parse_layout(words))
    plan, spans = result.timeline.plan, result.timeline.spans
    sent = [(spans[n].start_s, spans[n].end_s) for n, task in enumerate(plan.tasks) if task.label == "all-to-all"]
    assert len(sent) == 2 * (4 if "flex" in words else 6)  # the all-to-all dispatcher's probabilities have their own
    for number, task in enumerate(plan.tasks):
        if task.stream.endswith("compute"):
            start_s, end_s = spans[number].start_s, spans[number].end_s
            assert all(min(end_s, until_s) - max(start_s, since_s) < 1e-9 for since_s, until_s in sent), task.label
