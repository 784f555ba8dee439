"""The engine compared with SimGrid, whose network model is set to plain max-min sharing.

Flows of random machines run in rounds; each round must take the same time in both.  SimGrid weights flows by their
latency, so all flows of a machine have the same one here: none, or a latency of their own over links without any.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simulator.collectives.registry import find_strategy
from simulator.engine.executor import execute
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Plan, PlanBuilder
from tests.asked import request_of
from tests.fat_trees import python_of_simgrid
from tests.machines import machine_from, machines

pytestmark = pytest.mark.simgrid

_REPLAY = Path(__file__).resolve().parent.parent / "simgrid_replay.py"
_TOLERANCE = 1e-6
_N_CASES = 150


@pytest.fixture(scope="module")
def simgrid() -> str:
    return python_of_simgrid()


def replay(python: str, cases: Sequence[dict[str, Any]]) -> list[list[float]]:
    """Return the duration of each round of each case in SimGrid, in seconds."""
    done = subprocess.run(
        [python, str(_REPLAY)], input=json.dumps(list(cases)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    took: list[list[float]] = json.loads(done.stdout)
    return took


def as_case(machine: Machine, plan: Plan) -> dict[str, Any]:
    """Return *plan*, a sequence of tasks on one stream, as a case for SimGrid.

    SimGrid's links are our resources, so that half-duplex links and memory that a flow crosses twice are compared as
    well.
    """
    rounds = []
    for task in plan.tasks:
        assert task.flows == task.parts
        flows = []
        for flow in task.flows:
            assert all(share == int(share) for _, share in flow.route.loads)
            path = [resource for resource, share in flow.route.loads for _ in range(int(share))]
            cap = None if flow.cap_Bps == float("inf") else flow.cap_Bps
            flows += [[path, int(flow.wire_bytes), cap, flow.route.latency_s + flow.latency_s]] * flow.count
        rounds += [flows] * task.repeat
    return {"links": [[capacity, 0.0] for capacity in machine.capacity_Bps], "rounds": rounds}


def ours(machine: Machine, plan: Plan, *, fold: bool) -> list[float]:
    """Return the duration of each round in our engine, in seconds; repeated rounds have their mean."""
    took = []
    for task, span in zip(plan.tasks, execute(machine, plan, fold=fold).spans, strict=True):
        assert task.flows == task.parts
        took += [(span.end_s - span.start_s) / task.repeat] * task.repeat
    return took


@st.composite
def cases(draw: st.DrawFn) -> tuple[Machine, Plan]:
    """Draw machines without latencies, and rounds of flows that all have the same latency, or none."""
    machine = draw(machines(latencies=False))
    router = Router(machine)
    latency_s = draw(st.sampled_from([0.0, 0.0, 1e-6, 3e-4]))
    builder = PlanBuilder()
    for _ in range(draw(st.integers(1, 4))):
        flows = []
        for _ in range(draw(st.integers(1, 8))):
            src = draw(st.sampled_from(machine.gpus))
            dst = draw(st.sampled_from([gpu for gpu in machine.gpus if gpu != src]))
            flows.append(
                Flow(
                    router.route(src, dst),
                    draw(st.one_of(st.sampled_from([1_000_000, 16_000_000]), st.integers(1, 100_000_000))),
                    count=draw(st.sampled_from([1, 1, 1, 2, 3])),
                    cap_Bps=draw(st.sampled_from([float("inf")] * 3 + [2e9, 9e9])),
                    latency_s=latency_s,
                )
            )
        builder.transfer("round", flows, repeat=draw(st.sampled_from([1, 1, 2, 5])))
    return machine, builder.build()


def test_random_rounds_take_the_same_time(simgrid: str) -> None:
    drawn: list[tuple[Machine, Plan]] = []

    @settings(max_examples=_N_CASES, database=None, phases=[Phase.generate])
    @given(cases())
    def collect(case: tuple[Machine, Plan]) -> None:
        drawn.append(case)

    collect()
    theirs = replay(simgrid, [as_case(machine, plan) for machine, plan in drawn])
    assert len(theirs) == len(drawn) >= _N_CASES
    assert sum(len(task.flows) > 4 for _, plan in drawn for task in plan.tasks) > _N_CASES // 4
    for (machine, plan), expected in zip(drawn, theirs, strict=True):
        for fold in (True, False):
            assert ours(machine, plan, fold=fold) == pytest.approx(expected, rel=_TOLERANCE), (
                f"fold={fold}: {json.dumps(as_case(machine, plan))}"
            )


def test_a_ring_over_two_switches(simgrid: str) -> None:
    """Eight GPUs, four per PCIe switch: 14 rounds of 20 MB at 12.8 GB/s, each after four hops of 1 us."""
    machine = machine_from("""
schema_version: 1
name: two switches
devices:
  gpu[0-7]: {kind: gpu}
  cpu0: {kind: cpu}
  sw[0-1]: {kind: pcie-switch}
links:
  - {between: ["gpu[0-7]", "sw[0,0,0,0,1,1,1,1]"], kind: pcie, bandwidth: 12.8 GB/s, latency: 1 us}
  - {between: ["sw[0-1]", cpu0], kind: pcie, bandwidth: 12.8 GB/s, latency: 1 us}
transport: {peer_to_peer: phb}
""")
    router = Router(machine)
    gpus = machine.gpus
    flows = [Flow(router.route(gpus[i], gpus[(i + 1) % 8]), 160_000_000 / 8) for i in range(8)]
    builder = PlanBuilder()
    builder.transfer("ring", flows, repeat=14)
    plan = builder.build()
    assert sum(ours(machine, plan, fold=True)) == pytest.approx(21.931e-3, rel=1e-4)
    assert sum(ours(machine, plan, fold=False)) == pytest.approx(21.931e-3, rel=1e-4)
    assert sum(replay(simgrid, [as_case(machine, plan)])[0]) == pytest.approx(21.931e-3, rel=1e-4)


def test_the_replay_tells_shares_apart(simgrid: str) -> None:
    """A shared link, a link that one flow loads twice, a cap and a latency have known times."""
    case = {
        "links": [[1e9, 0.0], [2e9, 0.0]],
        "rounds": [
            [[[0], 1_000_000, None, 0.0]],
            [[[0], 1_000_000, None, 0.0], [[0, 1], 1_000_000, None, 0.0]],
            [[[0, 0], 1_000_000, None, 0.0]],
            [[[0], 1_000_000, 1e8, 0.0]],
            [[[1], 1_000_000, None, 0.002]],
        ],
    }
    assert replay(simgrid, [case])[0] == pytest.approx([1e-3, 2e-3, 2e-3, 10e-3, 2.5e-3], rel=1e-9)


def _fat_tree(n_hosts: int, n_spines: int) -> Machine:
    """Return hosts under leaf switches, below spines that together carry as much as a leaf's hosts."""
    leaf = math.isqrt(n_hosts)
    leaves, under = n_hosts // leaf, ",".join(str(host // leaf) for host in range(n_hosts))
    spines = "".join(
        f'  - {{between: ["leaf[0-{leaves - 1}]", spine{i}], kind: ethernet, bandwidth: {10 * leaf / n_spines} GB/s}}\n'
        for i in range(n_spines)
    )
    return machine_from(f"""
schema_version: 1
name: fat tree
devices:
  host[0-{n_hosts - 1}]: {{kind: gpu}}
  leaf[0-{leaves - 1}]: {{kind: network-switch}}
  spine[0-{n_spines - 1}]: {{kind: network-switch}}
links:
  - {{between: ["host[0-{n_hosts - 1}]", "leaf[{under}]"], kind: ethernet, bandwidth: 10 GB/s}}
{spines}""")


def _spread(machine: Machine, plan: Plan) -> dict[str, Any]:
    """Return *plan* for SimGrid, splitting routes over several spines into one flow each; equal rounds appear once."""
    rounds = []
    for task in plan.tasks:
        flows = []
        for flow in task.flows:
            links = [(machine.links[index], share) for index, share in flow.route.links]
            alone = [link.resource for link, share in links if share == 1]
            spines: dict[int, list[int]] = {}
            for link, share in links:
                if share < 1:
                    assert share == pytest.approx(1 / math.isqrt(len(machine.gpus)))
                    is_up = machine.nodes[link.dst].name.startswith("spine")
                    spines.setdefault(link.dst if is_up else link.src, []).append(link.resource)
            ways = [alone + via for via in spines.values()] or [alone]
            flows += [[way, round(flow.wire_bytes / len(ways)), None, 0.0] for way in ways]
        rounds.append(flows)
    return {"links": [[capacity, 0.0] for capacity in machine.capacity_Bps], "rounds": rounds}


@pytest.mark.parametrize(
    ("n_hosts", "strategy", "n_spines"),
    [
        (64, "ring", 8),
        (64, "halving-doubling", 8),
        (16, "sharded", 4),
        (256, "ring", 16),
        (1024, "ring", 32),
        # One thick spine stands for many, for which SimGrid would need one flow each.
        (64, "halving-doubling", 1),
        (16, "sharded", 1),
    ],
)
def test_a_fat_tree_uses_all_its_spines(simgrid: str, n_hosts: int, strategy: str, n_spines: int) -> None:
    """No strategy waits for a spine if a leaf's uplinks carry as much as its hosts send."""
    machine = _fat_tree(n_hosts, n_spines)
    size = 256_000_000
    plan = find_strategy(strategy).plan(request_of(machine, size))
    took = sum(ours(machine, plan, fold=True))
    assert took == pytest.approx(2 * (n_hosts - 1) / n_hosts * size / 10e9, rel=1e-6)
    theirs = replay(simgrid, [_spread(machine, plan)])[0]
    assert took == pytest.approx(sum(task.repeat * s for task, s in zip(plan.tasks, theirs, strict=True)), rel=0.01)
