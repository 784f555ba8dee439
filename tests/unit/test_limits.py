"""The bound of a step is its critical path, not whatever is busy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.engine.executor import execute
from simulator.plan.plan import PlanBuilder
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.ran import critical_path, critical_seconds
from tests.machines import ring_machine

PRODUCTS = """
schema_version: 1
name: products
input: {sequence: [100, 100]}
layers:
  - {name: block, repeat: 1000, layers: [{name: mm, kind: linear, outputs: 100, bias: false}]}
"""


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


def test_a_thousand_small_products_are_bound_by_the_host_that_issues_them(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "products.yaml"
    path.write_text(PRODUCTS, encoding="utf-8")
    where, options = Where("p3.2xlarge"), StepOptions(mode="inference")
    asked = StepQuestion(where=where, workload=str(path), batch=1, options=options)
    step = session.step(asked).step
    assert step.busy_s > step.step_time_s / 2  # the device is busy for more than half of the step
    assert step.bound == "host"
    assert step.limits_s["host"] == pytest.approx(step.host_s)
    graph = session.step(replace(asked, options=replace(options, cuda_graph=True)))
    assert graph.bound == "compute"


@pytest.mark.parametrize(("workload", "batch", "bound"), [("resnet50", 64, "compute"), ("mlp", 1, "host")])
def test_the_path_adds_up_to_the_step(session: Session, workload: str, batch: int, bound: str) -> None:
    result = session.step(StepQuestion(where=Where("p3.2xlarge"), workload=workload, batch=batch))
    assert sum(result.step.limits_s.values()) == pytest.approx(result.step_time_s, rel=1e-9)
    assert result.bound == bound


def test_without_what_bounds_it_a_step_is_shorter_and_without_all_else_it_is_not(session: Session) -> None:
    """With a host twice as fast, a step gains half of the host's part of its critical path, and nothing else."""
    for workload, batch in (("mlp", 1), ("resnet50", 64)):
        asked = StepQuestion(where=Where("p3.2xlarge"), workload=workload, batch=batch)
        result = session.step(asked)
        gained_s = result.step_time_s - session.slowed_host_s(asked, 0.5)
        assert gained_s <= 0.5 * result.step.limits_s.get("host", 0.0) + 1e-9
        assert (gained_s > 0.2 * result.step_time_s) == (result.bound == "host")


def test_exchanges_that_are_hidden_are_not_on_the_path(session: Session) -> None:
    asked = StepQuestion(where=Where("p3.16xlarge"), workload="resnet50", batch=64)
    assert "exchange" not in session.step(asked).step.limits_s
    slow = replace(asked, where=Where("p3.16xlarge", 4, "ethernet-1g"), batch=8)
    assert session.step(slow).bound == "exchange"


def test_passes_of_other_stages_are_the_fill_of_a_pipeline(session: Session) -> None:
    asked = StepQuestion(
        where=Where("p3.16xlarge"), workload="gpt2", batch=1, layout=parse_layout("pp=8"), micro_batches=1
    )
    result = session.step(asked)
    limits = result.step.limits_s
    assert sum(limits.values()) == pytest.approx(result.step_time_s)
    assert result.bound == "fill"
    assert session.step(replace(asked, micro_batches=64)).step.bound != "fill"


def test_micro_batches_that_passed_at_once_count(session: Session) -> None:
    asked = StepQuestion(where=Where("p3.2xlarge"), workload="mlp", batch=1, micro_batches=50)
    result = session.step(asked)
    assert sum(result.step.limits_s.values()) == pytest.approx(result.step_time_s)
    assert result.bound == "host"


def test_who_waits_for_a_slot_waits_for_whoever_had_it() -> None:
    plan = PlanBuilder()
    plan.queues["slot"] = 1
    plan.work("first", "", 3.0, stream="a", takes=("slot",), gives=("slot",))
    plan.work("beside", "", 1.0, stream="b")
    plan.work("second", "", 2.0, stream="b", takes=("slot",), gives=("slot",))
    timeline = execute(ring_machine(2), plan.build())
    assert timeline.end_s == 5.0
    assert critical_path(timeline) == [0, 2]


def test_nothing_has_no_path() -> None:
    timeline = execute(ring_machine(2), PlanBuilder().build())
    assert critical_path(timeline) == []
    assert critical_seconds(timeline) == {}


def test_the_last_slot_given_back_is_found_as_by_looking_at_all() -> None:
    from random import Random

    from simulator.results.ran import _last_given

    random = Random(7)
    for _ in range(300):
        ends_s = [random.choice((0.0, 1.0, 1.0 + 1e-15, 2.0, 3.0)) for _ in range(random.randint(0, 8))]
        path = dict.fromkeys(n for n in range(len(ends_s)) if random.random() < 0.3)
        start_s = random.choice((0.0, 1.0, 2.5))
        known = [n for n, end_s in enumerate(ends_s) if end_s <= start_s and n not in path]
        best = max(known, key=lambda n: round(ends_s[n], 12), default=None)
        found = _last_given(sorted((end_s, n, n) for n, end_s in enumerate(ends_s)), start_s, path)
        assert found == ([] if best is None else [best])
