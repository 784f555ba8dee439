"""Direct exchanges of many ranks: few flows represent all, with the same times and bytes as one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.collectives import communicator, scheduled
from simulator.collectives.communicator import Communicator, ConcurrentGroups, Request, Strategy, Unsuitable
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.registry import find_strategy
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.plan.flow import Pairs, Region
from simulator.plan.plan import Flow, Perturbation, Plan
from simulator.workload import Collective
from tests.examples import few
from tests.fat_trees import FatTree
from tests.machines import machine_from

_WITHOUT_ROOT: tuple[Collective, ...] = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
_SIZE_BYTES = 3e8
_SHARDED = find_strategy("sharded")


def _count(plan: Plan) -> int:
    return sum(isinstance(part, Flow) for task in plan.tasks for part in task.parts)


def _check_the_same(machine: Machine, folded: Plan, single: Plan) -> None:
    """Compare *folded*, alone and while a link is slow, expanded and not, with *single*."""
    found, wanted = execute(machine, folded), execute(machine, single)
    assert found.end_s == pytest.approx(wanted.end_s, rel=1e-9)
    assert list(found.link_bytes) == pytest.approx(list(wanted.link_bytes), rel=1e-9)
    assert list(found.resource_bytes) == pytest.approx(list(wanted.resource_bytes), rel=1e-9)
    assert {n for n, _ in found.link_bytes.firsts()} <= {n for n, _ in wanted.link_bytes.carried()}
    assert execute(machine, folded, fold=False).end_s == pytest.approx(wanted.end_s, rel=1e-9)
    slow = wanted.end_s / 3, machine.resource_names[machine.links[0].resource], 0.1
    late, long = (execute(machine, _while_slow(plan, *slow)).end_s for plan in (folded, single))
    assert late == pytest.approx(long, rel=1e-9)
    assert _sends(folded) == _sends(single)


def _while_slow(plan: Plan, at_s: float, target: str, factor: float) -> Plan:
    return replace(plan, perturbations=(Perturbation(at_s, target, factor), Perturbation(2 * at_s, target, 1.0)))


def _sends(plan: Plan) -> list[set[tuple[int, int, Region, bool]]]:
    """Return who sends which part of the buffer to whom, round by round; nothing for NCCL's kernels."""
    return [
        {(f.route.src, f.route.dst, *carried) for f, carried in zip(task.flows, task.carries(0), strict=True)}
        for task in plan.tasks
        if task.carries is not None
    ]


def _one_by_one_up_to(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled, "_ONE_BY_ONE", most)
    for module in (scheduled, communicator):
        monkeypatch.setattr(module, "MAX_DIRECT_RANKS", most)


def _both(machine: Machine, collective: Collective, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Plan]:
    request = Request(Communicator(machine, machine.gpus), collective, _SIZE_BYTES)
    plans = []
    for most in (1, 10_000):
        _one_by_one_up_to(most, monkeypatch)
        plans.append(_SHARDED.plan(request))
    return plans[0], plans[1]


@pytest.mark.parametrize("collective", _WITHOUT_ROOT)
@pytest.mark.parametrize(
    ("name", "nodes", "fabric"),
    [
        ("dgx-h100", 2, None),
        pytest.param("p3.16xlarge", 3, "ethernet-10g", marks=pytest.mark.slow),
        pytest.param("gcp-8xk80", 3, None, marks=pytest.mark.slow),
    ],
)
def test_of_equal_machines(
    name: str, nodes: int, fabric: str | None, collective: Collective, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = load_machine(name, n_nodes=nodes, **({"fabric": fabric} if fabric else {}))
    folded, single = _both(machine, collective, monkeypatch)
    own = len(machine.gpus) // nodes
    rounds = 2 if collective == "all-reduce" else 1
    assert _count(folded) == rounds * own * (2 * own - 1)  # all pairs inside one, all from one to another
    _check_the_same(machine, folded, single)


@pytest.mark.slow
@settings(deadline=None, max_examples=few(25))
@given(
    hosts=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    rates=st.lists(st.sampled_from([1, 2, 10]), min_size=4, max_size=4),
    spines=st.lists(st.sampled_from([1, 4, 10]), min_size=1, max_size=3),
    duplex=st.sampled_from(["full", "half"]),
    collective=st.sampled_from(_WITHOUT_ROOT),
)
def test_of_twins(hosts: list[int], rates: list[int], spines: list[int], duplex: str, collective: Collective) -> None:
    """Leaves with unlike numbers of hosts, host links and spines: only hosts of a leaf are twins."""
    links, number = [], 0
    for leaf, (count, rate) in enumerate(zip(hosts, rates, strict=False)):
        for _ in range(count):
            links.append(f"{{between: [host{number}, leaf{leaf}], bandwidth: {rate} GB/s, duplex: {duplex}}}")
            number += 1
        links += [f"{{between: [leaf{leaf}, spine{i}], bandwidth: {spine} GB/s}}" for i, spine in enumerate(spines)]
    text = "\n".join(f"  - {link[:-1]}, kind: ethernet, latency: 1 us}}" for link in links)
    machine = machine_from(f"""
schema_version: 1
name: leaves
devices:
  host[0-{number - 1}]: {{kind: gpu, memory_bandwidth: 100 GB/s}}
  leaf[0-{len(hosts) - 1}]: {{kind: network-switch}}
  spine[0-{len(spines) - 1}]: {{kind: network-switch}}
links:
{text}
""")
    with pytest.MonkeyPatch.context() as patch:
        folded, single = _both(machine, collective, patch)
    assert _count(folded) <= (2 if collective == "all-reduce" else 1) * len(hosts) ** 2
    _check_the_same(machine, folded, single)


@pytest.mark.slow
def test_a_fat_tree_of_324_hosts_takes_what_its_links_take() -> None:
    """Every host link is busy throughout; with half of the spines, 306 of 323 shards of 18 hosts share 9 links."""
    rounds = 2 * 256e6 / 324 / 10e9
    assert FatTree(18, 18, 18).ours_s("sharded") == pytest.approx(rounds * 323 + 8e-6, rel=1e-9)
    assert FatTree(18, 18, 9).ours_s("sharded") == pytest.approx(rounds * 306 * 18 / 9 + 8e-6, rel=1e-9)


@pytest.mark.parametrize("strategy", [_SHARDED, Nccl()])
def test_flows_do_not_grow_with_machines(strategy: Strategy) -> None:
    counts = []
    for nodes in (16, 4096):
        machine = load_machine("dgx-h100", n_nodes=nodes)
        plan = strategy.plan(Request(Communicator(machine, machine.gpus), "all-to-all", 1e9))
        counts.append(_count(plan))
    assert counts[0] == counts[1] == 8 * 7 + 8 * 8


def test_nccl_between_all_pairs_is_as_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=3)
    folded = Nccl().plan(Request(Communicator(machine, machine.gpus), "all-to-all", _SIZE_BYTES))
    monkeypatch.setattr(Communicator, "equal_hosts", lambda _: [])
    single = Nccl().plan(Request(Communicator(machine, machine.gpus), "all-to-all", _SIZE_BYTES))
    assert _count(single) == 24 * 23 > _count(folded)
    _check_the_same(machine, folded, single)


def test_with_a_root_they_are_refused_beyond_256() -> None:
    tree = FatTree(32, 32, 32).machine()
    with pytest.raises(Unsuitable, match="a flow between any two of 1024 ranks is more than is simulated"):
        _SHARDED.plan(Request(Communicator(tree, tree.gpus), "broadcast", 1e6))


def test_many_sets_of_twins_are_refused() -> None:
    tree = FatTree(130, 2, 2).machine()
    with pytest.raises(Unsuitable, match="a flow between any two of 260 ranks is more than is simulated"):
        _SHARDED.plan(Request(Communicator(tree, tree.gpus), "all-gather", 1e6))


def test_gpus_that_share_nics_in_turn_are_no_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks out of order have no equal machines; GPUs below one CPU have equal links but NICs of their own."""
    machine = load_machine("gcp-8xk80", n_nodes=3)
    ranks = (*machine.gpus[1:], machine.gpus[0])
    _one_by_one_up_to(1, monkeypatch)
    with pytest.raises(Unsuitable):
        _SHARDED.plan(Request(Communicator(machine, ranks), "all-to-all", 1e6))


def test_what_is_too_much_one_by_one_is_said_before_it_is_expanded() -> None:
    machine = load_machine("dgx-h100", n_nodes=256)
    plan = _SHARDED.plan(Request(Communicator(machine, machine.gpus), "all-to-all", 1e9))
    assert execute(machine, plan).end_s > 0
    slow = _while_slow(plan, 1e-3, machine.links[0].name, 0.5)
    for ask in (
        lambda: plan.tasks[0].flows,
        lambda: execute(machine, slow),
        lambda: execute(machine, plan, fold=False),
    ):
        with pytest.raises(InputError, match="4,192,256 flows at once are more than are simulated one by one"):
            ask()


def test_all_pairs_are_those_of_a_double_loop() -> None:
    pairs = Pairs([3, 5, 8], [3, 5, 8])
    listed = [(a, b) for a in (3, 5, 8) for b in (3, 5, 8) if a != b]
    assert list(pairs) == listed
    assert pairs[-1] == listed[-1]
    assert len(pairs) == 6
    assert sorted(pairs.ends()) == [(host, end, 2) for host in (3, 5, 8) for end in (0, 1)]
    apart = Pairs([3], [5, 8])
    assert list(apart) == [(3, 5), (3, 8)]
    assert sorted(apart.ends()) == [(3, 0, 2), (5, 1, 1), (8, 1, 1)]


def test_twins_load_their_memory_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As part of a step, an exchange occupies the memory of the GPUs that compute meanwhile."""
    machine = machine_from("""
schema_version: 1
name: two leaves
devices:
  gpu[0-5]: {kind: gpu, memory_bandwidth: 100 GB/s}
  leaf[0-1]: {kind: network-switch}
links:
  - {between: ["gpu[0-5]", "leaf[0,0,0,0,1,1]"], kind: ethernet, bandwidth: 10 GB/s}
  - {between: [leaf0, leaf1], kind: ethernet, bandwidth: 10 GB/s}
""")
    used = []
    for most in (1, 10_000):
        _one_by_one_up_to(most, monkeypatch)
        fragment = ConcurrentGroups([Communicator(machine, machine.gpus)]).collective(
            "all-to-all", _SIZE_BYTES, _SHARDED, loads_on=dict.fromkeys(machine.gpus, 1.5)
        )
        used.append([seconds for _, seconds in fragment.used_s])
    assert used[0] == pytest.approx(used[1], rel=1e-9)
    assert min(used[0]) > 0
