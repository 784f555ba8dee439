"""Ranks that exchanges load alike are one role; those loaded otherwise are another."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.api.steps import run_together
from simulator.collectives.communicator import Request, Strategy
from simulator.collectives.registry import find_strategy, strategy_of
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.questions.where import TODAY, Where
from simulator.records import replace
from simulator.results.training import TrainingResult
from simulator.training.placement import Placement
from simulator.training.roles import MOST_ROLES

SESSION = Session()
TREE_OF_NCCL = strategy_of("nccl", TODAY, algorithm="tree")


class Uneven:
    """Each rank sends to the next, the first *steps* ranks each 1 % more than the one before."""

    name = "uneven"
    summary = "each rank sends more than the one before"

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def plan(self, request: Request) -> Plan:
        builder, n = PlanBuilder(), request.n_ranks
        sent = [request.size_bytes * (1 + min(rank, self.steps) / 100) for rank in range(n)]
        routes = [request.router.route(request.ranks[rank], request.ranks[(rank + 1) % n]) for rank in range(n)]
        builder.transfer("all", [Flow(route, n_bytes) for route, n_bytes in zip(routes, sent, strict=True)])
        return builder.build()


def answer(
    topology: str,
    strategy: str | Strategy,
    *,
    nodes: int | None = None,
    parallel: str = "dp",
    micro_batches: int = 1,
    fold: bool = True,
) -> TrainingResult:
    """Return a step of AlexNet, or of two layers of GPT-2 where a layout divides it."""
    of_text = parallel != "dp"
    asked = StepQuestion(
        where=Where(topology, nodes),
        workload="gpt2" if of_text else "alexnet",
        sizes=(("layers", 2), ("sequence_length", 128)) if of_text else (),
        batch=2 if of_text else 8,
        layout=parse_layout(parallel),
        micro_batches=micro_batches,
        strategy=strategy if isinstance(strategy, str) else "nccl",
    )
    shared = SESSION._shared(asked, fold=fold)
    return run_together(shared if isinstance(strategy, str) else replace(shared, strategy=strategy))


def hosts(result: TrainingResult) -> list[str]:
    """Return the streams of hosts, one for each role."""
    return [stream for stream in result.streams if stream.endswith("host")]


@pytest.mark.parametrize(
    ("topology", "nodes", "strategy", "roles"),
    [
        ("dgx-2", None, "tree", 2),  # within the tree, and at its ends
        ("dgx-2", None, "double-tree", 2),
        ("p3.16xlarge", None, TREE_OF_NCCL, 4),
        ("p3.16xlarge", 2, TREE_OF_NCCL, 2),
        ("p3.16xlarge", None, "naive-ring", 3),
        ("p3.16xlarge", None, "gpu0", 2),
    ],
)
def test_ranks_that_exchanges_load_unequally_are_told_apart(
    topology: str, nodes: int | None, strategy: str | Strategy, roles: int
) -> None:
    """Slowed as the first of them, they took up to 4 % less or more."""
    folded, stepped = (answer(topology, strategy, nodes=nodes, fold=fold) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(stepped.step_time_s, rel=1e-9)
    assert folded.exposed_s == pytest.approx(stepped.exposed_s, rel=1e-9)
    assert folded.step.busy_s == pytest.approx(stepped.step.busy_s, rel=1e-9)
    assert folded.alone_s == pytest.approx(stepped.alone_s, rel=1e-9)
    assert len(hosts(folded)) == roles
    assert not any("load" in note for note in folded.notes)


@pytest.mark.parametrize("nodes", [None, 2])
@pytest.mark.parametrize("strategy", ["ring", "multi-ring", "halving-doubling", "sharded"])
def test_ranks_that_exchanges_load_alike_are_one_role(strategy: str, nodes: int | None) -> None:
    assert hosts(answer("p3.16xlarge", strategy, nodes=nodes)) == ["host"]


@pytest.mark.parametrize("parallel", ["tp=2,dp", "zero=2", "fsdp", "fsdp=8"])
def test_ranks_of_a_layout_are_told_apart(parallel: str) -> None:
    """Of groups in equal places, only one is simulated; the ranks of the others are loaded as its ranks are."""
    folded, stepped = (
        answer("p3.16xlarge", TREE_OF_NCCL if "tp" in parallel else "nccl", nodes=2, parallel=parallel,
               micro_batches=3, fold=fold)
        for fold in (True, False)
    )  # fmt: skip
    assert folded.step_time_s == pytest.approx(stepped.step_time_s, rel=1e-9)


def test_ranks_of_a_group_that_is_left_out_are_loaded_as_those_of_its_equal() -> None:
    group = SESSION.group(Where("p3.16xlarge", 2), None)
    [bundle] = Placement(group, parse_layout("tp=2,dp").on(16)).layer_groups("tp")
    assert len(bundle.groups) == 4  # those of the first machine
    for strategy in ("gpu0", "tree"):
        loads = bundle.collective("all-reduce", 1e6, find_strategy(strategy), loads_on=dict.fromkeys(group.ranks, 1.5))
        seconds = [used_s for _, used_s in loads.used_s]
        assert len(seconds) == 16
        assert seconds[:8] == seconds[8:]


@pytest.mark.slow
def test_most_roles() -> None:
    """Ranks with the nearest loads are one role where there are too many, and the answer says so."""
    few, many = Uneven(20), Uneven(47)
    folded, stepped = (answer("dgx-2", few, nodes=3, fold=fold) for fold in (True, False))
    assert len(hosts(folded)) == 22
    assert folded.step_time_s == pytest.approx(stepped.step_time_s, rel=1e-9)
    folded, stepped = (answer("dgx-2", many, nodes=3, fold=fold) for fold in (True, False))
    assert len(hosts(folded)) == MOST_ROLES
    assert folded.step_time_s == pytest.approx(stepped.step_time_s, rel=1e-3)
    [note] = [note for note in folded.notes if "load" in note]
    assert note.startswith("exchanges load equal GPUs in more than 32 ways; those with the nearest loads, up to ")
    assert sum(device.count for device in folded.memory) == 48
