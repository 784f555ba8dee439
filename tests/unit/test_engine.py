"""Sharing, waking and accounting in the engine, on a crossbar of 10 GB/s, calculated by hand."""

from __future__ import annotations

import pytest

from simulator.engine.executor import execute
from simulator.engine.timeline import Timeline
from simulator.errors import SimulationError
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Fragment, Perturbation, PlanBuilder, Work
from tests.machines import crossbar, machine_from

MACHINE = crossbar(6, bandwidth="10 GB/s")
ROUTER = Router(MACHINE)
CORES, MEMORY = "gpu0:multiprocessors", "gpu0:memory"
SECOND = 10e9  # bytes that a link carries in a second


def flow(src: int, dst: int, seconds: float = 1.0, **more: float) -> Flow:
    """Return a flow that takes *seconds* alone."""
    return Flow(ROUTER.route(MACHINE.gpus[src], MACHINE.gpus[dst]), seconds * SECOND, **more)  # type: ignore[arg-type]


def both(builder: PlanBuilder) -> tuple[Timeline, Timeline]:
    """Return the timelines with and without folding, having checked that they are equal."""
    folded, stepped = (execute(MACHINE, builder.build(), fold=fold) for fold in (True, False))
    assert [s.end_s for s in folded.spans] == pytest.approx([s.end_s for s in stepped.spans], rel=1e-9)
    assert [s.start_s for s in folded.spans] == pytest.approx([s.start_s for s in stepped.spans], rel=1e-9)
    assert list(folded.resource_bytes) == pytest.approx(list(stepped.resource_bytes), rel=1e-12)
    assert list(folded.link_bytes) == pytest.approx(list(stepped.link_bytes), rel=1e-12)
    return folded, stepped


def ends(builder: PlanBuilder) -> list[float]:
    return [span.end_s for span in both(builder)[0].spans]


# -- sharing ---------------------------------------------------------------------------


def test_a_flow_of_nothing_holds_up_none_that_starts_with_it() -> None:
    builder = PlanBuilder()
    builder.transfer("move", [flow(0, 1, 0.0), flow(2, 3, 1.0), flow(0, 1, 0.0), flow(4, 5, 2.0)])
    assert ends(builder) == pytest.approx([2.0])


def test_what_leaves_gives_its_share_to_those_that_can_use_it() -> None:
    """The first is capped at 1 GB/s throughout; the second has 4.5 GB/s beside the third, and 9 without it."""
    builder = PlanBuilder()
    builder.transfer("capped", [flow(0, 1, 0.1, cap_Bps=1e9)], stream="a")
    builder.transfer("long", [flow(0, 1, 0.675)], stream="b")
    builder.transfer("short", [flow(0, 1, 0.225)], stream="c")
    assert ends(builder) == pytest.approx([1.0, 1.0, 0.5])


def test_an_end_that_was_foreseen_too_late_does_not_come_again() -> None:
    """At half its rate the first flow would have ended at 0.4 s; it ends at 0.3 s, and the batch at 1 s, not before."""
    builder = PlanBuilder()
    builder.transfer("two", [flow(0, 1, 0.2), flow(2, 3, 1.0)], stream="a")
    builder.transfer("short", [flow(0, 1, 0.1)], stream="b")
    assert ends(builder) == pytest.approx([1.0, 0.2])


def test_chains_of_flows_that_share_are_shared_out_together() -> None:
    """0-1 and 0-3 share 0's output; 2-3 shares 3's input with the latter: the three form one set."""
    builder = PlanBuilder()
    builder.transfer("a", [flow(0, 1, 1.0)], stream="a")
    builder.transfer("b", [flow(0, 3, 0.5)], stream="b")
    builder.transfer("c", [flow(2, 3, 1.0)], stream="c")
    assert ends(builder) == pytest.approx([1.5, 1.0, 1.5])


def test_who_has_no_bandwidth_is_named_at_once() -> None:
    builder = PlanBuilder()
    builder.transfer("never", [flow(0, 1, 1.0, cap_Bps=0.0)])
    with pytest.raises(SimulationError, match="a flow has no bandwidth left"):
        execute(MACHINE, builder.build())


def test_instants_that_rounding_parts_are_one() -> None:
    """Ten steps of 0.1 s against one of 1 s, on separate streams: the third transfer waits for both at one instant."""
    builder = PlanBuilder()
    last = 0
    for _ in range(10):
        last = builder.transfer("step", [flow(0, 1, 0.1)], stream="a")
    whole = builder.transfer("whole", [flow(2, 3, 1.0)], stream="b")
    builder.transfer("after", [flow(0, 3, 1.0)], stream="c", after=[last, whole])
    assert ends(builder)[-1] == pytest.approx(2.0, rel=1e-12)


# -- events ----------------------------------------------------------------------------


def events(builder: PlanBuilder, fold: bool = True) -> int:
    return execute(MACHINE, builder.build(), fold=fold).simulation_events


def test_bytes_without_latency_end_where_they_arrive() -> None:
    """One event to share, one at the end, and none for an arrival at the same instant."""
    builder = PlanBuilder()
    builder.transfer("move", [flow(0, 1)])
    once = events(builder)
    late = PlanBuilder()
    late.transfer("move", [flow(0, 1, latency_s=1e-6)])
    assert events(late) == once + 1


def test_flows_of_nothing_are_shared_out_by_nobody() -> None:
    nothing, something = PlanBuilder(), PlanBuilder()
    nothing.transfer("move", [flow(0, 1, 0.0)])
    something.transfer("move", [flow(0, 1, 1.0)])
    assert events(nothing) == events(something) - 1


# -- folding ---------------------------------------------------------------------------


@pytest.mark.parametrize("begins_s", [0.05, 0.1, 0.35, 0.4, 0.95, 1.0, 1.05])
@pytest.mark.parametrize("after_s", [0.0, 3.0])
def test_rounds_are_woken_where_they_are(begins_s: float, after_s: float) -> None:
    """Ten rounds of 0.1 s; a flow of 0.1 s joins on the same link, in the middle or at the end of a round."""
    builder = PlanBuilder()
    first = builder.work("wait", "cpu0", after_s, stream="host")
    builder.transfer("rounds", [flow(0, 1, 0.1), flow(0, 1, 0.05, latency_s=0.01)], after=[first], repeat=10)
    begun = builder.work("wait", "cpu1", after_s + begins_s, stream="other host")
    builder.transfer("other", [flow(0, 1, 0.1)], stream="other", after=[begun])
    folded, stepped = both(builder)
    assert folded.end_s == pytest.approx(stepped.end_s, rel=1e-9)


@pytest.mark.parametrize("begins_s", [0.03, 0.22, 0.47, 0.61])
def test_rounds_of_several_rates_are_woken_within_a_round(begins_s: float) -> None:
    """In each round the short flow ends first, and the long one then has the link alone: two rates to look up."""
    builder = PlanBuilder()
    first = builder.work("wait", "cpu0", 2.0, stream="host")
    builder.transfer("rounds", [flow(0, 1, 0.05), flow(0, 2, 0.15), flow(3, 4, 0.0)], after=[first], repeat=6)
    begun = builder.work("wait", "cpu1", 2.0 + begins_s, stream="other host")
    builder.transfer("other", [flow(0, 5, 0.2)], stream="other", after=[begun])
    both(builder)


def test_one_link_in_use_is_enough_not_to_sleep_on_it() -> None:
    """The rounds use two links; the flow that arrives at the end of the first round uses one of them."""
    builder = PlanBuilder()
    builder.transfer("rounds", [flow(2, 3, 0.1), flow(0, 1, 0.1)], stream="a", repeat=5)
    builder.transfer("before", [flow(4, 5, 0.1)], stream="b")
    builder.transfer("other", [flow(0, 1, 1.0)], stream="b")
    assert ends(builder) == pytest.approx([0.1 + 4 * 0.2, 0.1, 0.1 + 0.8 + 0.6])


def test_rings_in_step_sleep_together_and_wake_together() -> None:
    """Two channels over the same links: a round takes 0.2 s, until a third joins in the middle of the fourth."""
    builder = PlanBuilder()
    for stream in ("a", "b"):
        builder.transfer("channel", [flow(0, 1, 0.1)], stream=stream, repeat=10)
    begun = builder.work("wait", "cpu1", 0.7, stream="host")
    builder.transfer("third", [flow(0, 1, 0.1)], stream="c", after=[begun])
    assert ends(builder) == pytest.approx([2.1, 2.1, 0.7, 1.0])


def test_rings_out_of_step_are_not_folded_together() -> None:
    builder = PlanBuilder()
    builder.transfer("a", [flow(0, 1, 0.1)], stream="a", repeat=9)
    begun = builder.work("wait", "cpu1", 0.05, stream="host")
    builder.transfer("b", [flow(0, 1, 0.1)], stream="b", after=[begun], repeat=9)
    assert ends(builder)[-1] == pytest.approx(1.8)


def test_channels_of_unequal_length_go_on_when_the_shorter_has_ended() -> None:
    builder = PlanBuilder()
    builder.transfer("short", [flow(0, 1, 0.1)], stream="a", repeat=4)
    builder.transfer("long", [flow(0, 1, 0.1)], stream="b", repeat=10)
    assert ends(builder) == pytest.approx([0.8, 1.4])


# -- perturbations ---------------------------------------------------------------------


def test_parts_that_have_ended_stay_ended_when_their_place_slows() -> None:
    builder = PlanBuilder()
    builder.add("parts", [Work(0.0), Work(0.5), Work(3.0)], stream="a", place="gpu0")
    builder.perturbations.append(Perturbation(2.0, "gpu0", 0.5))
    assert ends(builder) == pytest.approx([4.0])


def test_what_is_slowed_takes_the_works_of_its_place_alone() -> None:
    builder = PlanBuilder()
    builder.add("mixed", [Work(1.0), flow(0, 1, 2.0)], stream="a", place="gpu0")
    builder.add("other", [Work(1.0)], stream="b", place="gpu1")
    builder.perturbations.append(Perturbation(0.5, "gpu0", 0.25))
    assert ends(builder) == pytest.approx([2.5, 1.0])


def test_a_place_that_slows_between_the_rounds_slows_those_that_follow() -> None:
    builder = PlanBuilder()
    builder.add("rounds", [Work(0.1)], stream="a", place="gpu0", repeat=10)
    builder.perturbations += [Perturbation(0.35, "gpu0", 0.5), Perturbation(0.85, "gpu0", 1.0)]
    assert ends(builder) == pytest.approx([1.25])


def test_a_flow_of_nothing_can_be_cancelled_with_others() -> None:
    builder = PlanBuilder()
    builder.transfer("move", [flow(2, 3, 0.0, latency_s=9.0), flow(0, 1, 1.0), flow(4, 5, 0.2)], stream="a")
    builder.transfer("beside", [flow(0, 1, 1.0)], stream="b")
    builder.perturbations.append(Perturbation(0.5, cancels=0))
    assert ends(builder) == pytest.approx([0.5, 1.25])


def test_what_has_ended_cannot_be_cancelled() -> None:
    builder = PlanBuilder()
    builder.transfer("move", [flow(0, 1, 1.0)], stream="a")
    builder.transfer("next", [flow(0, 1, 1.0)], stream="a")
    builder.perturbations.append(Perturbation(1.5, cancels=0))
    assert ends(builder) == pytest.approx([1.0, 2.0])


def test_rounds_asleep_can_be_cancelled() -> None:
    builder = PlanBuilder()
    builder.transfer("rounds", [flow(0, 1, 0.1)], stream="a", repeat=10)
    builder.transfer("beside", [flow(2, 3, 2.0)], stream="b")
    builder.perturbations.append(Perturbation(0.55, cancels=0))
    assert ends(builder) == pytest.approx([0.55, 2.0])


def test_a_link_gives_nothing_for_a_while_and_then_all_again() -> None:
    builder = PlanBuilder()
    move = flow(0, 1, 1.0)
    builder.transfer("rounds", [flow(0, 1, 0.1)], stream="a", repeat=10)
    builder.transfer("apart", [flow(2, 3, 1.0)], stream="b")
    link = MACHINE.resource_names[move.route.loads[0][0]]
    builder.perturbations += [Perturbation(0.25, link, 0.0), Perturbation(1.0, link, 1.0)]
    assert ends(builder) == pytest.approx([1.75, 1.0])


def test_shares_of_a_resource_that_shrinks() -> None:
    """Two works that just fit run at half speed when half of the resource is left."""
    builder = PlanBuilder()
    for stream in ("a", "b"):
        builder.work("work", "gpu0", 1.0, stream=stream, loads=((CORES, 0.5),))
    builder.perturbations.append(Perturbation(0.5, CORES, 0.5))
    assert ends(builder) == pytest.approx([1.5, 1.5])


# -- start conditions and accounting -----------------------------------------------------


def test_bytes_of_all_rounds_and_of_equal_flows_are_counted() -> None:
    builder = PlanBuilder()
    move = flow(0, 1, 0.1, count=3, overhead=2.0)
    builder.transfer("rounds", [move], repeat=4)
    folded, _ = both(builder)
    assert folded.end_s == pytest.approx(4 * 3 * 2 * 0.1)
    for link, share in move.route.links:
        assert folded.link_bytes[link] == pytest.approx(share * 4 * 3 * 2 * 0.1 * SECOND)
    assert sum(folded.link_bytes) == pytest.approx(len(move.route.links) * 24 * 0.1 * SECOND)


def test_bytes_of_fragments_are_counted_as_often_as_they_run() -> None:
    inner = PlanBuilder()
    inner.transfer("move", [flow(0, 1, 0.1)], repeat=2)
    fragment = Fragment(inner.build())
    builder = PlanBuilder()
    builder.add("three", [fragment], stream="a", repeat=3)
    builder.add("once", (fragment,), stream="a")
    builder.work("work", "gpu0", 1.0, stream="b")
    folded, _ = both(builder)
    assert folded.end_s == pytest.approx(1.0)
    assert max(folded.link_bytes) == pytest.approx(8 * 0.1 * SECOND)
    assert max(folded.resource_bytes) == pytest.approx(8 * 0.1 * SECOND)


def test_a_collective_that_uses_half_of_a_link_leaves_the_other_half() -> None:
    """It moves for a second and waits for a second: on average it uses half of the link, and a flow gets the rest."""
    inner = PlanBuilder()
    inner.transfer("move", [flow(0, 1, 1.0, latency_s=1.0)])
    builder = PlanBuilder()
    builder.add("collective", (Fragment(inner.build()),), stream="a")
    builder.add("another", (Fragment(inner.build()),), stream="b")
    assert ends(builder) == pytest.approx([2.0, 2.0])


def test_what_a_fragment_uses_for_a_part_of_its_time_counts_in_proportion() -> None:
    """0.5 s of memory in 2 s: beside a work that uses all of the memory, both run at 1 / 1.25."""
    inner = PlanBuilder()
    inner.transfer("move", [flow(0, 1, 2.0)])
    builder = PlanBuilder()
    builder.add("collective", (Fragment(inner.build(), (), ((MEMORY, 0.5),)),), stream="a")
    builder.work("kernel", "gpu0", 2.0, stream="b", loads=((MEMORY, 1.0),))
    assert ends(builder) == pytest.approx([2.5, 2.5])


def test_a_share_above_all_is_all() -> None:
    """A collective that asks for 1.5 times the multiprocessors holds all of them, and alone takes no longer."""
    inner = PlanBuilder()
    inner.transfer("move", [flow(0, 1, 1.0)])
    fragment = Fragment(inner.build(), ((CORES, 1.5),))
    builder = PlanBuilder()
    builder.add("collective", (fragment,), stream="a")
    builder.work("kernel", "gpu0", 1.0, stream="b", loads=((CORES, 1.0),))
    assert ends(builder) == pytest.approx([2.0, 2.0])
    alone = PlanBuilder()
    alone.add("collective", (fragment,), stream="a")
    assert ends(alone) == pytest.approx([1.0])


def test_works_wait_for_what_they_name_and_for_their_stream() -> None:
    builder = PlanBuilder()
    long = builder.work("long", "gpu0", 2.0, stream="a")
    short = builder.work("short", "gpu1", 1.0, stream="b")
    builder.work("third", "gpu1", 1.0, stream="b", after=[long])
    builder.transfer("move", [flow(0, 1, 1.0)], stream="c", after=[short])
    builder.work("last", "gpu0", 0.5, stream="a", after=[short, 3])
    timeline, _ = both(builder)
    assert [span.start_s for span in timeline.spans] == pytest.approx([0.0, 0.0, 2.0, 1.0, 2.0])
    assert timeline.end_s == pytest.approx(3.0)


def test_two_queues_are_taken_one_after_the_other() -> None:
    builder = PlanBuilder()
    builder.queues.update(first=1, second=1)
    for number in range(2):
        builder.work("both", "gpu0", 1.0, stream=f"s{number}", takes=("first", "second"), gives=("second", "first"))
    builder.work("second alone", "gpu0", 0.25, stream="s2", takes=("second",), gives=("second",))
    assert ends(builder) == pytest.approx([1.25, 2.25, 0.25])  # it waits for one queue only, and so is first


def test_what_a_round_takes_is_told_of_the_first() -> None:
    builder = PlanBuilder()
    begun = builder.work("wait", "cpu0", 1.0, stream="host")
    builder.transfer("rounds", [flow(0, 1, 0.1, latency_s=0.02), flow(2, 3, 0.3)], after=[begun], repeat=5)
    for timeline in both(builder):
        span = timeline.spans[1]
        assert span.start_s == pytest.approx(1.0)
        assert span.round_s == pytest.approx(0.3)
        assert span.flow_ends_s == pytest.approx((0.12, 0.3))


def test_equal_flows_that_nobody_can_slow_are_one_and_told_apart() -> None:
    """Caps sum to less than the links: when folded, equal flows pass as one, and each is reported when it arrives."""
    builder = PlanBuilder()
    slow = {"cap_Bps": 1e9}
    builder.transfer("move", [flow(0, 1, 0.1, **slow), flow(0, 1, 0.1, **slow), flow(0, 1, 0.2, **slow)])
    folded, stepped = both(builder)
    assert folded.spans[0].flow_ends_s == pytest.approx((1.0, 1.0, 2.0))
    assert stepped.spans[0].flow_ends_s == pytest.approx((1.0, 1.0, 2.0))
    assert folded.simulation_events <= stepped.simulation_events


def test_caps_that_just_fill_a_link_slow_nobody_and_more_do() -> None:
    for count, seconds in ((10, 1.0), (11, 1.1), (20, 2.0)):
        builder = PlanBuilder()
        builder.transfer("move", [flow(0, 1, 0.1, count=count, cap_Bps=1e9)])
        assert ends(builder) == pytest.approx([seconds])


def test_caps_on_several_streams_add_up() -> None:
    builder = PlanBuilder()
    for stream in ("a", "b"):
        builder.transfer("small", [flow(0, 1, 0.1, cap_Bps=1e9)], stream=stream)
        builder.transfer("large", [flow(0, 1, 0.6, cap_Bps=6e9)], stream=stream)
    assert ends(builder) == pytest.approx([1.0, 2.2, 1.0, 2.2])


def test_a_flow_and_a_collective_share_by_what_each_takes_alone() -> None:
    """Two equal flows take the link for a second, as does the collective: together each takes two seconds."""
    inner = PlanBuilder()
    inner.transfer("move", [flow(0, 1, 1.0)])
    builder = PlanBuilder()
    builder.add("collective", (Fragment(inner.build()),), stream="a")
    builder.transfer("pair", [flow(0, 1, 0.5, count=2)], stream="b")
    assert ends(builder) == pytest.approx([2.0, 2.0])


def test_a_flow_and_a_collective_that_leave_room_take_what_they_take_alone() -> None:
    inner = PlanBuilder()
    inner.transfer("move", [flow(0, 1, 0.25, latency_s=0.75)])
    builder = PlanBuilder()
    builder.add("collective", (Fragment(inner.build()),), stream="a")
    builder.transfer("capped", [flow(0, 1, 0.5, cap_Bps=2.5e9)], stream="b")
    assert ends(builder) == pytest.approx([1.0, 2.0])


def test_what_nothing_bounds_is_there_at_once() -> None:
    builder = PlanBuilder()
    builder.transfer("local", [flow(0, 0, 1.0)], stream="a", repeat=3)
    builder.transfer("move", [flow(0, 1, 1.0)], stream="b")
    assert ends(builder) == pytest.approx([0.0, 1.0])


def test_what_ends_at_one_instant_ends_in_the_order_in_which_it_began() -> None:
    builder = PlanBuilder()
    builder.queues["engine"] = 1
    for number in range(3):
        moved = builder.transfer("move", [flow(2 * number, 2 * number + 1, 1.0)], stream=f"s{number}")
        builder.work("work", "gpu0", 1.0, stream=f"w{number}", after=[moved], takes=("engine",), gives=("engine",))
    assert ends(builder)[1::2] == pytest.approx([2.0, 3.0, 4.0])


def test_what_is_cancelled_as_its_rounds_end_ends_once_and_alone() -> None:
    """Two channels sleep through their rounds; at the instant when both end, one of them is cancelled."""
    builder = PlanBuilder()
    first = builder.transfer("cancelled", [flow(0, 1, 0.125)], stream="a", repeat=5)
    second = builder.transfer("beside", [flow(0, 1, 0.125)], stream="b", repeat=5)
    builder.work("after", "gpu0", 1.0, stream="c", after=[first, second])
    builder.perturbations.append(Perturbation(1.25, cancels=first))
    assert ends(builder) == pytest.approx([1.25, 1.25, 2.25])


@pytest.mark.parametrize("into_s", [0.02, 0.05, 0.15, 0.22, 0.27])
@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_who_has_ended_within_a_round_arrives_when_it_would_have(into_s: float, after_s: float) -> None:
    """The first flow is sent in 0.05 s and arrives at 0.25 s, the second takes 0.2 s: the first bounds a round.

    In the third round another flow joins the second's link, and slows it by less than its wait for the first.
    """
    builder = PlanBuilder()
    first = builder.work("wait", "cpu0", after_s, stream="host")
    flows = [flow(0, 1, 0.05, latency_s=0.2), flow(2, 3, 0.2)]
    builder.transfer("rounds", flows, after=[first], repeat=8)
    begun = builder.work("wait", "cpu1", after_s + 0.5 + into_s, stream="other host")
    builder.transfer("other", [flow(2, 4, 0.01)], stream="other", after=[begun])
    assert ends(builder)[1] == pytest.approx(after_s + 8 * 0.25, rel=1e-9)


@pytest.mark.parametrize("into_s", [0.0, 0.03, 0.07])
def test_works_that_repeat_are_woken_within_one(into_s: float) -> None:
    builder = PlanBuilder()
    builder.add("rounds", [Work(0.1, ((CORES, 1.0),))], stream="a", place="gpu0", repeat=10)
    begun = builder.work("wait", "cpu1", 0.3 + into_s, stream="host")
    builder.work("other", "gpu0", 0.1, stream="b", after=[begun], loads=((CORES, 1.0),))
    assert ends(builder) == pytest.approx([1.1, 0.3 + into_s, 0.5 + into_s])


def test_rounds_that_take_no_time_are_woken_too() -> None:
    builder = PlanBuilder()
    builder.transfer("nothing", [flow(0, 1, 0.0)], stream="a", repeat=5)
    builder.transfer("other", [flow(0, 1, 1.0)], stream="b")
    assert ends(builder) == pytest.approx([0.0, 1.0])


def test_a_collective_of_nothing_takes_no_time() -> None:
    builder = PlanBuilder()
    builder.add("nothing", (Fragment(PlanBuilder().build(), ((CORES, 0.5),), ((MEMORY, 0.0),)),), stream="a")
    builder.work("kernel", "gpu0", 1.0, stream="b", loads=((CORES, 1.0), (MEMORY, 1.0)))
    assert ends(builder) == pytest.approx([0.0, 1.0])


def test_works_that_nobody_can_slow_take_all_their_parts_and_rounds() -> None:
    builder = PlanBuilder()
    builder.transfer("before", [flow(0, 1, 1.0)], stream="a")
    builder.add("two", [Work(1.0), Work(2.0)], stream="a", place="gpu0")
    builder.add("rounds", [Work(1.0)], stream="b", place="gpu0", repeat=2)
    builder.add("one", [Work(1.0)], stream="b", place="gpu0")
    assert ends(builder) == pytest.approx([1.0, 3.0, 2.0, 3.0])


def test_flows_below_their_caps_are_slowed_where_a_link_shrinks_below_these() -> None:
    builder = PlanBuilder()
    move = flow(0, 1, 0.1, cap_Bps=1e9)
    builder.transfer("capped", [move], stream="a")
    link = MACHINE.resource_names[move.route.loads[0][0]]
    builder.perturbations.append(Perturbation(0.5, link, 0.05))
    assert ends(builder) == pytest.approx([1.5])


def test_rounds_are_folded_unless_it_is_asked_not_to() -> None:
    builder = PlanBuilder()
    builder.transfer("rounds", [flow(0, 1, 0.1)], repeat=50)
    assert execute(MACHINE, builder.build()).simulation_events == events(builder, fold=True) < 10
    assert events(builder, fold=False) > 100


def test_caps_count_as_often_as_the_bytes_cross() -> None:
    """Staging in a memory of 16 GB/s, written and read, gives 8 GB/s, although the cap of 10 is below 16."""
    machine = machine_from("""
schema_version: 1
name: staged
devices:
  gpu[0-1]: {kind: gpu}
  cpu0: {kind: cpu, memory_bandwidth: 16 GB/s}
links:
  - {between: ["gpu[0-1]", cpu0], kind: pcie, bandwidth: 30 GB/s}
transport: {peer_to_peer: none}
""")
    builder = PlanBuilder()
    builder.transfer("move", [Flow(Router(machine).route(*machine.gpus), 8e9, cap_Bps=10e9)])
    for fold in (True, False):
        assert execute(machine, builder.build(), fold=fold).end_s == pytest.approx(1.0)


def test_a_work_that_loads_a_link_slows_what_is_capped_on_it() -> None:
    """The work takes all of the link when alone, the flow a tenth: both run at 1 / 1.1."""
    builder = PlanBuilder()
    move = flow(0, 1, 0.1, cap_Bps=1e9)
    builder.transfer("capped", [move], stream="a")
    builder.work("work", "gpu0", 1.0, stream="b", loads=((move.route.loads[0][0], 1.0),))
    assert ends(builder) == pytest.approx([1.1, 1.1])


def test_where_nothing_moves_no_bytes_are_counted() -> None:
    builder = PlanBuilder()
    builder.work("work", "gpu0", 1.0)
    for timeline in both(builder):
        assert {*timeline.link_bytes, *timeline.resource_bytes} == {0.0}
