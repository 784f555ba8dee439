"""Columns, rings, and the sentence that explains why the fastest is the fastest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.network.routing import Router
from simulator.plan.plan import Flow, PlanBuilder
from simulator.results import bandwidth_column, duration_column, shortened_ring, size_column
from simulator.results.reason import rounds_in_sequence, verdict
from simulator.results.result import Result, bare_words, best_of, by_time
from tests.asked import exchange_on
from tests.machines import ring_machine


def results(topology: str, size: float, *strategies: str) -> list[Result]:
    machine = load_machine(topology)
    return by_time(exchange_on(machine, name, size) for name in strategies)


def test_bytes_and_use_of_the_busiest_link() -> None:
    assert verdict(results("4gpu-pcie", 160e6, "ring", "gpu0")) == (
        "gpu0 needs at least 60 ms; the lowest bound, that of ring, is 15 ms: 25 % of the time of gpu0, as ring takes "
        "15 ms for 240 MB over PCIe, 100 % in use; gpu0 60 ms for 480 MB over PCIe, 50 % in use"
    )


def test_rounds_decide_where_latency_does() -> None:
    """The bytes of three GPUs beside the other CPU, 2 x 24 at 12.35 GB/s of PCIe, are 3.9 ns of the time of gpu0."""
    text = verdict(results("p3.16xlarge", 8, "gpu0", "ring"))
    assert text.startswith("gpu0 needs at least 3.884 us; no ideal schedule on the bare links is below gpu0: ring ")
    assert text.endswith("gpu0 runs 2 rounds one after the other, ring 14")


def test_ties_are_named() -> None:
    found = results("4gpu-pcie", 160e6, "ring", "sharded")
    assert verdict(found) in ("ring and sharded have the same bound", "sharded and ring have the same bound")
    assert verdict(found[:1]).endswith(" needs at least 15 ms")


def test_only_what_software_does_is_fastest() -> None:
    found = results("p3.16xlarge", 160e6, "ring", "gpu0", "nccl")
    # gpu0 takes in, and sends, what three GPUs beside the other CPU hold, through its own link of PCIe.
    through_gpu0 = next(each for each in found if each.strategy == "gpu0")
    assert through_gpu0.sync_time_s == pytest.approx(2 * 3 * 160e6 / 12.35e9, rel=0.03)
    assert best_of(found).strategy == "nccl"
    assert verdict(found).startswith("nccl is faster, 35.3 times as fast as gpu0 (band not measured): ")
    assert verdict(found).endswith("; no ideal schedule on the bare links is below nccl: ring needs at least 4.097 ms")
    assert best_of(found[1:]).strategy == "gpu0"  # slower than the ring, which nobody can select
    assert best_of(found[1:2]).strategy == "ring"  # where there are only bounds
    twice = by_time([*found, *results("dgx-h100", 160e6, "nccl")])
    assert verdict(twice).startswith("nccl on dgx-h100 is fastest, ")
    assert " times as fast as nccl on p3.16xlarge (80 % band " in verdict(twice)


def test_what_is_faster_on_the_bare_links_alone_is_not_recommended() -> None:
    """Eight bytes: the copies of gpu0 take 3.9 us without their launches, NCCL 20 us with its own."""
    found = results("p3.16xlarge", 8, "gpu0", "nccl")
    assert [result.strategy for result in found] == ["gpu0", "nccl"]
    assert best_of(found).strategy == "nccl"
    assert verdict(found) == "nccl takes 19.82 us; gpu0 would need 3.884 us on the bare links alone"
    assert bare_words(found) == "gpu0 is on the bare links: launches and protocols add to these times"
    assert bare_words(found[1:]) == ""


def test_a_time_is_the_same_whatever_rounding_does() -> None:
    first, second = results("4gpu-pcie", 160e6, "ring", "sharded")
    later = replace(second, sync_time_s=first.sync_time_s * (1 - 1e-12))
    assert by_time([first, later]) == [first, later]
    assert verdict([first, later]).endswith("have the same bound")


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
    assert verdict(found).startswith(
        "halving-doubling and ring have the lowest bound (equal within 1 %), and that of sharded is "
    )
    assert verdict(found[:2]) == "halving-doubling and ring have the same bound (equal within 1 %)"
    machine = load_machine("p3.16xlarge")
    nccl = exchange_on(machine, "nccl", 160e6)
    slower = [replace(nccl, strategy=name, sync_time_s=nccl.sync_time_s * f) for name, f in (("a", 1.009), ("b", 1.5))]
    assert verdict([nccl, *slower[:1]]) == "nccl and a are equal within 1 %"
    assert verdict([nccl, *slower]).startswith(
        "nccl and a are fastest (equal within 1 %), 1.5 times as fast as b (band not measured): "
    )
    assert verdict([nccl, replace(nccl, strategy="a")]) == "nccl and a are equally fast"


def test_what_the_model_cannot_tell_apart_is_equal_within_its_error() -> None:
    nccl = exchange_on(load_machine("p3.16xlarge"), "nccl", 1e8)
    slower = replace(nccl, machine="another", sync_time_s=1.05 * nccl.sync_time_s)
    assert verdict([nccl, slower]) == ("p3.16xlarge and another are equal within the model's error of 7 %: 5.0 % apart")
    assert verdict([nccl, replace(slower, sync_time_s=2 * nccl.sync_time_s)]).startswith(
        "p3.16xlarge is faster, 2 times"
    )
    same = replace(slower, machine="p3.16xlarge", strategy="gpu0")
    assert same.confidence.estimate is None  # nobody measured that strategy, and the margin is only 1 %
    assert verdict([nccl, same]).startswith("nccl is faster, 1.05 times as fast as gpu0 (band not measured): ")
