"""How long it takes until there is something to see: the command line, and loading machines.

See ``benchmarks/test_engine.py`` for how to run it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.machines import ring
from simulator.topology.catalogue import builtin_topologies, load_part
from simulator.topology.load import load_topology

_ROOT = Path(__file__).resolve().parent.parent
_COLD_START_S = 1.0


def test_cold_start(benchmark: BenchmarkFixture) -> None:
    """A process from its start to its end."""
    command = [sys.executable, "-m", "simulator", "--topology", "p3.16xlarge.yaml", "--strategy", "ring"]
    done = benchmark.pedantic(
        subprocess.run, (command,), {"capture_output": True, "text": True, "check": True, "cwd": _ROOT}, rounds=5
    )
    assert "ring" in done.stdout
    assert benchmark.stats.stats.min < _COLD_START_S


_STEP = ("--workload", "resnet50", "--batch", "64")


@pytest.mark.parametrize(
    ("most", "options"),
    [(2.4, ("--strategy", "ring")), (4.4, _STEP), (8.4, (*_STEP, "--strategy", "all"))],
    ids=["ring", "step", "all strategies"],
)
def test_process_against_imports(most: float, options: tuple[str, ...]) -> None:
    """CPU time of a whole process over that of importing what it stands on, the least of several in turn."""
    imports = [sys.executable, "-c", "import simpy, yaml, pydantic"]
    asked = [sys.executable, "-m", "simulator", "--topology", "p3.16xlarge", *options]
    spent_s = [(_cpu_s(imports), _cpu_s(asked)) for _ in range(7)]
    ratio = min(own for _, own in spent_s) / min(other for other, _ in spent_s)
    print(f"{' '.join(options)}: {ratio:.2f} times importing simpy, yaml and pydantic")  # noqa: T201  shown by -s
    assert ratio < most


def _cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=_ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_import(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(
        subprocess.run, ([sys.executable, "-c", "import simulator.api"],), {"check": True, "cwd": _ROOT}, rounds=5
    )


@pytest.mark.parametrize("name", ["p3.16xlarge", "dgx-h100", "gb200-nvl72"])
def test_load_a_topology_and_its_parts(benchmark: BenchmarkFixture, name: str) -> None:
    benchmark.pedantic(load_topology, (name,), setup=load_part.cache_clear, rounds=10)


def test_load_all_topologies(benchmark: BenchmarkFixture) -> None:
    def load_all() -> int:
        return sum(len(load_topology(name).devices) for name in builtin_topologies())

    assert benchmark.pedantic(load_all, rounds=1) > 0


@pytest.mark.parametrize("links", ["equal", "unequal"])
def test_load_a_large_machine(benchmark: BenchmarkFixture, links: str) -> None:
    """4,096 GPUs; their links in one line, or in a line each."""
    benchmark.pedantic(ring, (4096,), {"equal": links == "equal"}, rounds=2)


def test_compose_a_cluster(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(load_topology, ("p3.16xlarge",), {"n_nodes": 1024}, rounds=2)
