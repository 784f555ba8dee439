"""What is said to make a step fit does make it fit, and less would not."""

import re

from simulator import simulate
from simulator.api.session import Session
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where

ADAM = StepOptions(precision="amp-fp16", optimizer="adam")


def _remedies(network: str, batch: int) -> tuple[str, ...]:
    where = Where("p3.16xlarge")
    sizes = (("layers", 12), ("attention", "fused"))
    asked = StepQuestion(where=where, workload=network, batch=batch, sizes=sizes, options=ADAM)
    return Session().advised(asked).remedies


def _run(network: str, batch: int, words: str) -> bool:
    asked = {"batch": batch, "precision": "amp-fp16", "optimizer": "adam", "sizes": ["layers=12", "attention=fused"]}
    pairs = re.findall(r"--([a-z-]+)((?: (?!--)\S+)?)", words)
    asked |= {name.replace("-", "_"): value.strip() or True for name, value in pairs}
    return simulate("p3.16xlarge", workload=network, **asked).fits


def test_shards_come_first_where_they_do():
    found = _remedies("llama2-7b", 1)
    assert found[0] == "--parallel fsdp"
    assert _run("llama2-7b", 1, found[0])


def test_shards_with_what_they_need_besides():
    found = _remedies("llama2-7b", 12)
    assert found[0].startswith("--parallel fsdp --")
    assert all(_run("llama2-7b", 12, words) for words in found[:-1])
