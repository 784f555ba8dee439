"""The rows that experts get: unbalanced routing, dropped tokens, and experts filled up to their capacity."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.errors import InputError
from simulator.places import Places
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.results.training import TrainingResult
from simulator.step.issue import launches_of
from simulator.training import divided
from simulator.workload.network import Network
from simulator.workload.operators import Exchange, GroupedLinear
from simulator.workload.operators.grouped import Routing, largest_of
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

NODE = load_machine("dgx-h100")
SIZES = {"layers": 2, "sequence_length": 2048}
MEGATRON = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework="megatron")


def mixture(**sizes: int) -> Network:
    return build_network("qwen3-30b-a3b", batch=2, loss=True, **SIZES, **sizes)


def step(words: str = "ep=8,zero=1", **sizes: int) -> TrainingResult:
    return step_on(NODE, mixture(**sizes), MEGATRON, layout=parse_layout(words), micro_batches=2)


@given(st.integers(0, 200), st.integers(1, 1000))
def test_a_limit_leaves_the_mean_of_what_is_below_it(imbalance: int, capacity: int) -> None:
    """Against the sum over narrow slices of the normal density."""
    found, spread, limit = Routing(imbalance, capacity), imbalance / 100, capacity / 100
    slices = [NormalDist().inv_cdf((n + 0.5) / 4000) for n in range(4000)]
    rows = [min(1 + spread * z, limit) for z in slices]
    mean = sum(rows) / len(rows)
    assert found.kept == pytest.approx(mean, abs=2e-3)
    if mean > 0.1:
        deviation = sqrt(sum((row - mean) ** 2 for row in rows) / len(rows))
        assert found.spread == pytest.approx(deviation / mean, abs=5e-3, rel=5e-3)
        assert found.most(64) * found.kept == pytest.approx(min(limit, 1 + spread * largest_of(64)))


def test_without_a_limit_all_rows_are_kept() -> None:
    assert (Routing(30).kept, Routing(30).spread) == (1.0, 0.3)
    assert Routing(30, 1000).kept == pytest.approx(1.0)
    assert Routing(30, 100).kept == pytest.approx(1 - 0.3 * NormalDist().pdf(0))


@pytest.mark.parametrize("capacity", [100, 125, 200])
def test_balanced_routing_drops_nothing_at_any_capacity_from_1(capacity: int) -> None:
    assert step(expert_capacity=capacity).step_time_s == pytest.approx(step().step_time_s, rel=1e-9)


def test_a_capacity_of_a_half_multiplies_and_sends_half_of_the_rows() -> None:
    whole, half = (divided(mixture(expert_capacity=n), parse_layout("ep=8").on(8)) for n in (0, 50))
    for before, after in zip(whole.layers, half.layers, strict=True):
        if isinstance(before.operator, GroupedLinear) and isinstance(after.operator, GroupedLinear):
            assert after.operator.rows == before.operator.rows / 2
        elif isinstance(before.operator, Exchange) and isinstance(after.operator, Exchange):
            assert after.operator.elements == before.operator.elements / 2


def test_dropped_tokens_take_the_cost_off_unbalanced_routing() -> None:
    even, uneven, dropping = (step(imbalance=n, expert_capacity=c) for n, c in ((0, 0), (60, 0), (60, 100)))
    assert dropping.step_time_s < even.step_time_s < uneven.step_time_s


@pytest.mark.parametrize("capacity", [100, 150])
def test_experts_that_are_filled_up_take_as_long_however_tokens_are_spread(capacity: int) -> None:
    times = [step(imbalance=n, expert_capacity=capacity, pad_capacity=1).step_time_s for n in (0, 30, 120)]
    assert times[1:] == pytest.approx(times[:1] * 2, rel=1e-12)
    assert step(expert_capacity=200, pad_capacity=1).step_time_s > times[0]


def test_the_host_knows_how_many_rows_fill_experts_up() -> None:
    device = Places(NODE).place(NODE.gpus[0]).device
    for pads in (0, 1):
        part = divided(mixture(expert_capacity=100, pad_capacity=pads), parse_layout("ep=8").on(8))
        waits = [each.name for each in launches_of(device, part, MEGATRON) if each.waits and each.part == "forward"]
        assert len(waits) == (0 if pads else 2)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"pad_capacity": 1}, "pad_capacity pads rows up to expert_capacity; give that too"),
        ({"expert_capacity": 125, "expert_kernels": "loop"}, "expert_capacity does not apply"),
    ],
)
def test_capacities_that_limit_nothing_are_refused(sizes: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        mixture(**sizes)
