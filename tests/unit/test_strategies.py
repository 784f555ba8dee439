"""Strategies compared with arithmetic: textbook machines, closed forms on an ideal crossbar, requirements."""

from __future__ import annotations

import json
from importlib import metadata, resources
from math import log2, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator, Request, Unsuitable
from simulator.collectives.lower import best_chunk_count
from simulator.collectives.registry import ENTRY_POINT_GROUP, find_strategy, strategy_names
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.workload import COLLECTIVES
from tests.asked import exchange_on, request_of
from tests.examples import few
from tests.machines import crossbar, machine_from, machines, ring_machine

pytestmark = pytest.mark.slow

S = 160e6
B = 50e9
L = 5e-6
EXACT = 1e-9  # relative: rounding
IDEAL = 1e-3  # relative: the fill of a pipeline
OWN = [name for name in strategy_names() if name != "nccl"]


def time_s(machine: Machine, strategy: str, size: float = S, **options: object) -> float:
    return exchange_on(machine, strategy, size, **options).sync_time_s  # type: ignore[arg-type]


def fast(n: int) -> Machine:
    return crossbar(n, "50 GB/s", "5 us")


def test_built_in_strategies_are_what_packages_register():
    tables = json.loads(resources.files("simulator.collectives").joinpath("strategies.json").read_text())
    own = {**tables["compared"], **tables["by name only"]}
    assert list(own) == strategy_names(named_only=True)
    for name, written in own.items():
        found = find_strategy(name)
        where = written if isinstance(written, str) else written["write"]
        loaded = metadata.EntryPoint(name, where, ENTRY_POINT_GROUP).load()
        own_writer = getattr(found, "write", None)
        assert loaded in (found, own_writer, getattr(own_writer, "func", None))  # that of a numbered GPU is partial
        assert found.name == name
        assert found.summary
        assert callable(found.plan)


@pytest.mark.parametrize("name", ["gpu3", "parameter-server-2", "parameter-server-sharded"])
def test_a_numbered_strategy_has_its_own_name(name):
    assert find_strategy(name).name == name


# -- the textbook's machines -------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "milliseconds"), [("gpu0", 60), ("gpu3", 60), ("cpu", 80), ("sharded", 15), ("ring", 15)]
)
def test_four_gpus_behind_one_switch(strategy, milliseconds):
    assert time_s(load_machine("4gpu-pcie"), strategy) == pytest.approx(milliseconds * 1e-3, rel=EXACT)


def cube_mesh() -> Machine:
    """Return the hybrid cube mesh with 18 GB/s per link and no latency."""
    return machine_from(
        """
schema_version: 1
name: cube mesh
devices:
  gpu[0-7]: {kind: gpu}
meshes:
  - kind: nvlink
    bandwidth: 18 GB/s
    matrix: |
      X 1 1 2 2 0 0 0
      1 X 2 1 0 2 0 0
      1 2 X 2 0 0 1 0
      2 1 2 X 0 0 0 1
      2 0 0 0 X 1 1 2
      0 2 0 0 1 X 2 1
      0 0 1 0 1 2 X 2
      0 0 0 1 2 1 2 X
"""
    )


@pytest.mark.parametrize(
    ("strategy", "n_rings", "n_links"),
    [("single-ring", 1, 2), ("ring", 3, 3), ("bidirectional-ring", 6, 6), ("multi-ring", 6, 6)],
)
def test_rings_on_the_cube_mesh(strategy, n_rings, n_links):
    # A single ring uses the double links, and has both links of each.
    result = exchange_on(cube_mesh(), strategy, S)
    assert result.sync_time_s == pytest.approx(2 * 7 / 8 * S / (n_links * 18e9), rel=EXACT)
    assert len(result.rings) == n_rings
    assert result.facts["ring_count"] == n_rings


def test_each_ring_is_a_stream():
    request = request_of(cube_mesh(), S)
    plan = find_strategy("ring").plan(request)
    assert sorted({task.stream for task in plan.tasks}) == ["ring0", "ring1", "ring2"]


def test_one_ring_where_links_offer_one():
    machine = ring_machine(6, "54 GB/s", "0 s")
    assert time_s(machine, "ring") == pytest.approx(2 * 5 / 6 * S / 54e9, rel=EXACT)
    assert time_s(machine, "bidirectional-ring") == pytest.approx(5 / 6 * S / 54e9, rel=EXACT)


def test_trees_on_the_cube_mesh_use_its_links_alone():
    machine = load_machine("p3.16xlarge")
    for strategy in ("tree", "double-tree"):
        result = exchange_on(machine, strategy, S)
        assert {link.name for link in result.links if link.bytes > 0 and "plx" in link.name} == set()


@pytest.mark.parametrize("strategy", ["tree", "double-tree", "halving-doubling"])
def test_ranks_may_be_the_cpus_of_one_machine(strategy):
    machine = load_machine("cpu-2xe5-2630v3")
    group = Communicator(machine, [node.index for node in machine.nodes if node.kind == "cpu"])
    plan = find_strategy(strategy).plan(Request(group, "all-reduce", S))
    assert execute(machine, plan).end_s > 0.0


def test_the_naive_ring_grows_with_the_ranks_and_the_chunked_one_hardly():
    naive = [time_s(crossbar(n), "naive-ring") for n in (2, 4, 8, 16)]
    chunked = [time_s(crossbar(n), "ring") for n in (2, 4, 8, 16)]
    for n, got in zip((2, 4, 8, 16), naive, strict=True):
        assert got == pytest.approx(2 * (n - 1) * S / B, rel=EXACT)
    assert chunked[-1] / chunked[0] == pytest.approx((2 * 15 / 16) / 1, rel=EXACT)
    assert naive[-1] / naive[0] == pytest.approx(15, rel=EXACT)


# -- closed forms on a crossbar ----------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("size", [1e3, S])
@pytest.mark.parametrize(
    ("strategy", "collective", "closed"),
    [
        ("ring", "all-reduce", lambda n, t: 2 * (n - 1) * (L + t / n)),
        ("ring", "reduce-scatter", lambda n, t: (n - 1) * (L + t / n)),
        ("ring", "all-gather", lambda n, t: (n - 1) * (L + t / n)),
        ("ring", "all-to-all", lambda n, t: (n - 1) * (L + t / n)),
        ("ring", "send-recv", lambda n, t: L + t),
        ("naive-ring", "all-reduce", lambda n, t: 2 * (n - 1) * (L + t)),
        ("naive-ring", "broadcast", lambda n, t: (n - 1) * (L + t)),
        ("naive-ring", "reduce", lambda n, t: (n - 1) * (L + t)),
        ("gpu0", "all-reduce", lambda n, t: 2 * (L + (n - 1) * t)),
        ("gpu0", "broadcast", lambda n, t: L + (n - 1) * t),
        ("gpu0", "reduce", lambda n, t: L + (n - 1) * t),
        ("gpu0", "reduce-scatter", lambda n, t: 2 * L + (n - 1) * t + (n - 1) / n * t),
        ("gpu0", "all-gather", lambda n, t: 2 * L + (n - 1) / n * t + (n - 1) ** 2 / n * t),
        ("sharded", "all-reduce", lambda n, t: 2 * (L + (n - 1) / n * t)),
        ("sharded", "reduce-scatter", lambda n, t: L + (n - 1) / n * t),
        ("sharded", "all-gather", lambda n, t: L + (n - 1) / n * t),
        ("sharded", "all-to-all", lambda n, t: L + (n - 1) / n * t),
        ("sharded", "reduce", lambda n, t: 2 * (L + (n - 1) / n * t)),
    ],
)
def test_closed_forms(strategy, collective, closed, n, size):
    assert time_s(fast(n), strategy, size, collective=collective) == pytest.approx(closed(n, size / B), rel=EXACT)


@pytest.mark.parametrize("n", [4, 8, 16, 32])
@pytest.mark.parametrize("collective", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"])
def test_halving_doubling(n, collective):
    halves = 1 if collective in ("reduce-scatter", "all-gather") else 2
    expected = halves * (log2(n) * L + (n - 1) / n * S / B)
    assert time_s(fast(n), "halving-doubling", collective=collective) == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("n", [5, 6, 7, 12, 31])
def test_halving_doubling_of_other_numbers(n):
    p = 1 << (n.bit_length() - 1)
    expected = (2 * log2(p) + 2) * L + (2 * (p - 1) / p + 2) * S / B
    assert time_s(fast(n), "halving-doubling") == pytest.approx(expected, rel=EXACT)


def test_short_buffers_are_exchanged_whole():
    result = exchange_on(fast(16), "halving-doubling", 1e3)
    assert result.facts["algorithm"] == "recursive doubling"
    assert result.sync_time_s == pytest.approx(4 * (L + 1e3 / B), rel=EXACT)
    assert exchange_on(fast(16), "halving-doubling", S).facts["algorithm"] == "halving-doubling"
    # With two ranks each sends everything in either case; exchanging at once saves a round.
    assert time_s(fast(2), "halving-doubling") == pytest.approx(L + S / B, rel=EXACT)


@pytest.mark.parametrize("n", [3, 8, 16])
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("root", [0, 2])
def test_chains_are_near_the_best_number_of_chunks(n, collective, root):
    result = exchange_on(fast(n), "ring", S, collective=collective, root=root)
    best = (sqrt(S / B) + sqrt((n - 2) * L)) ** 2  # the minimum of (m + n - 2)(L + S/(mB)) over real m
    assert best * (1 - EXACT) <= result.sync_time_s <= best * (1 + 1e-4)


_STEADY = [  # S/B in the steady state, and the rounds of the fill
    ("tree", "all-reduce", 3, lambda n: 2 * (n.bit_length() - 1) - 1),
    ("tree", "broadcast", 2, lambda n: n.bit_length() - 2),
    ("tree", "reduce", 2, lambda n: n.bit_length() - 2),
    ("double-tree", "all-reduce", 2, lambda n: 2 * (n.bit_length() - 1) - 1),
    ("double-tree", "broadcast", 1, lambda n: (n - 1).bit_length() - 1),
    ("double-tree", "reduce", 1, lambda n: (n - 1).bit_length() - 1),
]


@pytest.mark.parametrize("n", [8, 13, 16])
@pytest.mark.parametrize(("strategy", "collective", "steady", "fill"), _STEADY)
def test_trees_reach_their_steady_state(strategy, collective, steady, fill, n):
    # Without latency, chunks have their least size, and the fill takes no time.
    ideal = time_s(crossbar(n), strategy, collective=collective)
    assert ideal == pytest.approx(steady * S / B, rel=IDEAL)
    # With latency, between the steady state alone and full rounds throughout.
    result = exchange_on(fast(n), strategy, S, collective=collective)
    m = result.facts["chunk_count"]
    chunk_s = steady * S / B / m
    assert m * (L + chunk_s) <= result.sync_time_s <= (m + fill(n)) * (L + chunk_s) * (1 + EXACT)
    assert result.sync_time_s <= (sqrt(steady * S / B) + sqrt(fill(n) * L)) ** 2 * (1 + IDEAL)


@pytest.mark.parametrize("strategy", ["tree", "double-tree"])
def test_trees_of_short_buffers_take_a_round_for_each_level(strategy):
    assert time_s(fast(16), strategy, 8) == pytest.approx(2 * 4 * L, rel=0.01)
    assert exchange_on(fast(16), strategy, 8).facts["chunk_count"] == 1


def test_a_tree_of_two_ranks():
    assert time_s(fast(2), "tree", 8) == pytest.approx(2 * (L + 8 / B), rel=EXACT)


@pytest.mark.parametrize("strategy", ["ring", "sharded", "halving-doubling", "double-tree"])
@pytest.mark.parametrize("n", [2, 5, 8])
def test_none_beats_the_bound_of_the_links(strategy, n):
    # 2(n-1)/n S must leave each rank: Patarasuk and Yuan 2009, section 3.
    assert time_s(crossbar(n), strategy) >= 2 * (n - 1) / n * S / B * (1 - EXACT)


@pytest.mark.parametrize("strategy", ["ring", "sharded"])
def test_named_pairs(strategy):
    machine = fast(4)
    assert time_s(machine, strategy, collective="send-recv", pairs=[(0, 1)]) == pytest.approx(L + S / B, rel=EXACT)
    two = time_s(machine, strategy, collective="send-recv", pairs=[(0, 1), (2, 1)])
    assert two == pytest.approx(L + 2 * S / B, rel=EXACT)


# -- chunk counts ------------------------------------------------------------------


def test_best_chunk_count_is_the_least_of_all():
    for size, fill, latency, beta in [(1e6, 6, 5e-6, 1e-9), (3e7, 30, 1e-6, 1e-10), (5e5, 2, 2e-5, 1e-9)]:
        best = best_chunk_count(size, fill, latency, beta)
        most = int(size / 4096)
        assert best == min(range(1, most + 1), key=lambda m: (m + fill) * (latency + size * beta / m))


def test_chunk_counts_at_the_edges():
    assert best_chunk_count(1e6, 0, 1e-6, 1e-9) == 1  # nothing to fill
    assert best_chunk_count(0.0, 5, 1e-6, 1e-9) == 1
    assert best_chunk_count(4000, 5, 0.0, 1e-9) == 1
    assert best_chunk_count(1e6, 5, 0.0, 1e-9) == 244  # chunks of 4 KiB
    assert best_chunk_count(1e12, 5, 0.0, 1e-9) == 65536


# -- sums in memory ----------------------------------------------------------------


def test_sums_that_are_not_made_on_arrival_take_memory_time():
    machine = machine_from(
        """
schema_version: 1
name: with memory
devices:
  gpu[0-3]: {kind: gpu, memory_bandwidth: 500 GB/s}
  cpu0: {kind: cpu}
  switch0: {kind: pcie-switch}
links:
  - {between: ["gpu[0-3]", switch0], kind: pcie, bandwidth: 16 GB/s}
  - {between: [switch0, cpu0], kind: pcie, bandwidth: 16 GB/s}
"""
    )
    assert time_s(machine, "gpu0") == pytest.approx(60e-3 + 5 * S / 500e9, rel=EXACT)
    assert time_s(machine, "sharded") == pytest.approx(15e-3 + 5 * S / 4 / 500e9, rel=EXACT)
    assert time_s(machine, "cpu") == pytest.approx(80e-3, rel=EXACT)
    assert time_s(machine, "ring") == pytest.approx(15e-3, rel=EXACT)


# -- requirements ------------------------------------------------------------------


@pytest.mark.parametrize("strategy", OWN)
def test_one_rank_has_nothing_to_do(strategy):
    assert time_s(load_machine("4gpu-pcie"), strategy, gpus=[2]) == 0.0


@pytest.mark.parametrize(
    ("strategy", "collective", "words"),
    [
        ("gpu0", "all-to-all", "gathering on one device cannot do all-to-all"),
        ("gpu7", "all-reduce", "there is no GPU 7; it has GPUs 0 to 3"),
        ("cpu", "send-recv", "gathering on one device cannot do send-recv"),
        ("naive-ring", "all-gather", "passes whole buffers on and cannot do all-gather"),
        ("tree", "reduce-scatter", "a tree carries whole buffers and cannot do reduce-scatter"),
        ("double-tree", "all-to-all", "a tree carries whole buffers"),
        ("halving-doubling", "send-recv", "cannot do send-recv"),
        ("hierarchical", "all-reduce", "it needs several nodes, and all ranks are on one"),
        ("parameter-server", "broadcast", "that is all-reduce, not broadcast"),
        ("parameter-server-2", "all-reduce", "2 servers need a node each, and one node takes part"),
        ("parameter-server-0", "all-reduce", "there must be a server; name 1 or more"),
    ],
)
def test_what_does_not_fit_says_why(strategy, collective, words):
    request = request_of(load_machine("4gpu-pcie"), S, collective=collective)
    with pytest.raises(Unsuitable, match=words):
        find_strategy(strategy).plan(request)


def test_a_machine_without_a_cpu():
    with pytest.raises(InputError, match="no CPU is linked"):
        exchange_on(crossbar(4), "cpu", S)
    with pytest.raises(InputError, match="no CPU is linked to gpu0"):
        exchange_on(crossbar(4), "parameter-server", S)


def test_a_flow_for_each_pair_of_very_many_ranks_is_refused():
    machine = load_machine("4gpu-pcie", n_nodes=129, fabric="ethernet-100g")
    for strategy, collective in (("sharded", "broadcast"), ("ring", "all-to-all")):
        with pytest.raises(InputError, match="a flow between any two of 516 ranks is more than is simulated"):
            exchange_on(machine, strategy, S, collective=collective)


def test_gather_on_a_gpu_that_takes_no_part():
    machine = load_machine("4gpu-pcie")
    with pytest.raises(InputError, match="GPU 3 takes no part"):
        exchange_on(machine, "gpu3", S, gpus=[1, 2])
    assert time_s(machine, "gpu0", gpus=[1, 2]) == pytest.approx(2 * S / 16e9, rel=EXACT)


@pytest.mark.parametrize(
    "name", ["p3.16xlarge", "dgx-2", "p2.16xlarge", "8x-titanx-maxwell-dual-root", "2x-gtx1080-desktop"]
)
def test_every_strategy_fits_or_says_why(name):
    machine = load_machine(name)
    for strategy in OWN:
        for collective in COLLECTIVES:
            request = request_of(machine, 1e6, collective=collective, root=1)
            try:
                plan = find_strategy(strategy).plan(request)
            except Unsuitable:
                continue
            assert 0 < execute(machine, plan).end_s < 1


def test_registered_names_are_those_of_the_strategies():
    for name in [*OWN, "gpu5", "parameter-server-3", "parameter-server-colocated"]:
        strategy = find_strategy(name)
        assert strategy.name == name
        assert strategy.summary
        assert "\n" not in strategy.summary


# -- any machine ------------------------------------------------------------------


@settings(max_examples=few(30))
@given(machines(max_gpus=6), st.sampled_from([s for s in OWN if s not in ("hierarchical",)]), st.floats(1, 1e8))
def test_any_machine(machine, strategy, size):
    """Every strategy that fits moves at least what it must, in a finite time, and more bytes take no less."""
    n = len(machine.gpus)
    result = exchange_on(machine, strategy, size)
    assert 0 < result.sync_time_s < 1e3
    leaving = [sum(u.bytes for u in result.links if u.name.startswith(f"gpu{g}->")) for g in range(n)]
    if strategy not in ("gpu0", "cpu", "parameter-server", "tree", "naive-ring"):
        assert sum(leaving) >= 2 * (n - 1) * size * (1 - 1e-9)
    assert all(out > 0 for out in leaving)
    assert time_s(machine, strategy, 2 * size) >= result.sync_time_s * (1 - 1e-9)
