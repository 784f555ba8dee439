"""Steps through parameter servers cost as much for many equal nodes as for a few, and report what is not simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session, advice, outcome
from simulator.api.context import Context
from simulator.api.outcome import least_step_s
from simulator.collectives.communicator import Unsuitable
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.results.training_run import NOT_TRIED
from simulator.training import servers as plans
from simulator.training.servers import PUSH, ServerLabel
from simulator.training.teams import bundled


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


def asked(nodes: int, servers: str = "-2", **more: object) -> StepQuestion:
    where = Where("p3.2xlarge", nodes)
    base = StepQuestion(where=where, workload="lenet-d2l", batch=256, strategy=f"parameter-server{servers}")
    return replace(base, **more)  # type: ignore[arg-type]


def flows_of(result: TrainingResult) -> int:
    """Return the number of flows that push the keys of a step."""
    tasks = [task for task in result.timeline.plan.tasks if isinstance(task.about, ServerLabel)]
    return sum(len(task.parts) for task in tasks if (task.about.stage, task.about.step) == (PUSH, 1))


@pytest.mark.slow
def test_many_equal_nodes_are_as_many_flows_and_events_as_a_few(session: Session) -> None:
    few, many = session.step(asked(6, "")), session.step(asked(200, ""))
    assert flows_of(many) == flows_of(few) == 2 * few.exchanges  # one of the first worker, one of all others
    assert many.step.simulation_events <= 1.1 * few.step.simulation_events
    assert many.step_time_s > few.step_time_s


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"staleness": 1},
        pytest.param({"staleness": None, "stragglers": (("node3", 1.5),)}, marks=pytest.mark.slow),
        pytest.param({"bucket_bytes": 0}, marks=pytest.mark.slow),
        {"lost": ("node1.cpu0", 1e-3)},
        pytest.param({"options": StepOptions(optimizer="adam")}, marks=pytest.mark.slow),
    ],
)
def test_a_bundle_is_as_each_node_by_itself(monkeypatch: pytest.MonkeyPatch, more: dict[str, object]) -> None:
    question = asked(8, **more)
    if question.staleness != 0:  # then equal nodes are one only if they are many
        monkeypatch.setattr("simulator.training.teams._MOST_ACTIVITIES", 1)
    folded = Session().step(question)
    with monkeypatch.context() as patched:
        patched.setattr(plans, "bundled", lambda *_: {})
        apart = Session().step(question)
    assert flows_of(folded) < flows_of(apart)
    assert folded.step_time_s == pytest.approx(apart.step_time_s, rel=1e-9)
    assert folded.servers is not None
    assert apart.servers is not None
    for own, other in zip(folded.servers.paces, apart.servers.paces, strict=True):
        assert own.period_s == pytest.approx(other.period_s, rel=1e-9)
        assert (own.staleness_mean, own.staleness_max, own.lead) == (
            other.staleness_mean,
            other.staleness_max,
            other.lead,
        )
    assert folded.servers.stages_s == pytest.approx(apart.servers.stages_s, rel=1e-9)
    assert (folded.servers.lost_s or 0.0) == pytest.approx(apart.servers.lost_s or 0.0, rel=1e-9)
    assert folded.bottleneck is not None
    assert apart.bottleneck is not None
    assert folded.bottleneck.name == apart.bottleneck.name
    assert folded.bottleneck.utilisation == pytest.approx(apart.bottleneck.utilisation, rel=1e-9)
    moved, each = ([*result.timeline.link_bytes] for result in (folded, apart))
    assert moved == pytest.approx(each, rel=1e-9)


def test_nodes_that_are_not_equal_are_not_bundled(session: Session) -> None:
    group = session.group(Where("p3.2xlarge", 6), None)
    cpus = [node.index for node in group.machine.nodes if node.kind == "cpu"]
    server, first, *rest = cpus
    assert bundled(group, rest, [server, first], [server])
    assert not bundled(group, rest[:1], [server, first], [server])  # a single node needs no bundle
    assert not bundled(group, cpus, [], [server])  # one of them holds the server
    assert not bundled(group, rest, [server, first, rest[1]], [server])  # a node's own device serves others too


@pytest.mark.slow
def test_too_many_flows_are_refused_with_what_would_do(session: Session) -> None:
    told = "64 servers: 4,096 flows a key, and 600 at most are simulated; take at most 24 nodes, or parameter-server-9$"
    with pytest.raises(Unsuitable, match=told):
        session.step(asked(64, "-sharded"))
    assert session.step(asked(24, "-sharded")).step_time_s > 0
    assert session.step(asked(64, "-9")).step_time_s > 0


@pytest.mark.slow
def test_a_long_simulation_is_not_repeated_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    found: list[StepQuestion] = []

    def counted(context: Context, question: StepQuestion) -> float:
        found.append(question)
        return least_step_s(context, question)

    monkeypatch.setattr(outcome, "least_step_s", counted)
    result = session.advised(asked(4))
    assert len(found) > 2
    assert not any(question.options.fused_optimizer for question in found)  # servers update the parameters
    assert NOT_TRIED not in result.notes
    found.clear()
    monkeypatch.setattr(advice, "_MOST_EVENTS_OF_SERVERS", result.step.simulation_events - 1)
    short = session.advised(asked(4))
    assert found == []
    assert short.alternatives == ()
    assert NOT_TRIED in short.notes
    assert short.step_time_s == result.step_time_s
