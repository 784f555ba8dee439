"""Messages that take processor time, by hand: rings and stars whose wires take no time."""

from __future__ import annotations

import json

import pytest

from simulator.collectives.lower import BINDING, host_work
from simulator.network.machine import Machine
from simulator.results.trace import chrome_trace
from tests.asked import exchange_on
from tests.machines import machine_from

M, R = 40e-6, 100e-6


def hosts(n: int, messages: str = "", rate: str = "1000 Gbit/s") -> Machine:
    return machine_from(
        f"""
schema_version: 1
name: hosts
parts:
  wire: {{kind: link, of: ethernet, bandwidth: {rate}, source: test}}
cluster: {{node: linux-host, nodes: {n}, fabric: wire{messages}}}
"""
    )


def costing(n: int, processors: int | None = None, rate: str = "1000 Gbit/s") -> Machine:
    shared = f", processors: {processors}" if processors else ""
    return hosts(n, f", messages: {{message: {M * 1e6:g} us, round: {R * 1e6:g} us{shared}}}", rate)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_a_ring_of_short_messages_takes_its_rounds(n: int) -> None:
    # Each host sends one message and receives one in each of 2 (n - 1) rounds.
    rounds = 2 * (n - 1)
    assert exchange_on(costing(n), "ring", 4000).sync_time_s == pytest.approx(rounds * (R + 2 * M), rel=1e-3)


@pytest.mark.parametrize(("n", "processors", "times"), [(6, 2, 3), (6, 4, 1.5), (2, 4, 1), (3, 1, 3)])
def test_hosts_share_processors(n: int, processors: int, times: float) -> None:
    alone, shared = (exchange_on(costing(n, p), "ring", 4000).sync_time_s for p in (None, processors))
    assert shared == pytest.approx(times * alone, rel=1e-3)


def test_the_busiest_host_is_waited_for() -> None:
    # The first of six hosts gathers five messages, then sends five.
    assert exchange_on(costing(6), "gpu0", 600).sync_time_s == pytest.approx(2 * (R + 5 * M), rel=1e-2)


def test_several_rings_at_once_share_a_host() -> None:
    # Both directions at once: two messages each way, and the cost of a round for each direction.
    assert exchange_on(costing(4), "bidirectional-ring", 4000).sync_time_s == pytest.approx(
        6 * 2 * (R + 2 * M), rel=1e-2
    )


def test_what_the_wire_takes_longer_for_hides_it() -> None:
    slow, bare = costing(4, 2, rate="100 Mbit/s"), hosts(4, rate="100 Mbit/s")
    times = [exchange_on(machine, "ring", 1e6).sync_time_s for machine in (slow, bare)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert [BINDING in exchange_on(slow, "ring", size).notes for size in (1e6, 4e3)] == [False, True]


def test_gloo_broadcasts_with_them_too() -> None:
    # The root sends two messages at once to two waiting hosts, which share its processor.
    assert exchange_on(costing(3), "gloo", 400, collective="broadcast").sync_time_s == pytest.approx(
        2 * (R + M), rel=5e-2
    )


def test_inside_a_host_and_where_none_is_said_nothing_is_added() -> None:
    assert host_work(hosts(3), [(0, 5)]) == ()
    machine = costing(3)
    own = [node.index for node in machine.nodes_of(1)]
    assert host_work(machine, [(own[0], own[1])]) == ()
    assert host_work(machine, [(own[0], machine.gpus[0])])[0].duration_s == pytest.approx(R + M)


@pytest.mark.parametrize("strategy", ["ring", "bidirectional-ring", "gpu0", "gloo", "hierarchical"])
def test_processor_work_is_no_slice_of_a_link(strategy: str) -> None:
    """Processor work runs beside a round's flows; a trace shows only the flows."""
    result = exchange_on(costing(3), strategy, 4000)
    slices = [each for each in json.loads(chrome_trace(result))["traceEvents"] if each["ph"] == "X"]
    assert slices
