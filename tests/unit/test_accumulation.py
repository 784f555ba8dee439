"""Accumulation of micro-batch gradients, and launches that block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.questions.layout import parse_layout
from simulator.questions.options import Accumulation, StepOptions
from simulator.questions.step import StepQuestion, accumulating
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.step.memory import Shares, held_in, memory_need, moments_of
from simulator.training import divided
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on, step_on

MACHINE = load_machine("dgx-a100-80gb")
DEVICE = Session().device(Where("dgx-a100-80gb"))
GPT = build_network("gpt3-1.3b", batch=1, loss=True, layers=2)
HALF = StepOptions(precision="master-fp16", optimizer="adam", fused_optimizer=True, framework="megatron")
QUESTION = StepQuestion(where=Where("dgx-a100-80gb"), workload="gpt3-1.3b", batch=1, options=HALF, micro_batches=4)


def added(how: Accumulation, precision: str = "master-fp16") -> list[Launch]:
    options = replace(HALF, accumulation=how, precision=precision)  # type: ignore[arg-type]
    return [issue for issue in launches_of(DEVICE, GPT, options) if issue.adds]


@pytest.mark.parametrize(
    ("how", "precision", "each_bytes"),
    [("add", "master-fp16", 6), ("fp32", "master-bf16", 18), ("add", "amp-fp16", 12), ("add", "fp32", 12)],
)
def test_a_pass_moves_what_it_reads_and_writes(how: Accumulation, precision: str, each_bytes: int) -> None:
    moved = sum(cost.bytes for issue in added(how, precision) for cost in issue.work.costs)
    layers = sum(p.elements for layer in GPT.layers for p in layer.trained)
    assert moved == pytest.approx(each_bytes * layers)


def test_products_add_for_nothing() -> None:
    assert added("product") == []


@pytest.mark.parametrize(
    ("changes", "said", "how"),
    [
        ({}, None, "product"),
        ({}, "add", "add"),
        ({"options": replace(HALF, framework="pytorch")}, None, "add"),
        ({"options": replace(HALF, framework="pytorch"), "micro_batches": 1}, None, "product"),
        ({"options": replace(HALF, mode="forward", optimizer="none", fused_optimizer=False)}, "add", "product"),
        ({"layout": parse_layout("fsdp")}, "add", "product"),
        ({"layout": parse_layout("dp=8,zero=2")}, "add", "product"),
        ({"layout": parse_layout("dp=8,zero=1")}, "fp32", "fp32"),
    ],
)
def test_who_adds_them(changes: dict[str, object], said: Accumulation | None, how: str) -> None:
    assert accumulating(replace(QUESTION, **changes), said).rank_options.accumulation == how  # type: ignore[arg-type]


def step_s(options: StepOptions, micro_batches: int, words: str = "tp=8") -> float:
    layout = parse_layout(words).on(8)
    return step_on(MACHINE, GPT, options, layout=layout, micro_batches=micro_batches, contention=False).step_time_s


def test_the_first_micro_batch_has_nothing_to_add_to() -> None:
    plain = replace(HALF, framework="pytorch")
    first, second, third = (step_s(replace(plain, accumulation="add"), n) - step_s(plain, n) for n in (1, 2, 3))
    assert first == pytest.approx(0.0, abs=1e-12)
    assert third == pytest.approx(2 * second, rel=0.1)
    assert second > 0.0


def test_products_that_add_read_the_buffer_in_the_first_micro_batch_too() -> None:
    """Megatron-LM zeroes its buffer before the step, and each product adds to it; a pass of the first is left out."""
    part = divided(GPT, parse_layout("tp=8").on(8))
    passes, products = replace(HALF, accumulation="add"), HALF
    kernels_s = [
        sum(issue.device_s for issue in launches_of(DEVICE, part, options) if not issue.adds)
        for options in (passes, products)
    ]
    assert step_s(products, 1) - step_s(passes, 1) == pytest.approx(kernels_s[1] - kernels_s[0], rel=1e-6)
    assert kernels_s[1] > kernels_s[0]


def test_stages_add_up_in_every_pass() -> None:
    few, many = (
        step_s(replace(HALF, accumulation="add"), n, "pp=2,dp=4") - step_s(HALF, n, "pp=2,dp=4") for n in (4, 8)
    )
    assert many > 1.5 * few > 0.0


def test_a_host_that_waits_for_each_kernel_shows_all_its_time() -> None:
    blocking = replace(HALF, launch_blocking=True)
    apart_s = sum(each.host_s + each.device_s for each in launches_of(DEVICE, GPT, blocking) if each.over != "summed")
    assert alone_on(MACHINE, GPT, blocking).step_time_s == pytest.approx(apart_s)
    assert alone_on(MACHINE, GPT, HALF).step_time_s < 0.9 * apart_s


def test_a_host_that_waits_for_each_kernel_waits_for_exchanges_too() -> None:
    blocking, layout = replace(HALF, launch_blocking=True), parse_layout("tp=8").on(8)
    short = build_network("gpt3-1.3b", batch=1, loss=True, layers=2, sequence_length=64)
    issues = launches_of(DEVICE, divided(short, layout), blocking)
    sent = sum(issue.sent is not None for issue in issues)
    apart_s = sum(issue.host_s + issue.device_s for issue in issues)
    step = step_on(MACHINE, short, blocking, layout=layout, contention=False)
    assert sent >= 8
    assert (
        step.step_time_s > apart_s + sent * 10e-6
    )  # eight ranks exchange in more than that, and less than the host's time


@pytest.mark.parametrize("how", ["add", "fp32"])
def test_sums_in_fp32_are_held_whole_throughout(how: Accumulation) -> None:
    """DeepSpeed's BF16_Optimizer: 4 bytes for each parameter, of which the divided state's gradients are a part."""
    options = replace(HALF, accumulation=how, precision="master-bf16", framework="pytorch")
    shares = Shares(updated=1 / 8, accumulates=True)
    n, whole = GPT.trained_count, 4 if how == "fp32" else 0
    first, *_, update = moments_of(held_in(GPT, options), options, shares)
    assert first.gradients_bytes == n * (2 + whole)
    assert update.gradients_bytes == n * (2 + (whole or 4 / 8))
    assert memory_need(GPT, options, DEVICE, shares).gradients_bytes >= n * (2 + whole)
