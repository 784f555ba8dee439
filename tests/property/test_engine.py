"""The engine on random machines and plans: folding changes nothing, bounds hold, results are reproducible."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.executor import execute
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Plan, PlanBuilder, Work
from tests.examples import few
from tests.machines import machines


@st.composite
def plans(draw: st.DrawFn, machine: Machine) -> Plan:
    """Draw plans of several streams whose transfers repeat, overlap, wait for each other and start late."""
    router = Router(machine)
    builder = PlanBuilder()
    n_streams = draw(st.integers(1, 3))
    caps_Bps = draw(st.sampled_from([[float("inf"), 2e9], [1e8, 2e9, 7e9]]))  # if all flows have caps, few links fill
    for _ in range(draw(st.integers(1, 5))):
        stream = f"s{draw(st.integers(0, n_streams - 1))}"
        earlier = range(len(builder.tasks))
        after = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if builder.tasks else []
        if draw(st.integers(0, 4)) == 0:
            duration = draw(st.sampled_from([0.0, 1e-4, 3e-3, 0.0217]))
            builder.work("wait", "host", duration, stream=stream, after=after)
            continue
        flows = []
        for _ in range(draw(st.integers(1, 4))):
            src = draw(st.sampled_from(machine.gpus))
            dst = draw(st.sampled_from([gpu for gpu in machine.gpus if gpu != src]))
            flows.append(
                Flow(
                    router.route(src, dst),
                    draw(st.sampled_from([0.0, 1e3, 1e6, 16e6])),
                    count=draw(st.integers(1, 3)),
                    overhead=draw(st.sampled_from([1.0, 2.0])),
                    cap_Bps=draw(st.sampled_from(caps_Bps)),
                )
            )
        builder.transfer("move", flows, stream=stream, after=after, repeat=draw(st.integers(1, 9)))
    return builder.build()


@settings(max_examples=few(50))
@given(st.data())
def test_folded_equals_unfolded(data: st.DataObject) -> None:
    machine = data.draw(machines())
    plan = data.draw(plans(machine))
    folded, stepped = execute(machine, plan), execute(machine, plan, fold=False)
    assert folded.end_s == pytest.approx(stepped.end_s, rel=1e-9, abs=1e-15)
    for a, b in zip(folded.spans, stepped.spans, strict=True):
        assert (a.start_s, a.end_s) == pytest.approx((b.start_s, b.end_s), rel=1e-9, abs=1e-15)
    assert list(folded.link_bytes) == list(stepped.link_bytes)


@st.composite
def disturbed_rounds(draw: st.DrawFn, machine: Machine) -> Plan:
    """Draw repeated rounds, and transfers that start at any moment of any round."""
    router = Router(machine)
    builder = PlanBuilder()
    gpus = machine.gpus
    hops = [(gpus[i], gpus[(i + 1) % len(gpus)]) for i in range(len(gpus))]
    size_lists = st.lists(st.sampled_from([1e6, 2.5e6, 7e6]), min_size=len(hops), max_size=len(hops))
    sizes = draw(size_lists)
    for i in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):  # otherwise in step with the previous stream, for another number of rounds
            sizes = draw(size_lists)
        flows = [Flow(router.route(a, b), n_bytes) for (a, b), n_bytes in zip(hops, sizes, strict=True)]
        builder.transfer("rounds", flows, stream=f"rounds {i}", repeat=draw(st.integers(5, 30)))
    for i in range(draw(st.integers(1, 3))):
        delay = draw(st.floats(1e-5, 0.03))
        waited = builder.work("wait", "host", delay, stream=f"late {i}")
        src, dst = draw(st.sampled_from(hops))
        flow = Flow(router.route(src, dst), draw(st.sampled_from([1e4, 3e6, 40e6])))
        builder.transfer("late", [flow], stream=f"late {i}", after=[waited], repeat=draw(st.integers(1, 3)))
    return builder.build()


@settings(max_examples=few(50))
@given(st.data())
def test_folded_rounds_wake_where_they_are(data: st.DataObject) -> None:
    machine = data.draw(machines(max_gpus=4))
    plan = data.draw(disturbed_rounds(machine))
    folded, stepped = execute(machine, plan), execute(machine, plan, fold=False)
    for a, b in zip(folded.spans, stepped.spans, strict=True):
        assert (a.start_s, a.end_s) == pytest.approx((b.start_s, b.end_s), rel=1e-9, abs=1e-15)


@given(st.data())
def test_no_resource_carries_more_than_it_can(data: st.DataObject) -> None:
    machine = data.draw(machines())
    timeline = execute(machine, data.draw(plans(machine)))
    for name, n_bytes, capacity in zip(
        machine.resource_names, timeline.resource_bytes, machine.capacity_Bps, strict=True
    ):
        assert n_bytes <= capacity * timeline.end_s * (1 + 1e-9), name


@given(st.data())
def test_every_byte_that_enters_a_node_leaves_it(data: st.DataObject) -> None:
    machine = data.draw(machines())
    plan = data.draw(plans(machine))
    timeline = execute(machine, plan)
    balance = [0.0] * len(machine.nodes)
    for link, n_bytes in zip(machine.links, timeline.link_bytes, strict=True):
        balance[link.src] -= n_bytes
        balance[link.dst] += n_bytes
    moved = 0.0
    for task in plan.tasks:
        assert task.flows or isinstance(task.parts[0], Work)
        for flow in task.flows:
            n_bytes = flow.wire_bytes * flow.count * task.repeat
            balance[flow.route.src] += n_bytes
            balance[flow.route.dst] -= n_bytes
            moved += n_bytes
    assert balance == pytest.approx([0.0] * len(balance), abs=1e-9 * max(moved, 1.0))


@given(st.data())
def test_same_input_same_output(data: st.DataObject) -> None:
    machine = data.draw(machines())
    plan = data.draw(plans(machine))
    first, second = execute(machine, plan), execute(machine, plan)
    assert (first.spans, first.simulation_events) == (second.spans, second.simulation_events)
    assert list(first.link_bytes) == list(second.link_bytes)


@given(st.data())
def test_work_alone_takes_its_longest_path(data: st.DataObject) -> None:
    machine = data.draw(machines(max_gpus=2))
    builder = PlanBuilder()
    ends: list[float] = []
    last: dict[str, float] = {}
    for i in range(data.draw(st.integers(1, 8))):
        stream = data.draw(st.sampled_from("abc"))
        after = data.draw(st.lists(st.sampled_from(range(i)), max_size=2, unique=True)) if i else []
        duration = data.draw(st.floats(0, 10))
        builder.work("w", "host", duration, stream=stream, after=after)
        ends.append(max([last.get(stream, 0.0), *(ends[j] for j in after)]) + duration)
        last[stream] = ends[-1]
    assert execute(machine, builder.build()).end_s == pytest.approx(max(ends), rel=1e-12)
