"""How long a ring all-reduce takes to simulate on thousands of GPUs, and how much memory.

Plain ``pytest`` leaves this folder out.  From the root of the repository::

    python -m pytest -n 0 benchmarks --benchmark-columns=min,median,rounds

Each benchmark of a size that has a target fails where even its fastest round misses it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.machines import SIZE, ring
from simulator.api import load_machine
from simulator.collectives.registry import find_strategy
from simulator.engine.executor import execute
from tests.asked import exchange_on, request_of

_ROOT = Path(__file__).resolve().parent.parent
_TARGETS_S = {1024: 0.2, 4096: 0.5, 16384: 2.0}
_PEAK_MIB = 200
_PEAK = """
import sys
from pathlib import Path
from benchmarks.machines import SIZE, ring
from tests.asked import exchange_on
exchange_on(ring(int(sys.argv[1]), equal=sys.argv[2] == "equal"), "single-ring", SIZE)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.parametrize("links", ["equal", "unequal"])
@pytest.mark.parametrize("n", _TARGETS_S)
def test_engine(benchmark: BenchmarkFixture, n: int, links: str) -> None:
    """The engine alone: the machine and the plan are there."""
    machine = ring(n, equal=links == "equal")
    plan = find_strategy("single-ring").plan(request_of(machine, SIZE))
    timeline = benchmark.pedantic(execute, (machine, plan), rounds=3)
    benchmark.extra_info["simulation_events"] = timeline.simulation_events
    assert benchmark.stats.stats.min < _TARGETS_S[n]


@pytest.mark.parametrize("links", ["equal", "unequal"])
@pytest.mark.parametrize("n", _TARGETS_S)
def test_plan_and_engine(benchmark: BenchmarkFixture, n: int, links: str) -> None:
    """All that a user waits for once the machine is loaded: rings, plan, engine, result."""
    machine = ring(n, equal=links == "equal")
    benchmark.pedantic(exchange_on, (machine, "single-ring", SIZE), rounds=3)


def test_round_by_round(benchmark: BenchmarkFixture) -> None:
    """Without folding: 126 rounds of 64 flows."""
    machine = ring(64, equal=True)
    plan = find_strategy("single-ring").plan(request_of(machine, SIZE))
    benchmark.pedantic(execute, (machine, plan), {"fold": False}, rounds=3)


@pytest.mark.parametrize("n_nodes", [4, 32, 128])
def test_hierarchical(benchmark: BenchmarkFixture, n_nodes: int) -> None:
    machine = load_machine("p3.16xlarge", n_nodes=n_nodes)
    benchmark.pedantic(exchange_on, (machine, "hierarchical", SIZE), rounds=3)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("links", ["equal", "unequal"])
@pytest.mark.parametrize("n", _TARGETS_S)
def test_peak_memory(n: int, links: str) -> None:
    """Of a whole process, which also loads the machine."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(n), links], capture_output=True, text=True, check=True, cwd=_ROOT
    )
    assert int(done.stdout) / 1024 < _PEAK_MIB
