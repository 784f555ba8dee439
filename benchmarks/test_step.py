"""How long operators and steps take to predict.

See ``benchmarks/test_engine.py`` for how to run it.
"""

from __future__ import annotations

import random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from simulator.api import load_machine
from simulator.devices.gpu import Gpu
from simulator.devices.predict import kernel_cost, operator_costs
from simulator.places import Places
from simulator.questions.options import StepOptions
from simulator.workload.operators import Conv2d, Elementwise, LayerNorm, Linear, MatMul, Operator, Softmax
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on

_OPERATORS = 2000
_OPERATORS_TARGET_S = _OPERATORS / 10_000
_STEP_TARGETS_S = {"resnet50": 0.05, "gpt3-175b": 0.2}


def _operators() -> list[Operator]:
    """Different operators, as a training step and a table of measurements mix them."""
    draw = random.Random(1)

    def size(most: int) -> int:
        return draw.randint(1, most)

    made: list[Operator] = []
    while len(made) < _OPERATORS:
        made += [
            Linear(size(8192), size(8192), size(8192)),
            MatMul(size(1024), size(1024), size(256), size(256)),
            Conv2d(size(64), size(512), size(512), size(56) + 2, size(56) + 2, 3, 3, pad_h=1, pad_w=1),
            Elementwise("gelu", size(1 << 24)),
            Softmax(size(1 << 14), size(4096)),
            LayerNorm(size(1 << 14), size(4096)),
        ]
    return made[:_OPERATORS]


def test_operators(benchmark: BenchmarkFixture) -> None:
    """Operators that have not been seen before."""
    device = Places(load_machine("1x-a100-pcie-40gb")).find().device
    assert isinstance(device, Gpu)
    operators = _operators()

    def predict() -> float:
        costs = (operator_costs(device, operator, "fwd", "fp32") for operator in operators)
        return sum(cost.time_s for kernels in costs for cost in kernels)

    assert benchmark.pedantic(predict, setup=kernel_cost.cache_clear, rounds=5) > 0
    assert benchmark.stats.stats.min < _OPERATORS_TARGET_S


@pytest.mark.parametrize("name", _STEP_TARGETS_S)
def test_step(benchmark: BenchmarkFixture, name: str) -> None:
    """A training step from the network's name to the result, nothing remembered."""
    machine = load_machine("1x-a100-pcie-40gb")

    def step() -> float:
        network = build_network(name, batch=1 if name.startswith("gpt") else 64, loss=True)
        return alone_on(machine, network, StepOptions()).step_time_s

    assert benchmark.pedantic(step, setup=kernel_cost.cache_clear, rounds=5) > 0
    assert benchmark.stats.stats.min < _STEP_TARGETS_S[name]
