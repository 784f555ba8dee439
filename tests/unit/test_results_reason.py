"""Columns, rings and the sentence on why the fastest is the fastest."""

from __future__ import annotations

import pytest

from simulator.api import load_machine, simulate
from simulator.network.routing import Router
from simulator.plan.plan import Flow, PlanBuilder
from simulator.results.columns import bandwidth_column, duration_column, shortened_ring, size_column
from simulator.results.reason import rounds_in_sequence, why_fastest
from tests.machines import ring_machine


def results(topology: str, size: float, *strategies: str):
    machine = load_machine(topology)
    found = [simulate(machine, name, size) for name in strategies]
    return sorted(found, key=lambda r: r.sync_time_s)


def test_bytes_and_directions() -> None:
    assert why_fastest(results("4gpu-pcie", 160e6, "ring", "gpu0")) == (
        "ring is fastest, 4 times as fast as gpu0: the bottleneck gpu0->switch0 carries 240 MB in 100 % of the time, "
        "with gpu0 480 MB in 50 % of the time; ring uses both directions of it at once, gpu0 in turn"
    )


def test_rounds_decide_where_latency_does() -> None:
    text = why_fastest(results("p3.16xlarge", 8, "gpu0", "ring"))
    assert text.startswith("gpu0 is fastest, ")
    assert text.endswith("it runs 2 rounds one after the other, ring 14")


def test_ties_are_named() -> None:
    found = results("4gpu-pcie", 160e6, "ring", "sharded")
    assert why_fastest(found) in ("ring and sharded take the same time", "sharded and ring take the same time")
    assert why_fastest(found[:1]).endswith(" is the only one that fits")


def test_the_longest_chain_counts_rounds() -> None:
    machine = ring_machine(3)
    flows = [Flow(Router(machine).route(machine.gpus[0], machine.gpus[1]), 8.0)]
    builder = PlanBuilder()
    first = builder.transfer("a", flows, repeat=3)
    builder.transfer("b", flows, stream="other", repeat=4)
    work = builder.work("w", "gpu0", 1.0, stream="third", after=[first])
    builder.transfer("c", flows, stream="third", after=[work], repeat=2)
    assert rounds_in_sequence(builder.build()) == 5


def test_columns_share_a_unit() -> None:
    assert duration_column([0.0012345, 0.02]) == ["1.234 ms", "20.000 ms"]
    assert duration_column([1e-6, 1.0]) == ["1.000 us", "1.000 s"]
    assert duration_column([0.0]) == ["0 ns"]
    assert duration_column([0.9e-3, 5e-3]) == ["900.0 us", "5000.0 us"]
    assert bandwidth_column([0.5e9, 54e9]) == ["0.500 GB/s", "54.000 GB/s"]
    assert size_column([8.0, 16.0]) == ["8 B", "16 B"]


@pytest.mark.parametrize(
    ("ring", "text"),
    [((0, 1, 2, 3), "0..3"), ((0, 3, 2, 1, 5), "0 3 2 1 5"), ((7, 6, 5, 4, 0), "7..4 0"), ((0,), "0"), ((0, 1), "0 1")],
)
def test_runs_of_a_ring_are_shortened(ring: tuple[int, ...], text: str) -> None:
    assert shortened_ring(ring) == text


def test_a_long_ring_loses_its_middle() -> None:
    text = shortened_ring([i ^ 1 for i in range(64)])
    assert text == "1 0 3 2 5 4 7 6 9 8 11 10 13 12 15 14 17 16 19 ... 61 60 63 62 (64 GPUs)"


def test_times_that_no_model_tells_apart_are_alike() -> None:
    found = results("g4dn.12xlarge", 160e6, "ring", "halving-doubling", "sharded")
    assert why_fastest(found).startswith("halving-doubling and ring are fastest (within 0.1 %), ")
