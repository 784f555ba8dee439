"""Tokens sent once to each machine that holds experts for them (``--parallel ep=..,flex``)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.collectives.communicator import Communicator, ConcurrentGroups
from simulator.errors import InputError
from simulator.plan.plan import PlanBuilder
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.training.worker import GroupExchange
from simulator.workload.operators import Exchange as Exchanged
from simulator.workload.split.experts import expert_split
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MIXTRAL = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=512, layers=1)
HALF = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
TWO = Session().machine(Where("dgx-h100", nodes=2))


def share(copies: int, ranks: range, *, once: bool = True) -> float:
    group = Communicator(TWO, [TWO.gpus[rank] for rank in ranks])
    return GroupExchange(PlanBuilder(), [ConcurrentGroups([group])], "nccl", once=once).sent_share(copies)


@pytest.mark.parametrize("copies", [1, 2, 3, 8])
def test_as_many_copies_are_sent_as_machines_get_any(copies: int) -> None:
    ways = list(itertools.product(range(2), repeat=copies))  # each copy goes to one of two machines
    assert share(copies, range(16)) == pytest.approx(sum(len(set(way)) for way in ways) / len(ways) / copies)


def test_all_copies_are_sent_within_a_machine_and_by_an_all_to_all() -> None:
    assert share(8, range(8)) == 1.0
    assert share(8, range(16), once=False) == 1.0


def test_a_first_group_on_one_machine_does_not_speak_for_one_that_crosses() -> None:
    groups = [Communicator(TWO, [TWO.gpus[rank] for rank in ranks]) for ranks in (range(6), range(6, 12))]
    for bundles in ([ConcurrentGroups(groups)], [ConcurrentGroups([group]) for group in groups]):
        assert GroupExchange(PlanBuilder(), bundles, "nccl", once=True).sent_share(2) == share(2, range(6, 12)) == 0.75


def test_exchanges_of_experts_know_how_many_copies_a_token_has() -> None:
    copies = {
        layer.operator.axis: layer.operator.copies
        for layer in expert_split(MIXTRAL, 8).layers
        if isinstance(layer.operator, Exchanged)
    }
    assert copies == {"ep": 2}


def forward_s(words: str) -> float:
    network = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=4096, layers=1)
    options = replace(HALF, mode="forward", optimizer="none", fused_optimizer=False)
    layout = parse_layout(words).on(16)
    return step_on(TWO, network, options, layout=layout, contention=False).step_time_s


def test_a_step_whose_tokens_cross_machines_is_shorter_and_any_other_is_not() -> None:
    assert forward_s("ep=16,flex") < 0.9 * forward_s("ep=16")
    assert forward_s("ep=8,flex") == pytest.approx(forward_s("ep=8"))


def test_it_is_of_experts() -> None:
    with pytest.raises(InputError, match="flex dispatches tokens to experts; add ep=2 or more"):
        parse_layout("tp=2,flex")
    assert parse_layout("ep=8,flex").words == "ep=8,flex"
