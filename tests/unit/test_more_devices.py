"""The number of devices that would hold a step that does not fit, where no smaller change helps."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.api.fitting import StepFitting, _more_devices
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.training.memory import device_memory

pytestmark = pytest.mark.usefixtures("answered_once")

SESSION = Session()
OPTIONS = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)


def question(workload: str, **asked: object) -> StepQuestion:
    sizes = (("sequence_length", 2048), ("attention", "fused"), ("loss", 1))
    return StepQuestion(where=Where("dgx-h100"), workload=workload, batch=1, sizes=sizes, options=OPTIONS, **asked)  # type: ignore[arg-type]


def _words(asked: StepQuestion) -> tuple[str, ...]:
    return tuple(remedy.change for remedy in SESSION.advised(asked).remedies)


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "words"), [("llama3-70b", "fsdp"), ("mixtral-8x7b", "dp")])
def test_the_fewest_devices_that_hold_a_step_are_named(workload: str, words: str) -> None:
    asked = question(workload, gpus=tuple(range(8)), layout=parse_layout(words))
    (more, *_) = _words(asked)
    found = re.fullmatch(r"--nodes (\d+) --gpus \d+ --parallel (\S+)( --recompute)?", more)
    assert found is not None, more
    nodes = int(found[1])
    assert nodes in (2, 4, 8)

    def fits(n_nodes: int) -> bool:
        there = replace(asked, where=Where("dgx-h100", n_nodes), gpus=None, layout=parse_layout(found[2]))
        options = replace(OPTIONS, recompute="full" if found[3] else "none")
        return SESSION.step(replace(there, options=options)).fits

    assert fits(nodes)
    assert not fits(nodes // 2)


def test_where_a_change_helps_no_devices_are_added() -> None:
    asked = question("llama3-8b", gpus=(0,))
    small = replace(asked, sizes=(*asked.sizes, ("layers", 2)), batch=128)
    remedies = _words(small)
    assert any(words.startswith("--batch ") for words in remedies)
    assert not any("such GPUs" in words or "--nodes" in words or "--gpus" in words for words in remedies)


def test_gpus_of_the_machine_come_before_other_machines() -> None:
    change, *_ = _words(question("llama3-8b", gpus=(0,)))
    found = re.fullmatch(r"--gpus 2 --parallel (\S*fsdp)", change)
    assert found is not None, change
    assert SESSION.step(question("llama3-8b", gpus=(0, 1), layout=parse_layout(found[1]))).fits


def test_what_communicators_hold_counts_on_gpus_that_nobody_has_described() -> None:
    """A device on which the tensors of 8 ranks just fit has no room for the buffers of NCCL."""
    options = replace(OPTIONS, precision="fp16")
    asked = replace(question("llama2-13b"), where=Where("4x-v100-sxm2-pcie"), options=options)
    result, device = SESSION.step(asked), SESSION.device(asked.where)
    layout = Layout(zero=3).on(8)
    need = device_memory(SESSION.network(asked), asked, replace(device, memory_bytes=1e12), layout)

    def change(memory_bytes: float) -> str:
        search = StepFitting(SESSION, asked, result, replace(device, memory_bytes=memory_bytes), "batch", 4)
        return next(words for words, _ in _more_devices(search))

    assert change(need.total_bytes + 2**30) == "8 such GPUs with --parallel fsdp"
    assert change(need.total_bytes) != "8 such GPUs with --parallel fsdp"


@pytest.mark.slow
def test_more_of_one_device_are_no_machines() -> None:
    asked = replace(question("llama3-8b"), where=Where("a100-pcie-40gb"))
    assert re.fullmatch(r"4 such GPUs with --parallel \S*fsdp --recompute", _words(asked)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "nodes"), [("p3.16xlarge", True), ("4x-v100-sxm2-pcie", False)])
def test_nodes_are_offered_where_machines_have_a_network(topology: str, nodes: bool) -> None:
    asked = replace(question("llama2-13b"), where=Where(topology), options=replace(OPTIONS, precision="master-fp16"))
    remedies = _words(asked)
    assert remedies[0].startswith("--nodes") == nodes
    assert ("such GPUs with" in remedies[0]) != nodes
