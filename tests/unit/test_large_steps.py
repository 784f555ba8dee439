"""Steps over tens of thousands of GPUs stay cheap: groups are found once, bytes recorded only for busy links."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from simulator.api import Session, load_machine
from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl import graph
from simulator.collectives.nccl.graph import channel_rings
from simulator.engine.timeline import LinkBytes
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import Layout
from simulator.questions.where import Where
from simulator.training.placement import Placement


def test_groups_of_a_stage_are_found_once() -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=4)
    placement = Placement(Communicator(machine, machine.gpus), Layout(tp=4, pp=2, dp=4))
    for find in (placement.data_groups, placement.shard_groups, placement.replica_groups):
        assert find(0) is find(0)
        assert find(0) is not find(1)
    assert placement.stage_pairs(0, 1) is placement.stage_pairs(0, 1)


def test_groups_that_lie_alike_on_other_machines_are_one() -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=4)
    placement = Placement(Communicator(machine, machine.gpus), Layout(tp=4, pp=2, dp=4))
    first, second = (placement.data_groups(stage) for stage in range(2))
    assert [bundle.lie for bundle in first] == [bundle.lie for bundle in second]  # both on four nodes or on two
    assert {bundle.lie for bundle in placement.layer_groups("tp", 0)} != {bundle.lie for bundle in first}


def test_bytes_are_kept_of_what_carried_any() -> None:
    moved = LinkBytes(1_000_000, {7: 2.0, 3: 1.0, 5: 0.0})
    assert list(moved.carried()) == [(3, 1.0), (7, 2.0)]
    assert (len(moved), moved[3], moved[4], sum(moved)) == (1_000_000, 1.0, 0.0, 3.0)


def _lines_run(nodes: int) -> int:
    """Return how many lines of the NCCL ring code run to plan trees over this many machines."""
    session = Session()
    question = CollectiveQuestion(where=Where("dgx-h100", nodes), size_bytes=1e8, algorithm="tree")
    strategy, [request] = session.planned(question)
    session.group(question.where, None).once("nccl rings", lambda: channel_rings(request.group))
    lines = 0

    def line(_: FrameType, event: str, __: object) -> object:
        nonlocal lines
        lines += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, _, __: line if frame.f_code.co_filename == graph.__file__ else None)
    try:
        strategy.plan(request)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.slow
def test_trees_over_four_times_the_machines_cost_four_times_as_much() -> None:
    """Not sixteen times, as if each edge searched all rings."""
    assert 0 < _lines_run(16) < 5 * _lines_run(4)
