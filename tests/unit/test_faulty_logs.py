"""Faults put into logs of healthy machines are found and named; :mod:`tests.faulty.run` counts them over 200 logs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from tests.faulty.faults import FAULTS
from tests.faulty.run import FoundFault, faulty_times, found_faults
from tests.published_logs import PublishedRun
from validate.check.check import check_log

SESSION = Session()
SIZES = [1 << power for power in range(18, 33, 2)]


def simulated(machine: str, nodes: int | None) -> PublishedRun:
    where = Where(machine, nodes)
    times = tuple((size, SESSION.time_s(CollectiveQuestion(where=where, size_bytes=float(size)))) for size in SIZES)
    return PublishedRun("A", machine, where, "all-reduce", times, tuple(range(8)), 1, (2, 30), nodes or 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "nodes", "fault"),
    [
        ("dgx-a100-80gb", 2, "no GPUDirect"),
        ("dgx-h100", 2, "a quarter of the adapters"),
        ("dgx-h100", 2, "one rail"),
        ("dgx-a100-80gb", 2, "one slow node"),
        ("dgx-h100", 2, "a cliff"),
        ("dgx-h100", None, "NVLink down"),
        ("dgx-h100", None, "half of a GPU's links"),
        ("dgx-h100", None, "LL"),
        ("8x-a100-pcie", None, "PCIe at half rate"),
        ("8x-a100-pcie", None, "one slow rank"),
    ],
)
def test_a_fault_is_found_and_among_the_first_two(machine: str, nodes: int | None, fault: str) -> None:
    run = simulated(machine, nodes)
    times = faulty_times(SESSION, run, fault, random.Random(f"{machine} {fault}"))
    found = FoundFault(machine, fault, check_log(SESSION, run.log(times), machine, nodes=nodes, nccl=run.nccl))
    assert found.is_slow
    assert 1 <= found.rank() <= 2
    assert len(FAULTS) == 15


def test_noise_is_no_fault() -> None:
    for machine, nodes in (("dgx-h100", 2), ("8x-a100-pcie", None)):
        run = simulated(machine, nodes)
        times = faulty_times(SESSION, run, "", random.Random(1))
        assert times != list(run.times)
        assert check_log(SESSION, run.log(times), machine, nodes=nodes, explains=False).verdict == "healthy"


@pytest.mark.slow
def test_faults_put_into_published_logs_are_found(corpus: Path) -> None:
    found = list(found_faults([corpus / "collectives.csv"], logs=30))  # each fault once
    healthy, faulty = ([each for each in found if bool(each.fault) == is_faulty] for is_faulty in (False, True))
    assert len(healthy) == 15
    assert len(faulty) >= 13  # some machines cannot have some faults
    assert sum(each.is_slow for each in healthy) <= 1
    assert sum(each.is_slow for each in faulty) >= 0.85 * len(faulty)
    assert sum(1 <= each.rank() <= 2 for each in faulty) >= 0.6 * len(faulty)
