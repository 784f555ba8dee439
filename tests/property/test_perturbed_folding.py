"""Folding changes nothing, whatever perturbs a run: outages, slow links, stragglers, neighbours.

Without folding every round, flow and rank is simulated by itself.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simulator.api import Session
from simulator.collectives.communicator import Unsuitable
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Perturbation, Plan, PlanBuilder
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.questions.where import Neighbour, SlowLink, Where
from tests.examples import few
from tests.machines import machines
from tests.property.test_engine import disturbed_rounds

SESSION = Session()
FACTORS = st.sampled_from([0.0, 0.0, 0.1, 0.5, 0.9])
WAYS = ("nccl", "ring", "multi-ring", "tree", "halving-doubling", "hierarchical", "sharded", "gpu0", "parameter-server")
SINGLE = (Where("p3.16xlarge"), Where("8gpu-pcie-dual-root"), Where("dgx-h100"))
SEVERAL = (Where("p3.16xlarge", 2), Where("2x-gtx1080-desktop", 3, "ethernet-10g"), Where("dgx-h100", 2))


@st.composite
def windows(draw: st.DrawFn, whole_s: float) -> tuple[float, float]:
    """Draw the start and end of a change in a run of *whole_s* seconds; round figures, too, which meet round ends."""
    moments = st.one_of(
        st.floats(0.0, 1.2).map(lambda share: share * whole_s),
        st.integers(0, 10).map(lambda tenths: tenths * whole_s / 10),
        st.sampled_from([1e-6, 1e-5, 1e-4, 1e-3, 2e-3]),
    )
    from_s = draw(moments)
    return from_s, from_s + 1e-7 + draw(moments)


@st.composite
def slow_links(draw: st.DrawFn, machine: Machine, whole_s: float | None = None) -> SlowLink:
    """Draw a slow link of *machine*; with *whole_s*, one that is slow for a part of a run of that length."""
    link = machine.links[draw(st.integers(0, len(machine.links) - 1))]
    ends = f"{machine.nodes[link.src].name}-{machine.nodes[link.dst].name}"
    if whole_s is None:
        return SlowLink(ends, draw(FACTORS))
    return SlowLink(ends, draw(FACTORS), *draw(windows(whole_s)))


@st.composite
def neighbours(draw: st.DrawFn, machine: Machine) -> Neighbour:
    """Draw a job between two devices of *machine*."""
    names = [node.name for node in machine.nodes if node.kind in ("gpu", "cpu")]
    first = draw(st.sampled_from(names))
    second = draw(st.sampled_from([name for name in names if name != first]))
    return Neighbour(f"{first}-{second}", draw(st.sampled_from([1e8, 1e9])))


@st.composite
def troubled(draw: st.DrawFn, where: Where) -> Where:
    """Draw *where* with links that are slow for good, and neighbours."""
    machine = SESSION.machine(where)
    slow = draw(st.lists(slow_links(machine), max_size=1))
    others = draw(st.lists(neighbours(machine), max_size=1))
    return Where(where.topology, where.nodes, where.fabric, tuple(slow), tuple(others))


def passing(draw: st.DataObject, where: Where, whole_s: float) -> Where:
    """Draw *where* with links that are slow for a while."""
    more = draw.draw(st.lists(slow_links(SESSION.machine(where), whole_s), min_size=1, max_size=2))
    return Where(where.topology, where.nodes, where.fabric, (*where.slow_links, *more), where.neighbours)


@settings(max_examples=few(100))
@given(st.data())
def test_rounds_perturbed_at_any_moment(data: st.DataObject) -> None:
    machine = data.draw(machines(max_gpus=4))
    plan = data.draw(disturbed_rounds(machine))
    whole_s = execute(machine, plan).end_s
    perturbations = []
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from([*machine.resource_names, "host"]))
        from_s, until_s = data.draw(windows(whole_s))
        perturbations += [Perturbation(from_s, name, data.draw(FACTORS)), Perturbation(until_s, name)]
    if data.draw(st.booleans()):
        task = data.draw(st.integers(0, len(plan.tasks) - 1))
        perturbations.append(Perturbation(data.draw(windows(whole_s))[0], cancels=task))
    plan = Plan(plan.tasks, perturbations=tuple(perturbations))
    folded, stepped = execute(machine, plan), execute(machine, plan, fold=False)
    for a, b in zip(folded.spans, stepped.spans, strict=True):
        assert (a.start_s, a.end_s) == pytest.approx((b.start_s, b.end_s), rel=1e-9, abs=1e-15)


def test_an_outage_costs_its_length() -> None:
    """Two links down for 2 ms in a run of 14.1 ms: not more, although thousands of rounds are folded."""
    asked = CollectiveQuestion(where=Where("p3.16xlarge"), size_bytes=1e9)
    link = SlowLink("gpu0-gpu3", 0.0, 1e-3, 3e-3)
    lost = CollectiveQuestion(where=Where("p3.16xlarge", slow_links=(link,)), size_bytes=1e9)
    assert SESSION.time_s(lost) == pytest.approx(SESSION.time_s(asked) + 2e-3, rel=1e-6)


def rounds(size_bytes: float, other_bytes: float, repeat: int, *changes: Perturbation) -> list[float]:
    """Return the seconds of rounds, folded and not, in which gpu0 and gpu2 send at 16 GB/s over links of their own."""
    machine, router = SESSION.machine(Where("4gpu-pcie")), SESSION.router(Where("4gpu-pcie"))
    builder, gpus = PlanBuilder(), machine.gpus
    sent = ((gpus[0], gpus[1], size_bytes), (gpus[2], gpus[3], other_bytes))
    flows = [Flow(router.route(src, dst), n_bytes) for src, dst, n_bytes in sent]
    builder.transfer("rounds", flows, repeat=repeat)
    plan = Plan(builder.build().tasks, perturbations=changes)
    return [execute(machine, plan, fold=fold).end_s for fold in (True, False)]


def outage(from_s: float, until_s: float) -> tuple[Perturbation, Perturbation]:
    return Perturbation(from_s, "gpu0->switch0", 0.0), Perturbation(until_s, "gpu0->switch0", 1.0)


def test_what_changed_after_the_own_flow_had_ended_changes_the_next_round() -> None:
    """gpu0's link slows while only gpu2's longer flow is under way."""
    slow = Perturbation(2e-3, "gpu0->switch0", 0.1)
    assert rounds(16e6, 48e6, 10, slow) == pytest.approx([3e-3 + 9 * 10e-3] * 2, rel=1e-9)


def test_a_flow_that_ends_as_its_link_fails_has_ended() -> None:
    """By rounding alone it ends a moment after the failure (0.1 + 0.1 + 0.1 > 0.3), and would wait for the repair."""
    assert rounds(1.6e9, 1.6e9, 3, *outage(0.3, 0.4)) == pytest.approx([0.3] * 2, rel=1e-9)
    # In the third of the rounds of 0.2 s, which are asleep, it ends at 0.5; the fourth waits until 1.0.
    assert rounds(1.6e9, 3.2e9, 5, *outage(0.5, 1.0)) == pytest.approx([1.1 + 0.2] * 2, rel=1e-9)


@settings(max_examples=few(60))
@given(st.data())
def test_collectives(data: st.DataObject) -> None:
    where = data.draw(st.sampled_from([*SINGLE, *SEVERAL]).flatmap(troubled))
    asked = CollectiveQuestion(
        where=where,
        size_bytes=data.draw(st.sampled_from([4096.0, 1e6, 123456789.0, 1e9])),
        strategy=data.draw(st.sampled_from(WAYS)),
        collective=data.draw(st.sampled_from(["all-reduce", "all-reduce", "all-gather", "broadcast", "all-to-all"])),  # type: ignore[arg-type]
    )
    try:
        whole_s = SESSION.collective(asked).timeline.end_s
        where = passing(data, where, whole_s)
        asked = CollectiveQuestion(
            where=where, size_bytes=asked.size_bytes, strategy=asked.strategy, collective=asked.collective
        )
        folded, stepped = (SESSION.collective(asked, fold=fold).timeline.end_s for fold in (True, False))
    except (InputError, Unsuitable):
        return
    assert folded == pytest.approx(stepped, rel=1e-9)


LAYOUTS = ("dp", "fsdp", "zero=2", "tp=2,dp", "pp=2,dp", "pp=2,tp=2,dp")


@settings(max_examples=few(30), phases=[Phase.explicit, Phase.generate])  # shrinking would take minutes
@given(st.data())
def test_steps_and_pipelines(data: st.DataObject) -> None:
    """Ranks that do the same are simulated once; stragglers, and ranks that exchanges load more, have other roles."""
    layout = data.draw(st.sampled_from(LAYOUTS))
    where = data.draw(st.sampled_from([Where("p3.16xlarge"), Where("p3.16xlarge", 2)]).flatmap(troubled))
    gpus = [f"gpu{number}" for number in range(8)] + ([] if where.nodes is None else ["node1"])
    asked = StepQuestion(
        where=where,
        workload="gpt2",
        sizes=(("layers", 2), ("sequence_length", 128)),
        batch=1,
        layout=parse_layout(layout),
        strategy=data.draw(st.sampled_from(["nccl", "nccl", "ring", "tree", "double-tree", "gpu0", "naive-ring"])),
        micro_batches=data.draw(st.sampled_from([2, 4, 9] if "pp" in layout else [1, 3, 9])),
        stragglers=data.draw(
            st.lists(st.tuples(st.sampled_from(gpus), st.sampled_from([1.01, 1.5, 3.0])), max_size=1).map(tuple)
        ),
    )
    try:
        whole_s = SESSION.step(asked).step_time_s
        if "pp" not in layout and data.draw(st.booleans()):
            asked = replace(asked, where=passing(data, where, whole_s))
        folded, stepped = (SESSION.step(asked, fold=fold).step_time_s for fold in (True, False))
    except (InputError, Unsuitable):
        return
    assert folded == pytest.approx(stepped, rel=1e-9)


@settings(max_examples=few(12), phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_steps_through_servers(data: st.DataObject) -> None:
    """Nodes that hold servers are rarely simulated as one, because their keys differ; all others are.

    Without a wait for all in every step, each node is simulated by itself.
    """
    nodes = data.draw(st.integers(3, 5))
    slow = st.sampled_from(["gpu0", "gpu1", "node[0-1]", "node*"])
    asked = StepQuestion(
        where=data.draw(troubled(Where("p3.2xlarge", nodes))),
        workload=data.draw(st.sampled_from(["mlp", "lenet-d2l"])),
        batch=data.draw(st.sampled_from([8, 64, 256])),
        strategy="parameter-server" + data.draw(st.sampled_from(["", "-2"])),
        servers=("workers",),
        stragglers=data.draw(st.lists(st.tuples(slow, st.sampled_from([1.5, 3.0])), max_size=1).map(tuple)),
    )
    try:
        folded, apart = (SESSION.step(asked, fold=fold) for fold in (True, False))
    except (InputError, Unsuitable):
        return
    assert folded.servers is not None
    assert apart.servers is not None
    assert folded.servers.apart is None
    assert folded.step_time_s == pytest.approx(apart.step_time_s, rel=1e-9)
    assert folded.throughput == pytest.approx(apart.throughput, rel=1e-9)
