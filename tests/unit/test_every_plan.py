"""Every registered strategy's plan of every collective, replayed on sets of contributions: each rank ends with its own.

A strategy is tested here as soon as it is registered.  A plan that does not say who sends what, such as NCCL's, must
move at least the bytes that the collective needs.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simulator.api import Session
from simulator.api.exchanges import exchange_of
from simulator.collectives.registry import strategy_names
from simulator.collectives.schedules import neighbour_pairs
from simulator.errors import InputError
from simulator.plan.plan import Plan
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.workload import COLLECTIVES, Collective
from tests.schedule_check import State, WrongScheduleError, expect

SESSION = Session()
STRATEGIES = [*strategy_names(named_only=True), "gpu2", "parameter-server-2", "parameter-server-colocated"]
# A mesh of links, some of its GPUs alone, and nodes of several ranks and of one.
PLACES = (
    (Where("dgx-1-v100-16gb"), None),
    (Where("dgx-1-v100-16gb"), (0, 1, 2, 5, 7)),
    (Where("dgx-1-v100-16gb", 2), (0, 2, 3, 8, 9, 13)),
    (Where("linux-host", 4, "ethernet-10g"), None),
)
ROOTED = ("broadcast", "reduce")
EACH = 3  # elements in each of the n * n blocks of the buffer, so that few boundaries fall on those of blocks


def brought(found: SimpleNamespace) -> State:
    """Return the contributions that each stand holds at first, by element."""
    n, root = found.n_ranks, found.root
    state = [[0] * found.n_elements for _ in found.stands]
    for rank in range(n):
        for element in range(found.n_elements):
            own = element * n // found.n_elements == rank
            given = {"broadcast": rank == root, "all-gather": own, "all-to-all": own, "send-recv": own}
            state[rank][element] = given.get(found.collective, True) << rank
    return state


def replayed(found: SimpleNamespace) -> State:
    """Return what each stand holds in the end; a contribution that counts twice, or is not there, raises."""
    state = brought(found)
    for step in found.rounds:
        arriving = [(m, state[m.src][m.first : m.first + m.elements]) for m in step]
        for moved, held in arriving:
            into = state[moved.dst]
            for element, new in enumerate(held, moved.first):
                if not new:
                    raise WrongScheduleError(f"stand {moved.src} sends element {element}, which it does not hold")
                if moved.reduce and into[element] & new:
                    raise WrongScheduleError(f"a contribution to element {element} counts twice at {moved.dst}")
                into[element] = into[element] | new if moved.reduce else new
    return state


def check(found: SimpleNamespace) -> None:
    """Raise :class:`WrongScheduleError` unless every rank ends with what the collective gives it."""
    n, blocks = found.n_ranks, []
    for held in replayed(found):
        parts = [held[i : i + EACH] for i in range(0, len(held), EACH)]
        blocks.append([part[0] if len(set(part)) == 1 else -1 for part in parts])
    expect(blocks, found.collective, n, n * n, found.root, neighbour_pairs(n))


def question(where: Where, gpus: tuple[int, ...] | None, collective: Collective, strategy: str) -> CollectiveQuestion:
    group = SESSION.group(where, gpus)
    of_one = group.n_ranks if collective in ("all-to-all", "send-recv") else 1
    size_bytes = 4.0 * EACH * group.n_ranks**2 / of_one
    root = 1 if collective in ROOTED else 0
    return CollectiveQuestion(
        where=where, gpus=gpus, size_bytes=size_bytes, collective=collective, strategy=strategy, root=root
    )


def least_bytes(collective: Collective, n: int, size_bytes: float) -> float:
    """Return the bytes that all ranks together must receive, whatever the algorithm."""
    gathered = {"all-reduce": 2.0, "reduce-scatter": 1.0, "all-gather": 1.0, "broadcast": 1.0, "reduce": 1.0}
    if collective == "send-recv":
        return n * size_bytes
    return (n - 1) * size_bytes * gathered.get(collective, 1.0)


def sent_bytes(plan: Plan) -> float:
    return sum(flow.bytes * flow.count * task.repeat for task in plan.tasks for flow in task.flows)


def check_bytes(plan: Plan, buffer_bytes: float) -> None:
    """Check that each flow has the bytes of the part of the buffer that it carries."""
    for task in plan.tasks:
        for repetition in range(task.repeat if task.flows else 0):
            assert task.carries is not None
            for flow, carried in zip(task.flows, task.carries(repetition), strict=True):
                part = sum(stop - start for start, stop in carried.region)
                assert flow.bytes * flow.count == pytest.approx(float(part) * buffer_bytes, rel=1e-9), task.label


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_rank_ends_with_what_the_collective_gives_it(strategy: str, collective: Collective) -> None:
    planned = 0
    for where, gpus in PLACES:
        asked = question(where, gpus, collective, strategy)
        of, (request,) = SESSION.planned(asked)
        n = request.n_ranks
        try:
            found = SimpleNamespace(**exchange_of(SESSION, asked))
        except InputError as error:
            if "does not say who sends what" not in str(error):
                continue  # it does not fit
            assert sent_bytes(of.plan(request)) >= least_bytes(collective, n, asked.size_bytes) * (1 - 1e-9)
        else:
            check(found)
            check_bytes(of.plan(request), 4.0 * found.n_elements)
        planned += 1
    assert planned or collective != "all-reduce"


def test_a_move_too_few_too_many_or_of_the_wrong_part_is_seen() -> None:
    found = SimpleNamespace(**exchange_of(SESSION, question(PLACES[0][0], (0, 1, 2), "all-reduce", "ring")))
    check(found)
    (first, *others), *rest = found.rounds
    later = first._replace(first=first.first + 1)
    for wrong in (others, [first, first, *others], [later, *others]):
        with pytest.raises(WrongScheduleError):
            check(SimpleNamespace(**{**vars(found), "rounds": [wrong, *rest]}))
