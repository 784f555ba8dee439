"""Megatron-core's default sizes of gradient buckets, where its modules run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import Where
from simulator.training.data_parallel import bucket_size, least_elements
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-a100-80gb")
LLAMA = build_network("llama3-8b", batch=1, loss=True, sequence_length=512, layers=2)  # 1.5 G parameters
PYTORCH = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
MEGATRON = replace(PYTORCH, framework="megatron")
ELEMENTS = 40_000_000


def sent(options: StepOptions, words: str, op: str, bucket_bytes: float = BUCKET_BYTES) -> list[float]:
    """Return the bytes of each exchange of type *op*."""
    result = step_on(MACHINE, LLAMA, options, layout=parse_layout(words), bucket_bytes=bucket_bytes)
    found = [task.about for task in result.timeline.plan.tasks if getattr(task.about, "op", "") == op]
    return [about.size_bytes for about in found]


@pytest.mark.parametrize(
    ("words", "op"), [("dp", "all-reduce"), ("zero=1", "reduce-scatter"), ("zero=1", "all-gather")]
)
def test_a_bucket_has_at_least_forty_million_elements(words: str, op: str) -> None:
    ours, torch = sent(MEGATRON, words, op), sent(PYTORCH, words, op)
    assert sum(ours) == sum(torch) == 2 * LLAMA.trained_count
    assert len(ours) < len(torch)
    assert all(n_bytes >= 2 * ELEMENTS for n_bytes in ours[:-1])
    assert min(torch) < 2 * ELEMENTS


def test_a_size_that_is_said_holds() -> None:
    said = 64 * 2.0**20
    assert sent(MEGATRON, "zero=1", "reduce-scatter", said) == sent(PYTORCH, "zero=1", "reduce-scatter", said)
    assert len(sent(MEGATRON, "dp", "all-reduce", 0.0)) == 1


@pytest.mark.parametrize(("words", "elements"), [("dp=32", 40e6), ("dp=512", 512e6), ("dp=64,cp=2", 128e6)])
def test_many_ranks_sum_larger_buckets(words: str, elements: float) -> None:
    layout = parse_layout(words)
    assert least_elements(layout) == elements
    question = StepQuestion(where=Where("dgx-a100-80gb"), workload="llama3-8b", batch=1, options=MEGATRON)
    assert bucket_size(question, layout, 4) == 4 * elements
    assert bucket_size(replace(question, options=PYTORCH), layout, 4) == BUCKET_BYTES
