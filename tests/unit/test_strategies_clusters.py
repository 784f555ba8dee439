"""Strategies over several machines: parameter servers, hierarchical algorithms, plans in step, orders."""

from __future__ import annotations

from functools import partial

import pytest

from simulator.api import load_machine
from simulator.collectives.rings import embed_order
from simulator.collectives.schedules import tree_schedule
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Plan, PlanBuilder, in_step
from tests.asked import exchange_on, request_of
from tests.machines import crossbar, machine_from

S = 160e6
EXACT = 1e-9  # relative: rounding
IDEAL = 1e-3  # relative: the fill of a pipeline


def time_s(machine: Machine, strategy: str, size: float = S, **options: object) -> float:
    return exchange_on(machine, strategy, size, **options).sync_time_s  # type: ignore[arg-type]


def cluster(n_nodes: int, gpus: int = 1, nic: str = "1 GB/s", fast_link: str = "1000 GB/s") -> Machine:
    """Return nodes of *gpus* GPUs on a switch and one NIC each; everything inside is fast and without latency."""
    return machine_from(
        f"""
schema_version: 1
name: node
devices:
  gpu[0-{gpus - 1}]: {{kind: gpu}}
  cpu0: {{kind: cpu}}
  nv0: {{kind: nvlink-switch}}
  nic0: {{kind: nic, bandwidth: {nic}}}
links:
  - {{between: ["gpu[0-{gpus - 1}]", nv0], kind: nvlink, bandwidth: 100 GB/s}}
  - {{between: ["gpu[0-{gpus - 1}]", cpu0], kind: pcie, bandwidth: {fast_link}}}
  - {{between: [cpu0, nic0], kind: pcie, bandwidth: {fast_link}}}
""",
        n_nodes=n_nodes,
    )


@pytest.mark.parametrize("m", [2, 3, 4, 8])
def test_one_parameter_server_grows_with_the_workers(m):
    # The server is beside worker 0, whose bytes cross no network; two GPU-CPU copies are added.
    copies = 2 * S / 1000e9
    machine = cluster(m)
    nic = 1e9
    assert time_s(machine, "parameter-server") == pytest.approx(2 * (m - 1) * S / nic + copies, rel=EXACT)
    expected = 2 * (m - 1) / m * S / nic + copies
    assert time_s(machine, "parameter-server-colocated") == pytest.approx(expected, rel=EXACT)


def test_several_parameter_servers():
    machine = cluster(8)
    times = [time_s(machine, f"parameter-server-{n}") for n in (1, 2, 4, 8)]
    for n, got in zip((1, 2, 4, 8), times, strict=True):
        # A server receives from m - 1 workers; with few servers, a worker's own link is not the limit.
        assert got == pytest.approx(2 * max(7 / n, (n - 1) / n) * S / 1e9 + 2 * S / 1000e9, rel=0.15)
    assert times == sorted(times, reverse=True)
    assert times[-1] == time_s(machine, "parameter-server-colocated")


def test_the_steps_of_a_parameter_server_are_seen():
    result = exchange_on(cluster(2, 4), "parameter-server", S)
    labels = list(dict.fromkeys(task.label for task in result.timeline.plan.tasks))
    assert labels == ["local aggregation", "to the CPU", "push", "pull", "to the GPUs", "local all-gather"]
    assert {task.stream for task in result.timeline.plan.tasks if task.label == "push"} == {"servers"}


def test_a_parameter_server_on_one_node():
    result = exchange_on(load_machine("4gpu-pcie"), "parameter-server", S)
    # Each GPU ends with 40 MB of the sum; all 160 MB cross the CPU's link, and return.
    assert result.sync_time_s == pytest.approx(7.5e-3 + 10e-3 + 10e-3 + 7.5e-3, rel=EXACT)
    assert "no network is crossed" in result.notes[0]


@pytest.mark.parametrize("n_nodes", [2, 4])
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_hierarchical_is_its_closed_form(n_nodes, gpus):
    machine = cluster(n_nodes, gpus)
    inner, outer = (gpus - 1) / gpus * S / 100e9, (n_nodes - 1) / n_nodes * S / 1e9
    got = {c: time_s(machine, "hierarchical", collective=c) for c in ("all-reduce", "reduce-scatter", "all-gather")}
    assert got["all-reduce"] == pytest.approx(2 * (inner + outer), rel=EXACT)
    assert got["reduce-scatter"] == pytest.approx(inner + outer, rel=EXACT)
    assert got["all-gather"] == pytest.approx(inner + outer, rel=EXACT)
    # Scatter or gather at the root, one buffer over each NIC, all-gather or reduce-scatter inside.
    for collective in ("broadcast", "reduce"):
        seconds = time_s(machine, "hierarchical", collective=collective, root=gpus)
        assert seconds == pytest.approx(2 * inner + S / 1e9, rel=IDEAL)


def test_hierarchical_beats_the_flat_ring_where_the_network_is_slow():
    machine = load_machine("p3.16xlarge", n_nodes=4)
    assert time_s(machine, "hierarchical") < time_s(machine, "ring")


def test_hierarchical_with_unequal_nodes_goes_by_leaders():
    machine = cluster(2, 4)
    result = exchange_on(machine, "hierarchical", S, gpus=[0, 1, 2, 4])
    assert "different numbers of ranks" in result.notes[0]
    chain = S / 100e9  # pipelined reduce to the leader, and broadcast
    assert result.sync_time_s == pytest.approx(2 * chain + 2 * (1 / 2) * S / 1e9, rel=IDEAL)
    for collective in ("broadcast", "reduce"):
        seconds = time_s(machine, "hierarchical", gpus=[0, 1, 2, 4], collective=collective, root=1)
        assert seconds == pytest.approx(chain + S / 1e9, rel=IDEAL)
    with pytest.raises(InputError, match="no form for all-gather where nodes have different numbers of ranks"):
        exchange_on(machine, "hierarchical", S, gpus=[0, 1, 2, 4], collective="all-gather")


def test_the_cost_of_a_hierarchical_plan_does_not_grow_with_the_nodes():
    few, many = (exchange_on(cluster(n, 4), "hierarchical", S).simulation_events for n in (2, 32))
    assert many <= few + 4


def test_plans_in_step_become_one_where_they_are_alike():
    machine = crossbar(4)
    router = request_of(machine, S).router
    route = {(a, b): router.route(machine.gpus[a], machine.gpus[b]) for a in range(4) for b in range(4)}

    def plan(src: int, dst: int, repeat: int = 3) -> Plan:
        builder = PlanBuilder()
        first = builder.transfer("a", [Flow(route[src, dst], 1.0)], repeat=repeat)
        builder.transfer("b", [Flow(route[dst, src], 1.0)], after=[first])
        return builder.build()

    joined = PlanBuilder()
    head = joined.work("before", "host", 1.0)
    assert in_step(joined, [plan(0, 1), plan(2, 3)], "x", [head]) == [2]
    transfers = [task for task in joined.tasks if task.flows]
    assert [(t.label, t.stream, t.after, t.repeat, len(t.flows)) for t in transfers] == [
        ("a", "x.main", (0,), 3, 2),
        ("b", "x.main", (1,), 1, 2),
    ]
    apart = PlanBuilder()
    assert in_step(apart, [plan(0, 1), plan(2, 3, repeat=2)], "x", ()) == [1, 3]
    assert [task.stream for task in apart.tasks] == ["x0.main", "x0.main", "x1.main", "x1.main"]


# -- orders ------------------------------------------------------------------------


def test_embedded_orders_keep_machines_together_and_the_root_first():
    machine = load_machine("p3.16xlarge", n_nodes=3)
    request = request_of(machine, S, collective="broadcast", root=13)
    order = embed_order(request, "tree", partial(tree_schedule, "all-reduce"), pipelined=True)
    assert sorted(order) == list(range(24))
    assert order[0] == 13
    assert [rank // 8 for rank in order] == [1] * 8 + [2] * 8 + [0] * 8
