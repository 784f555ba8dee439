"""Bytes of a parameter under ZeRO, by precision policy and stage: kept on a rank, and moved between ranks.

The closed forms are those of Rajbhandari et al., "ZeRO", SC 2020, sections 3.1 and 5: of *n* parameters over *r* ranks,
stage 1 keeps the optimiser state / r, stage 2 the gradients / r too, stage 3 the parameters / r too.  The policy says
what belongs to this state: an fp32 copy of half-precision parameters does (DeepSpeed, Megatron-LM's distributed
optimiser), fp32 parameters that autocast casts do not (torch's ZeroRedundancyOptimizer, which sends them in fp32).
"""

from __future__ import annotations

from typing import get_args

import pytest

from simulator.api import load_machine
from simulator.constants import DEFAULT
from simulator.places import Places
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import Policy, StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.step.memory import held_in
from simulator.training.memory import bucket_bytes_of, device_memory, gathered_elements
from simulator.training.roles import slowest_of
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-b200")
DEVICE = Places(MACHINE).find().device
RANKS = 8
LAYERS = 4
LLAMA = build_network("llama3-8b", batch=1, loss=True, sequence_length=64, layers=LAYERS)
N = LLAMA.trained_count
BLOCK = sum(p.elements for p in LLAMA.parameters if p.name.startswith("layers.0."))
OUTSIDE = N - LAYERS * BLOCK

# By policy: bytes of a parameter that each replica keeps, of its casts, of the sharded fp32 copy, and of both moments.
BYTES: dict[str, tuple[float, float, float, float]] = {
    **dict.fromkeys(("fp32", "tf32", "torch"), (4, 0, 0, 8)),
    "fp64": (8, 0, 0, 16),
    **dict.fromkeys(("fp16", "bf16"), (2, 0, 0, 4)),
    **dict.fromkeys(("amp-fp16", "amp-bf16", "graph-fp16", "graph-bf16"), (4, 2, 0, 8)),
    **dict.fromkeys(("master-fp16", "master-bf16", "master-fp8"), (2, 0, 4, 8)),
}


def asked(policy: str, layout: Layout, **more: object) -> StepQuestion:
    options = StepOptions(precision=policy, optimizer="adam", fused_optimizer=True)  # type: ignore[arg-type]
    where = Where("dgx-b200")
    return StepQuestion(where=where, workload="llama3-8b", batch=1, options=options, layout=layout, **more)  # type: ignore[arg-type]


def step(policy: str, words: str, bucket_bytes: float) -> TrainingResult:
    options = StepOptions(precision=policy, optimizer="adam", fused_optimizer=True)  # type: ignore[arg-type]
    return step_on(MACHINE, LLAMA, options, layout=parse_layout(words), bucket_bytes=bucket_bytes)


def moved(result: TrainingResult, op: str) -> float:
    return sum(t.about.size_bytes for t in result.timeline.plan.tasks if getattr(t.about, "op", "") == op)


def test_every_policy_that_trains_has_its_closed_form() -> None:
    assert set(BYTES) == set(get_args(Policy)) - {"int8", "int4", "nvfp4"}  # nvfp4 keeps weights in 4 bits besides


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("policy", BYTES)
def test_what_a_rank_keeps(policy: str, zero: int) -> None:
    replica, cast, copy, state = BYTES[policy]
    layout = Layout(zero=zero).on(RANKS)
    need = device_memory(LLAMA, asked(policy, layout), DEVICE, layout)
    shard = 1 / RANKS if zero else 1.0
    assert need.optimizer_bytes == pytest.approx(state * N * shard)
    if zero < 3:  # casts go as the backward pass does: at the peak, some of them may be left
        kept = (replica + copy * shard) * N
        assert kept * (1 - 1e-12) <= need.parameters_bytes <= kept + cast * N
    else:  # a shard and what is gathered, two blocks and what is outside them, in the format of products
        kept = (copy or replica) * N * shard  # FSDP's shards have no copy in half precision
        assert need.parameters_bytes == pytest.approx((cast or replica) * (OUTSIDE + 2 * BLOCK) + kept)


@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.parametrize("policy", BYTES)
def test_gradients_at_the_peak(policy: str, zero: int) -> None:
    """They have the format of the parameters; with an fp32 copy, those of a rank's shard are in fp32 too."""
    replica, cast, copy, _ = BYTES[policy]
    layout = Layout(zero=zero).on(RANKS)
    need = device_memory(LLAMA, asked(policy, layout, bucket_bytes=25e6 if zero == 2 else 0.0), DEVICE, layout)
    shard, kept = 1 / RANKS if zero else 1.0, 1 / RANKS if zero == 2 else 1.0
    whole = (replica * kept + copy * shard) * N
    if cast and zero == 2:  # casts are more than a rank's share of the gradients, so the peak is before these exist
        assert need.gradients_bytes < whole
    else:
        assert need.gradients_bytes == pytest.approx(whole)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fp32", "bf16", "amp-bf16", "graph-fp16", "master-bf16"])
@pytest.mark.parametrize("words", ["zero=1", "zero=2", "pp=2,zero=1", "pp=2,zero=2"])
@pytest.mark.parametrize("bucket_bytes", [0.0, 25 * 2.0**20])
def test_updated_parameters_and_gradients_move_as_the_replica_keeps_them(
    policy: str, words: str, bucket_bytes: float
) -> None:
    result = step(policy, words, bucket_bytes)
    for op in ("all-gather", "reduce-scatter"):
        assert moved(result, op) == pytest.approx(BYTES[policy][0] * N)


@pytest.mark.parametrize("words", ["zero=1", "pp=2,zero=1"])
@pytest.mark.parametrize("prefetches", [False, True])
def test_only_trained_parameters_are_gathered(words: str, prefetches: bool) -> None:
    adapted = build_network("llama3-8b", batch=1, loss=True, sequence_length=64, layers=LAYERS, lora=8)
    options = StepOptions(precision="amp-bf16", optimizer="adam", fused_optimizer=True)
    result = step_on(MACHINE, adapted, options, layout=parse_layout(words), prefetches=prefetches)
    assert 0 < moved(result, "all-gather") == pytest.approx(4 * adapted.trained_count)


@pytest.mark.slow
@pytest.mark.parametrize("policy", BYTES)
def test_memory_never_rises_with_the_stage(policy: str) -> None:
    """Of a network with many blocks; of four, what is gathered, two and a large embedding, is nearly all."""
    whole = build_network("llama3-8b", batch=1, loss=True, sequence_length=64)
    layouts = [Layout(zero=zero).on(RANKS) for zero in range(4)]
    totals = [device_memory(whole, asked(policy, layout), DEVICE, layout).allocated_bytes for layout in layouts]
    assert totals == sorted(totals, reverse=True)


def test_with_zero_2_a_bucket_overflows_by_its_last_gradient() -> None:
    """A bucket is full once it reaches its size: the gradient with which it does may be the largest."""
    layout = Layout(zero=2).on(RANKS)
    question = asked("amp-bf16", layout, bucket_bytes=25e6)
    largest = max(p.elements for p in LLAMA.parameters)
    found = bucket_bytes_of(held_in(LLAMA, question.options), question, layout)
    assert found == 25e6 + 4 * largest < 4 * N


def test_two_units_are_gathered_at_once() -> None:
    assert gathered_elements(LLAMA, Layout(zero=3).on(RANKS)) == OUTSIDE + 2 * BLOCK


@pytest.mark.parametrize(
    ("count", "deviates", "within"),  # expected maxima: Harter, "Expected Values of Normal Order Statistics", 1961
    [(1, 0.0, 0), (2, 0.5642, 0.05), (5, 1.1630, 0.02), (10, 1.5388, 0.01), (100, 2.5076, 0.01), (400, 2.9682, 0.01)],
)
def test_the_slowest_of_many_is_the_expected_maximum_of_normal_deviates(
    count: int, deviates: float, within: float
) -> None:
    spread = DEFAULT["fleet"].device_spread
    assert (slowest_of(count, DEFAULT) - 1.0) / spread == pytest.approx(deviates, rel=within, abs=1e-12)
