"""Steps as PaddlePaddle's modules run them: each product exchanges for its input, and a bias is a pass of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.errors import InputError
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.training import divided
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-a100-80gb")
DEVICE = Session().device(Where("dgx-a100-80gb"))
SIZES = {"batch": 1, "loss": True, "sequence_length": 1024, "layers": 2}
LLAMA = build_network("llama-7b", **SIZES)
PADDLE = StepOptions(precision="master-fp16", optimizer="adam", framework="paddle")
TORCH = replace(PADDLE, framework="pytorch")


def issued(name: str, words: str, options: StepOptions) -> list[Launch]:
    return list(launches_of(DEVICE, divided(build_network(name, **SIZES), parse_layout(words).on(8)), options))


@pytest.mark.parametrize(
    ("words", "part", "by_torch", "by_paddle"),
    [
        ("tp=2", "forward", {"all-reduce": 2}, {"all-reduce": 2}),
        ("tp=2", "backward", {"all-reduce": 2}, {"all-reduce": 5}),  # queries, keys, values, gate and up
        ("tp=2,sp", "forward", {"all-gather": 2, "reduce-scatter": 2}, {"all-gather": 5, "reduce-scatter": 2}),
        ("tp=2,sp", "backward", {"all-gather": 2, "reduce-scatter": 2}, {"all-gather": 2, "reduce-scatter": 5}),
    ],
)
def test_each_product_of_a_block_exchanges_for_its_input(
    words: str, part: str, by_torch: dict[str, int], by_paddle: dict[str, int]
) -> None:
    for options, expected in ((TORCH, by_torch), (PADDLE, by_paddle)):
        found = Counter(
            each.sent.op
            for each in issued("llama-7b", words, options)
            if each.sent is not None and each.part == part and each.layer.startswith("layers.1.")
        )
        assert found == expected


def test_what_is_not_sent_is_copied() -> None:
    copied = [each for each in issued("llama-7b", "tp=2", PADDLE) if each.name.endswith("(copied)")]
    block = Counter(each.part for each in copied if each.layer.startswith("layers.1."))
    assert block == {"forward": 5, "backward": 2}
    rows = 2 * 2 * LLAMA.tokens * 4096  # read and written, in fp16
    assert all(
        sum(cost.bytes for cost in each.work.costs) == rows for each in copied if each.layer.startswith("layers")
    )


def test_exchanges_and_copies_take_their_time() -> None:
    def spent(options: StepOptions) -> tuple[float, float]:
        result = step_on(MACHINE, LLAMA, options, layout=parse_layout("tp=2"), contention=False)
        timed = zip(result.timeline.plan.tasks, result.timeline.spans, strict=True)
        sent_s = sum(span.end_s - span.start_s for task, span in timed if task.stream == "tp communication")
        return result.step_time_s, sent_s

    (torch_s, torch_sent_s), (paddle_s, paddle_sent_s) = spent(TORCH), spent(PADDLE)
    copies = [each for each in issued("llama-7b", "tp=2", PADDLE) if each.name.endswith("(copied)")]
    more_s = paddle_sent_s - torch_sent_s + sum(each.device_s for each in copies)
    assert paddle_s - torch_s == pytest.approx(more_s, rel=0.02)
    assert paddle_sent_s / torch_sent_s == pytest.approx((2 * 7 + 2) / (2 * 4 + 2), rel=0.05)


def test_a_bias_is_a_pass_of_its_own() -> None:
    def adding(options: StepOptions) -> int:
        products = [each for each in issued("gpt3-1.3b", "dp", options) if "gemm" in each.work.kinds]
        return sum(each.work.kinds.count("streaming") for each in products if each.part == "forward")

    assert adding(PADDLE) - adding(TORCH) == 2 * 4  # queries with keys and values, output, and two of the MLP


def test_without_biases_and_tensor_parallelism_kernels_are_those_of_pytorch() -> None:
    by_torch, by_paddle = (issued("llama-7b", "zero=2", options) for options in (TORCH, PADDLE))
    assert [each.work for each in by_paddle] == [each.work for each in by_torch]


def test_what_is_not_modelled_is_refused() -> None:
    where = Where("dgx-a100-80gb")
    with pytest.raises(InputError, match="stage 3 is not modelled"):
        StepQuestion(where=where, workload="llama-7b", batch=1, options=PADDLE, layout=parse_layout("fsdp"))
    with pytest.raises(InputError, match="compilers of PyTorch"):
        replace(PADDLE, compiled=True)
