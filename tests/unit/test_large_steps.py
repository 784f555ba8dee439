"""What keeps a step over tens of thousands of GPUs cheap: groups found once, and bytes kept of busy links alone."""

from __future__ import annotations

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator
from simulator.engine.timeline import Moved
from simulator.questions.layout import Layout
from simulator.training.placement import Placement


def test_groups_of_a_stage_are_found_once() -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=4)
    placement = Placement(Communicator(machine, machine.gpus), Layout(tp=4, pp=2, dp=4))
    for find in (placement.data_groups, placement.shard_groups, placement.replica_groups):
        assert find(0) is find(0)
        assert find(0) is not find(1)
    assert placement.next_stage_pairs(0) is placement.next_stage_pairs(0)


def test_groups_that_lie_alike_on_other_machines_are_one() -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=4)
    placement = Placement(Communicator(machine, machine.gpus), Layout(tp=4, pp=2, dp=4))
    first, second = (placement.data_groups(stage) for stage in range(2))
    assert [bundle.lie for bundle in first] == [bundle.lie for bundle in second]  # both on all four or on two each
    assert {bundle.lie for bundle in placement.layer_groups("tp", 0)} != {bundle.lie for bundle in first}


def test_bytes_are_kept_of_what_carried_any() -> None:
    moved = Moved(1_000_000, {7: 2.0, 3: 1.0, 5: 0.0})
    assert list(moved.carried()) == [(3, 1.0), (7, 2.0)]
    assert (len(moved), moved[3], moved[4], sum(moved)) == (1_000_000, 1.0, 0.0, 3.0)
    assert moved == Moved(1_000_000, {3: 1.0, 7: 2.0}) != Moved(8, {3: 1.0, 7: 2.0})
