"""Merged plans interact on links and nowhere else."""

import pytest

from simulator.api import load_machine
from simulator.engine.executor import execute
from simulator.network.routing import Router
from simulator.plan.plan import Flow, PlanBuilder, merge


def plan(router, machine, src, dst, n_bytes=16e9, work_s=0.0):
    builder = PlanBuilder()
    first = builder.transfer("send", [Flow(router.route(machine.gpus[src], machine.gpus[dst]), n_bytes)])
    builder.work("rest", "host", work_s, after=[first])
    builder.notes.append("note")
    builder.facts.update(channels=1, src=src)
    builder.rings.append((src, dst))
    return builder.build()


@pytest.fixture(scope="module")
def machine():
    return load_machine("4gpu-pcie")


def test_tasks_are_renumbered_and_streams_kept_apart(machine):
    router = Router(machine)
    merged = merge([plan(router, machine, 0, 1), plan(router, machine, 2, 3)])
    assert [task.id for task in merged.tasks] == [0, 1, 2, 3]
    assert [task.after for task in merged.tasks] == [(), (0,), (), (2,)]
    assert [task.stream for task in merged.tasks] == ["0/main", "0/main", "1/main", "1/main"]
    assert merged.rings == ((0, 1), (2, 3))
    assert merged.notes == ("note",)
    assert merged.facts == {"channels": 1}


def test_plans_that_share_no_link_take_as_long_as_the_slower(machine):
    router = Router(machine)
    merged = merge([plan(router, machine, 0, 1), plan(router, machine, 2, 3, work_s=0.5)])
    assert execute(machine, merged).end_s == pytest.approx(1.5)


def test_plans_that_share_a_link_share_its_bandwidth(machine):
    router = Router(machine)
    merged = merge([plan(router, machine, 0, 1), plan(router, machine, 0, 2)])
    assert execute(machine, merged).end_s == pytest.approx(2.0)


def test_one_plan_is_itself(machine):
    alone = plan(Router(machine), machine, 0, 1)
    assert merge([alone]) is alone


def test_no_plans_are_an_empty_plan():
    assert merge([]).tasks == ()
