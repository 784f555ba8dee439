"""Max-min fair shares by the number of flows and by how much they share.

See ``benchmarks/test_engine.py`` for how to run it.
"""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from simulator.network.fairshare import fair_rates

Loads = list[list[tuple[int, float]]]
_SIZES = [2, 8, 64, 1024, 8192]


def crossbar(n: int) -> tuple[Loads, list[float]]:
    """Each flow has a port out and the next one's port in: all are as fast."""
    return [[(i, 1.0), (n + (i + 1) % n, 1.0)] for i in range(n)], [50e9] * (2 * n)


def trunk(n: int) -> tuple[Loads, list[float]]:
    """All flows share one link behind links of their own, half of which are narrower than their share."""
    return [[(0, 1.0), (i + 1, 1.0)] for i in range(n)], [1e9 * n, *(5e8 if i % 2 else 2e9 for i in range(n))]


def unequal(n: int) -> tuple[Loads, list[float]]:
    """Neighbours share a link; every link is full at a level of its own."""
    return [[(i, 1.0), (i + 1, 0.5)] for i in range(n)], [1e9 + 1e3 * i for i in range(n + 1)]


@pytest.mark.parametrize("shape", [crossbar, trunk, unequal])
@pytest.mark.parametrize("n", _SIZES)
def test_fair_rates(benchmark: BenchmarkFixture, n: int, shape: object) -> None:
    assert callable(shape)
    loads, capacities = shape(n)
    rates = benchmark.pedantic(
        fair_rates, (loads, [float("inf")] * n, capacities), rounds=5, iterations=max(1, 2_000 // n)
    )
    assert len(rates) == n
