"""Suggested remedies make a step fit, and smaller changes would not."""

import re
from dataclasses import replace

import pytest

from simulator import simulate
from simulator.api.fitting import _tighter
from simulator.api.session import Session
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult

pytestmark = pytest.mark.usefixtures("answered_once")

ADAM = StepOptions(precision="amp-fp16", optimizer="adam")


def _words(result: TrainingResult) -> tuple[str, ...]:
    return tuple(remedy.change for remedy in result.remedies)


def _remedies(network: str, batch: int) -> tuple[str, ...]:
    where = Where("p3.16xlarge")
    sizes = (("layers", 10), ("attention", "fused"))
    asked = StepQuestion(where=where, workload=network, batch=batch, sizes=sizes, options=ADAM)
    return _words(Session().advised(asked))


def _run(network: str, batch: int, words: str) -> bool:
    asked = {"batch": batch, "precision": "amp-fp16", "optimizer": "adam", "sizes": ["layers=10", "attention=fused"]}
    pairs = re.findall(r"--([a-z-]+)((?: (?!--)\S+)?)", words)
    asked |= {name.replace("-", "_"): value.strip() or True for name, value in pairs}
    return simulate("p3.16xlarge", workload=network, **asked).fits


@pytest.mark.slow
def test_shards_come_first_where_they_do():
    found = _remedies("llama2-7b", 1)
    assert found[0] == "--parallel fsdp"
    assert _run("llama2-7b", 1, found[0])


@pytest.mark.slow
def test_shards_with_what_they_need_besides():
    found = _remedies("llama2-7b", 12)
    assert found[0].startswith("--parallel fsdp --")
    assert all(_run("llama2-7b", 12, words) for words in found[:-1])


@pytest.mark.slow
def test_shards_of_all_come_with_what_they_need_besides_where_only_a_state_is_sharded():
    """A step that shards only the optimiser's state fits on its own devices with shards of all and recomputation."""
    asked = {"workload": "llama2-7b", "batch": 4, "sizes": ["layers=16"]}
    first = simulate("4x-a100-pcie", parallel="zero=1", **asked)
    assert "--parallel fsdp --recompute" in _words(first)
    assert not first.fits
    assert simulate("4x-a100-pcie", parallel="fsdp", recompute=True, **asked).fits


@pytest.mark.slow
def test_a_smaller_batch_comes_with_the_changes_that_it_needs_alone():
    asked = {"workload": "llama2-7b", "parallel": "fsdp", "sizes": ["lora=16", "cross_entropy=fused-linear"]}
    first = simulate("2x-rtx4090-desktop", batch=24, **asked)
    words = _words(first)[0]
    assert words.startswith("--recompute --batch ")
    batch = int(words.split()[-1])
    assert simulate("2x-rtx4090-desktop", batch=batch, recompute=True, **asked).fits
    assert not simulate("2x-rtx4090-desktop", batch=batch, **asked).fits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "layers", "nodes", "remedy"),
    [
        ("tp=8,pp=8", 80, 16, "--parallel tp=8,pp=8,sp"),
        ("tp=8,pp=2,sp", 30, 4, "--parallel tp=8,pp=2,sp,zero=1"),
    ],
)
def test_a_layout_is_said_that_shares_more_of_the_fullest_stage(layout: str, layers: int, nodes: int, remedy: str):
    sizes = (("layers", layers), ("attention", "fused"))
    asked = StepQuestion(
        where=Where("dgx-a100-80gb", nodes),
        workload="gpt3-175b",
        batch=1,
        sizes=sizes,
        options=StepOptions(precision="amp-bf16", optimizer="adam"),
        gpus=tuple(range(8 * nodes)),
        layout=parse_layout(layout),
        micro_batches=8,
    )
    session = Session()
    found = session.advised(asked)
    assert not found.fits
    assert _words(found)[0] == remedy
    assert session.step(replace(asked, layout=parse_layout(remedy.split()[1]))).fits


@pytest.mark.parametrize(
    ("layout", "tighter"),
    [
        ("tp=8", ["tp=8,sp", "tp=8,zero=1", "tp=8,sp,zero=1", "tp=8,sp,fsdp"]),
        ("pp=2", ["pp=2,zero=1"]),
        ("tp=2,pp=16", ["tp=2,pp=16,sp"]),
        ("tp=2,sp,zero=1", ["tp=2,sp,fsdp"]),
        ("ep=8,fsdp", []),
    ],
)
def test_layouts_that_share_more_come_with_those_first_that_change_least(layout: str, tighter: list[str]):
    assert [each.words for each in _tighter(parse_layout(layout), 32)] == tighter


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"batch": "512"}, "--batch"),
        ({"global_batch": "512"}, "--micro-batch"),
        ({"global_batch": "4096", "micro_batches": "4"}, "--micro-batches"),
        ({"global_batch": "4096", "micro_batch": "1024"}, "--micro-batch"),
    ],
)
def test_samples_are_cut_by_the_option_that_the_user_has(asked: dict[str, str], option: str):
    """A step of given samples keeps them: its micro-batches get smaller, and are as many as that needs."""

    def result(**samples: str):
        return simulate("p3.2xlarge", workload="resnet50", **(asked | samples))

    first, size = result(), 0
    for words in _words(first):
        if words.startswith(f"{option} "):
            size = int(words.split()[1])
    assert size
    assert not first.fits
    said = {option[2:].replace("-", "_"): str(size)}
    assert result(**said).fits
    assert option == "--batch" or result(**said).samples == first.samples


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ({"workload": "llama3-8b", "batch": "1", "seq_len": "512", "gpus": "1"}, "--offload optimizer"),
        (
            {"workload": "llama3-8b", "batch": "4", "gpus": "1", "sizes": ["lora=16"], "recompute": True},
            "--set cross_entropy=fused-linear",
        ),
    ],
)
def test_state_on_the_host_and_losses_without_scores_make_room(asked: dict[str, object], remedy: str):
    first = simulate("dgx-h100", **asked)
    assert not first.fits
    assert remedy in _words(first)
    name, value = remedy[2:].split()
    more = {"sizes": [*asked["sizes"], value]} if name == "set" else {name: value}  # type: ignore[misc]
    assert simulate("dgx-h100", **(asked | more)).fits


def test_larger_micro_batches_are_tried_where_the_samples_are_given():
    found = simulate("p3.2xlarge", workload="resnet50", global_batch="64", micro_batch="16")
    assert [each.samples for each in found.alternatives if each.change == "--micro-batch 32"] == [64]
    assert all(each.step_time_s < found.step_time_s for each in found.alternatives)


@pytest.mark.slow
def test_each_remedy_comes_with_its_time_and_memory_the_fastest_first():
    asked: dict[str, object] = {"workload": "llama2-7b", "batch": 2, "sizes": ["layers=16"]}
    first = simulate("4x-a100-pcie", **asked)
    assert first.alternatives == ()  # nothing is said to be faster where it would not fit
    *remedies, larger = first.remedies
    assert (larger.step_time_s, larger.total_bytes) == (None, None)
    times = [remedy.step_time_s for remedy in remedies]
    assert len(times) > 2
    assert times == sorted(times)
    options = {"recompute-blocks": int, "batch": int, "optimizer": str, "parallel": str, "set": str}
    for remedy in remedies:
        pairs = re.findall(r"--([a-z-]+)((?: (?!--)\S+)?)", remedy.change)
        more = {name.replace("-", "_"): options.get(name, bool)(value.strip() or True) for name, value in pairs}
        if "set" in more:
            more["sizes"] = [*asked["sizes"], more.pop("set")]  # type: ignore[misc]
        with_it = simulate("4x-a100-pcie", **(asked | more))
        assert with_it.fits
        assert remedy.total_bytes == with_it.tightest.need.total_bytes
        assert remedy.step_time_s == pytest.approx(with_it.step_time_s * first.samples / with_it.samples, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["megatron", "deepspeed-zero3", "tensorflow"])
def test_a_framework_without_weights_in_four_bits_is_answered_without_them(framework):
    where, options = Where("dgx-h100"), StepOptions(framework=framework, optimizer="adam")
    asked = StepQuestion(where=where, gpus=(0,), workload="llama3-8b", batch=1, options=options)
    found = _words(Session().advised(asked))
    assert found
    assert not any("nf4" in words for words in found)
