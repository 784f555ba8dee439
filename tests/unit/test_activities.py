"""Activities that share, wait, are slowed and are cancelled: closed forms, and conserved quantities."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine import timeline
from simulator.engine.executor import alone, execute
from simulator.engine.timeline import Timeline
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Fragment, Perturbation, Plan, PlanBuilder, Resource, Work
from tests.examples import few
from tests.machines import crossbar

MACHINE = crossbar(4, bandwidth="10 GB/s")
ROUTER = Router(MACHINE)
CORES = "gpu0:multiprocessors"
MEMORY = "gpu0:memory"


def ends(builder: PlanBuilder) -> list[float]:
    """Return the end time of each activity; folding must change nothing."""
    folded, stepped = (execute(MACHINE, builder.build(), fold=fold) for fold in (True, False))
    found = [span.end_s for span in folded.spans]
    assert found == pytest.approx([span.end_s for span in stepped.spans], rel=1e-9)
    return found


def moved(n_bytes: float, src: int = 0, dst: int = 1, rounds: int = 1) -> Plan:
    builder = PlanBuilder()
    builder.transfer("move", [Flow(ROUTER.route(MACHINE.gpus[src], MACHINE.gpus[dst]), n_bytes)], repeat=rounds)
    return builder.build()


def works(*wanted: tuple[float, float], on: Resource = CORES) -> PlanBuilder:
    """Return works, given as (seconds alone, share of a resource), each on its own stream."""
    builder = PlanBuilder()
    for number, (seconds, share) in enumerate(wanted):
        builder.work("work", "gpu0", seconds, stream=f"s{number}", loads=((on, share),))
    return builder


# -- contention ------------------------------------------------------------------------


def test_two_that_need_all_of_a_resource_take_turns() -> None:
    assert ends(works((1.0, 1.0), (1.0, 1.0))) == pytest.approx([2.0, 2.0])


def test_two_that_fit_beside_each_other_do_not_slow_each_other() -> None:
    assert ends(works((1.0, 0.5), (3.0, 0.5))) == pytest.approx([1.0, 3.0])


def test_each_goes_at_the_same_share_of_its_rate_alone() -> None:
    # Both run at rate r: 0.5 r + 1.0 r = 1, so r = 2/3; the second ends at 1.5 s, when the first has done 1 of 2 s.
    assert ends(works((2.0, 0.5), (1.0, 1.0))) == pytest.approx([2.5, 1.5])


def test_a_small_user_is_not_starved_by_a_large_one() -> None:
    small, large = ends(works((1.0, 0.1), (10.0, 1.0)))
    assert small == pytest.approx(1.1)
    assert large == pytest.approx(10.1)


def beside(kernel_s: float, kernel_share: float, channels: float, n_bytes: float = 10e9) -> tuple[float, float]:
    """Return the end of a collective over a 10 GB/s link, and that of a kernel that starts with it."""
    builder = PlanBuilder()
    fragment = Fragment(moved(n_bytes), loads=((CORES, channels),))
    builder.add("all-reduce", (fragment,), stream="communication")
    builder.work("kernel", "gpu0", kernel_s, stream="compute", loads=((CORES, kernel_share),))
    communicating_s, computing_s = ends(builder)
    return communicating_s, computing_s


def test_computing_beside_communication_slows_both_and_no_work_is_lost() -> None:
    assert alone(MACHINE, Fragment(moved(10e9))).end_s == pytest.approx(1.0)
    communicating_s, computing_s = beside(3.0, 1.0, 0.25)
    assert communicating_s == pytest.approx(1.25)  # both at 1 / (1 + 0.25)
    assert computing_s == pytest.approx(3.0 + 0.25)  # the multiprocessors are never idle: 3 s and 0.25 of 1 s


@given(st.floats(0.1, 5.0), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
@settings(max_examples=few(60))
def test_neither_is_starved_and_work_is_conserved(kernel_s: float, kernel_share: float, channels: float) -> None:
    communicating_s, computing_s = beside(kernel_s, kernel_share, channels)
    slowest = max(1.0, kernel_share + channels)
    assert 1.0 - 1e-9 <= communicating_s <= slowest + 1e-9
    assert kernel_s - 1e-9 <= computing_s <= kernel_s * slowest + 1e-9
    needed = kernel_share * kernel_s + channels * 1.0
    if slowest > 1.0:  # together they keep everything busy until the first has ended; then the other runs alone
        first = min(communicating_s, computing_s)
        left = max(communicating_s, computing_s) - first
        share = kernel_share if computing_s > communicating_s else channels
        assert first + left * share == pytest.approx(needed, rel=1e-9)


def test_a_copy_and_a_collective_share_a_link_as_the_fragment_loads_it() -> None:
    builder = PlanBuilder()
    builder.add("all-reduce", (Fragment(moved(10e9)),), stream="communication")
    builder.transfer("copy", [Flow(ROUTER.route(MACHINE.gpus[0], MACHINE.gpus[1]), 10e9)], stream="copy")
    assert ends(builder) == pytest.approx([2.0, 2.0])


def test_whoever_runs_alone_takes_what_the_plan_of_it_takes() -> None:
    plan = moved(3e9, rounds=7)
    builder = PlanBuilder()
    builder.add("all-reduce", (Fragment(plan, ((CORES, 0.3),), ((MEMORY, 0.1),)),), stream="communication")
    assert ends(builder) == pytest.approx([execute(MACHINE, plan).end_s], rel=1e-12)


def test_what_cannot_meet_costs_no_events() -> None:
    """Kernels that end before the first exchange begins cause no sharing computations."""
    builder = PlanBuilder()
    last = 0
    for _ in range(100):
        last = builder.work("kernel", "gpu0", 1e-3, stream="compute", loads=((CORES, 1.0),))
    builder.add("x", (Fragment(moved(1e9), ((CORES, 0.2),)),), stream="communication", after=[last])
    timeline = execute(MACHINE, builder.build())
    assert timeline.end_s == pytest.approx(0.1 + 0.1)
    assert timeline.simulation_events < 10


def test_exchanges_that_kernels_wait_for_cost_no_events() -> None:
    """Kernel and exchange in turn never meet, however often; the last exchange runs beside a kernel."""
    builder, last = PlanBuilder(), 0
    fragment = Fragment(moved(1e9), ((CORES, 0.2),))
    for number in range(100):
        before = [last] if number else []
        kernel = builder.work("kernel", "gpu0", 0.1, stream="compute", after=before, loads=((CORES, 1.0),))
        last = builder.add("x", (fragment,), stream="communication", after=[kernel])
    builder.work("beside", "gpu0", 0.1, stream="compute", after=[kernel], loads=((CORES, 0.9),))
    timeline = execute(MACHINE, builder.build())
    assert timeline.spans[last].end_s == pytest.approx(100 * 0.1 + 99 * 0.1 + 0.11)
    assert timeline.simulation_events < 10


def test_what_follows_the_disturbed_costs_no_events_where_nothing_slows_it() -> None:
    builder = PlanBuilder()
    builder.add("x", (Fragment(moved(1e9), ((CORES, 0.2),)),), stream="communication")
    last = builder.work("beside", "gpu0", 0.2, stream="compute", loads=((CORES, 1.0),))
    for _ in range(100):
        launched = builder.work("launch", "cpu0", 0.01, stream="host", after=[last])
        last = builder.work("kernel", "gpu0", 0.01, stream="compute", after=[launched])
    timeline = execute(MACHINE, builder.build())
    assert timeline.end_s == pytest.approx(0.2 + 0.2 * 0.1 + 100 * 0.02)
    assert timeline.simulation_events < 10


@given(st.data())
@settings(max_examples=few(60))
def test_leaving_out_loads_that_meet_nothing_changes_nothing(data: st.DataObject) -> None:
    """Works of a few streams, each after any earlier ones."""
    builder = PlanBuilder()
    for number in range(data.draw(st.integers(2, 14))):
        stream = data.draw(st.sampled_from("abc"))
        after = data.draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        loads = ((CORES, data.draw(st.sampled_from([0.0, 0.4, 1.0]))),)
        seconds = data.draw(st.sampled_from([0.0, 1.0, 1.5]))
        builder.work(f"work {number}", "gpu0", seconds, stream=stream, after=after, loads=loads)
    found = ends(builder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "undisturbed", lambda *_: set())
        assert found == pytest.approx(ends(builder), rel=1e-9)


# -- queues ----------------------------------------------------------------------------


def queued(slots: int, count: int) -> Timeline:
    builder = PlanBuilder()
    builder.queues["engine"] = slots
    for number in range(count):
        builder.work("copy", "gpu0", 1.0, stream=f"s{number}", takes=("engine",), gives=("engine",))
    return execute(MACHINE, builder.build())


def test_a_queue_serves_in_order_of_arrival() -> None:
    assert [span.end_s for span in queued(1, 3).spans] == pytest.approx([1.0, 2.0, 3.0])
    assert [span.end_s for span in queued(2, 5).spans] == pytest.approx([1.0, 1.0, 2.0, 2.0, 3.0])


def test_a_queue_of_bounded_depth_holds_the_host_back() -> None:
    """The host takes 0.1 s to issue work of 1 s for the device; at most two may be in flight."""
    builder = PlanBuilder()
    builder.queues["launches"] = 2
    for _ in range(4):
        issued = builder.work("launch", "cpu0", 0.1, stream="host", takes=("launches",))
        builder.work("kernel", "gpu0", 1.0, stream="device", after=[issued], gives=("launches",))
    spans = execute(MACHINE, builder.build()).spans
    assert [span.end_s for span in spans[0::2]] == pytest.approx([0.1, 0.2, 1.2, 2.2])
    assert [span.end_s for span in spans[1::2]] == pytest.approx([1.1, 2.1, 3.1, 4.1])


# -- perturbations ---------------------------------------------------------------------


def test_a_slower_place_stretches_what_is_left() -> None:
    builder = PlanBuilder()
    builder.work("kernel", "gpu0", 1.0)
    builder.perturbations.append(Perturbation(0.5, "gpu0", 0.5))
    assert ends(builder) == pytest.approx([1.5])


def test_a_place_that_stops_goes_on_later() -> None:
    builder = PlanBuilder()
    builder.work("kernel", "gpu0", 1.0)
    builder.perturbations += [Perturbation(0.25, "gpu0", 0.0), Perturbation(2.0, "gpu0", 1.0)]
    assert ends(builder) == pytest.approx([2.75])


def test_a_slower_link_stretches_the_rounds_that_are_left() -> None:
    route = ROUTER.route(MACHINE.gpus[0], MACHINE.gpus[1])
    builder = PlanBuilder()
    builder.transfer("move", [Flow(route, 1e9)], repeat=10)  # 0.1 s each
    link = MACHINE.resource_names[route.loads[0][0]]
    builder.perturbations.append(Perturbation(0.35, link, 0.5))
    assert ends(builder) == pytest.approx([0.35 + 0.65 * 2])


def test_what_is_cancelled_ends_there_and_then() -> None:
    builder = PlanBuilder()
    long = builder.work("kernel", "gpu0", 10.0, stream="a")
    builder.work("next", "gpu0", 1.0, stream="a", after=[long])
    never = builder.work("never begun", "gpu1", 5.0, stream="b", after=[long])
    builder.perturbations += [Perturbation(3.0, cancels=long), Perturbation(1.0, cancels=never)]
    assert ends(builder) == pytest.approx([3.0, 4.0, 3.0])


def test_a_fragment_can_be_cancelled_and_what_shared_with_it_goes_on_alone() -> None:
    builder = PlanBuilder()
    builder.add("x", (Fragment(moved(100e9), ((CORES, 0.5),)),), stream="communication")
    builder.work("kernel", "gpu0", 3.0, stream="compute", loads=((CORES, 1.0),))
    builder.perturbations.append(Perturbation(1.5, cancels=0))
    assert ends(builder) == pytest.approx([1.5, 1.5 + (3.0 - 1.0)])


def test_what_is_cancelled_while_its_last_bytes_are_under_way_ends_once() -> None:
    builder = PlanBuilder()
    route = ROUTER.route(MACHINE.gpus[0], MACHINE.gpus[1])
    sent = builder.transfer("move", [Flow(route, 10e9, latency_s=5.0)], stream="a")
    other = builder.work("other", "gpu1", 20.0, stream="b")
    builder.work("both", "gpu1", 1.0, stream="c", after=[sent, other])
    builder.perturbations.append(Perturbation(3.0, cancels=sent))
    assert ends(builder) == pytest.approx([3.0, 20.0, 21.0])


def test_parts_of_one_activity_share_too() -> None:
    builder = PlanBuilder()
    builder.add("two", [Work(1.0, ((CORES, 1.0),)), Work(1.0, ((CORES, 1.0),))], stream="a")
    assert ends(builder) == pytest.approx([2.0])
