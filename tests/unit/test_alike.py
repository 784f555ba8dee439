"""One flow stands for equal flows of equal machines: one per role, with the same results as all flows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator, Request, Strategy
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.registry import find_strategy
from simulator.engine.executor import execute
from simulator.plan.flow import FlowData
from simulator.plan.plan import Activity, Flow, Plan, merge
from simulator.workload import Collective

_CASES = [
    ("dgx-h100", 5, "all-reduce", "tree"),
    ("dgx-h100", 12, "all-reduce", "nvls_tree"),
    ("dgx-h100", 6, "all-reduce", "ring"),
    ("dgx-h100", 7, "all-gather", "ring"),
    ("dgx-a100-80gb", 2, "all-reduce", "tree"),
    ("p3.16xlarge", 9, "all-reduce", "tree"),
    ("p3.16xlarge", 3, "reduce-scatter", "ring"),
]


def _plan(machine: str, nodes: int, collective: str, algorithm: str, size_bytes: float = 1e8) -> tuple[Request, Plan]:
    loaded = load_machine(machine, n_nodes=nodes)
    request = Request(Communicator(loaded, loaded.gpus), collective, size_bytes)  # type: ignore[arg-type]
    return request, Nccl(algorithm).plan(request)


def _parts(plan: Plan) -> list[Flow]:
    return [part for task in plan.tasks for part in task.parts if isinstance(part, Flow)]


def _apart(plan: Plan) -> Plan:
    return replace(plan, tasks=tuple(task.apart() for task in plan.tasks))


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "nodes", "collective", "algorithm"), _CASES)
def test_alike_is_as_one_by_one(machine: str, nodes: int, collective: str, algorithm: str) -> None:
    request, plan = _plan(machine, nodes, collective, algorithm)
    assert all(flow.at is not None for flow in _parts(plan))
    apart = _apart(plan)
    assert len(_parts(apart)) > len(_parts(plan))
    together, single = execute(request.machine, plan), execute(request.machine, apart)
    assert together.end_s == pytest.approx(single.end_s, rel=1e-9)
    assert together.simulation_events == single.simulation_events
    assert list(together.link_bytes) == pytest.approx(list(single.link_bytes), rel=1e-9)
    assert list(together.resource_bytes) == pytest.approx(list(single.resource_bytes), rel=1e-9)
    stepped = execute(request.machine, plan, fold=False)
    assert stepped.end_s == pytest.approx(single.end_s, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "nodes", "collective", "algorithm"), _CASES)
def test_planned_by_roles_is_as_planned_rank_by_rank(
    machine: str, nodes: int, collective: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, plan = _plan(machine, nodes, collective, algorithm)
    monkeypatch.setattr(Communicator, "equal_hosts", lambda _: [])
    _, single = _plan(machine, nodes, collective, algorithm)
    assert all(flow.at is None for flow in _parts(single))
    assert (plan.facts, plan.notes, plan.rings) == (single.facts, single.notes, single.rings)

    def listed(of: Plan) -> list[tuple[object, ...]]:
        return sorted((f.route.src, f.route.dst, f.bytes, f.cap_Bps, f.latency_s) for f in _parts(of))

    assert listed(_apart(plan)) == listed(single)
    assert execute(request.machine, plan).end_s == execute(request.machine, single).end_s


def test_firsts_are_those_that_all_carried() -> None:
    request, plan = _plan("dgx-h100", 12, "all-reduce", "tree")
    moved = execute(request.machine, plan).resource_bytes
    firsts = dict(moved.firsts())
    assert all(moved[number] == n_bytes for number, n_bytes in firsts.items())  # queried before they are expanded
    carried = dict(moved.carried())
    assert len(firsts) < len(carried) / 3
    assert firsts.items() <= carried.items()
    assert set(firsts.values()) == set(carried.values())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["tree", "nvls_tree", "ring"])
def test_flows_grow_with_roles_alone(algorithm: str) -> None:
    counts = [len(_parts(_plan("dgx-h100", nodes, "all-reduce", algorithm)[1])) for nodes in (64, 256)]
    assert counts[0] == counts[1] < 700


def test_two_groups_at_once_are_as_one_by_one() -> None:
    """On links that several collectives share, the flows of each count."""
    machine = load_machine("dgx-h100", n_nodes=4)
    whole = Communicator(machine, machine.gpus)
    plans = [Nccl("ring").plan(Request(whole.part(range(i, 32, 2)), "all-reduce", 1e8)) for i in range(2)]
    sites = {flow.at.sites for plan in plans for flow in _parts(plan) if flow.at is not None}
    assert len(sites) == 1  # equal machines share one entry
    both = merge(plans)
    together, single = execute(machine, both), execute(machine, _apart(both))
    assert together.end_s == pytest.approx(single.end_s, rel=1e-9)
    assert list(together.resource_bytes) == pytest.approx(list(single.resource_bytes), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [find_strategy(name) for name in ("ring", "single-ring", "hierarchical")])
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize(("name", "nodes"), [("dgx-h100", 3), ("p3.16xlarge", 4), ("gcp-8xk80", 5)])
def test_rings_over_equal_machines_are_as_one_by_one(
    strategy: Strategy, collective: Collective, name: str, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without caps on flows, everything that one machine shares, all machines share."""
    machine = load_machine(name, n_nodes=nodes, fabric="ethernet-10g")
    plan = strategy.plan(Request(Communicator(machine, machine.gpus), collective, 3e7))
    assert all(flow.at is not None for flow in _parts(plan))
    monkeypatch.setattr(Communicator, "equal_hosts", lambda _: [])
    single = strategy.plan(Request(Communicator(machine, machine.gpus), collective, 3e7))
    found, wanted = execute(machine, plan), execute(machine, single)
    assert found.end_s == pytest.approx(wanted.end_s, rel=1e-9)
    assert found.simulation_events == wanted.simulation_events
    assert list(found.link_bytes) == pytest.approx(list(wanted.link_bytes), rel=1e-9)
    assert plan.rings == single.rings
    for task, other in zip(plan.tasks, single.tasks, strict=True):
        assert task.carries is not None
        assert other.carries is not None
        for repetition in (0, task.repeat - 1):
            assert _sent(task, repetition) == _sent(other, repetition)


def _sent(task: Activity, repetition: int) -> set[tuple[int, int, float, FlowData]]:
    assert task.carries is not None
    carried = task.carries(repetition)
    return {(f.route.src, f.route.dst, f.bytes, c) for f, c in zip(task.flows, carried, strict=True)}


_STAGED = """
schema_version: 1
name: staged
devices:
  gpu[0-1]: {part: h100-sxm5-80gb}
  cpu0: {part: xeon-e5-2686-v4}
  sw0: {kind: pcie-switch, latency: 0.1 us}
  nvs0: {kind: nvlink-switch, latency: 0.3 us}
  nic0: {part: ena-25g}
links:
  - {between: [sw0, cpu0], kind: pcie, bandwidth: 3 GB/s, latency: 0.5 us}
  - {between: [gpu1, sw0], kind: pcie, bandwidth: 25 GB/s, latency: 0 us}
  - {between: ["gpu[0-1]", nvs0], kind: nvlink, bandwidth: 300 GB/s, latency: 0.5 us}
  - {between: [nic0, sw0], kind: pcie, bandwidth: 16 GB/s, latency: 0.5 us}
"""


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_link_that_a_flow_uses_at_both_ends_is_shared(nodes: int, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(_STAGED)
    loaded = load_machine(str(tmp_path / "m.yaml"), n_nodes=nodes)
    plan = find_strategy("ring").plan(Request(Communicator(loaded, loaded.gpus), "all-reduce", 1e6))
    folded, each = (execute(loaded, plan, fold=fold).end_s for fold in (True, False))
    assert folded == pytest.approx(each, rel=1e-9)
    ranks = 2 * nodes  # bytes to and from the NIC pass sw0->cpu0, at 3 GB/s
    assert folded > 2 * 2 * (ranks - 1) / ranks * 1e6 / 3e9
