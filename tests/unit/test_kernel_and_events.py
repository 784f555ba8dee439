"""The clock, and the number of simulation events of a collective: a measure of speed independent of the machine."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import simpy

from simulator.api import load_machine
from simulator.engine.executor import execute
from simulator.engine.flows import FlowNetwork
from simulator.engine.kernel import Queue, SimulationClock
from simulator.errors import SimulationError
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Activity, Flow, Plan, PlanBuilder, Work
from tests.asked import exchange_on
from tests.machines import crossbar, machine_from, ring_machine

SIZE = 160e6


def unequal_ring(n: int, seed: int = 1) -> Machine:
    """Return n GPUs joined in a ring by links of random bandwidths and latencies."""
    draw = random.Random(seed)
    links = "\n".join(
        f"  - {{between: [gpu{i}, gpu{(i + 1) % n}], kind: nvlink, bandwidth: {draw.randint(20_000, 60_000)} MB/s,"
        f" latency: {draw.randint(500, 2_000)} ns}}"
        for i in range(n)
    )
    return machine_from(
        f"schema_version: 1\nname: unequal\ndevices:\n  gpu[0-{n - 1}]: {{kind: gpu}}\nlinks:\n{links}\n"
    )


# -- the clock -------------------------------------------------------------------------


def test_actions_run_in_order_of_time_then_of_asking() -> None:
    kernel = SimulationClock()
    seen: list[tuple[float, str]] = []

    def note(name: str) -> None:
        seen.append((kernel.now_s, name))

    kernel.call_at(2.0, lambda: note("late"))
    kernel.call_at(1.0, lambda: note("first"))
    kernel.call_at(1.0, lambda: note("second"))
    kernel.call_at(0.0, lambda: note("at once"))
    kernel.run()
    assert seen == [(0.0, "at once"), (1.0, "first"), (1.0, "second"), (2.0, "late")]
    assert kernel.events == 4


def test_last_of_an_instant_comes_after_all_that_is_added_to_it() -> None:
    kernel = SimulationClock()
    seen: list[str] = []

    def first() -> None:
        kernel.call_last(lambda: seen.append("last"))
        kernel.call_at(kernel.now_s, lambda: seen.append("added"))
        kernel.call_at(kernel.now_s + 1, lambda: seen.append("next"))

    kernel.call_at(1.0, first)
    kernel.run()
    assert seen == ["added", "last", "next"]


@pytest.mark.parametrize("waiting", [True, False])
def test_last_of_an_instant_comes_after_a_slot_that_is_given_in_it(waiting: bool) -> None:
    kernel = SimulationClock()
    seen: list[tuple[str, float]] = []
    queue = Queue(kernel, 1)

    def first() -> None:
        kernel.call_last(lambda: seen.append(("last", kernel.now_s)))
        if waiting:
            queue.take(lambda: seen.append(("taken", kernel.now_s)))
        queue.give()

    queue.take(lambda: None)
    kernel.call_at(1.0, first)
    kernel.call_at(2.0, lambda: seen.append(("next", kernel.now_s)))
    kernel.run()
    assert seen == [*[("taken", 1.0)] * waiting, ("last", 1.0), ("next", 2.0)]


class PlainClock(simpy.Environment):
    """A clock with the calls of :class:`SimulationClock` by SimPy's public calls alone; last: a lower priority."""

    @property
    def now_s(self) -> float:
        return float(self.now)

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        self._call(self.timeout(max(0.0, time_s - self.now)), action)

    call_next = call_at

    def call_last(self, action: Callable[[], None]) -> None:
        event = self.event()
        event._ok, event._value = True, None
        self.schedule(event, 2)  # type: ignore[arg-type]
        self._call(event, action)

    def _call(self, event: simpy.Event, action: Callable[[], None]) -> None:
        assert event.callbacks is not None
        event.callbacks.append(partial(self.run_now, action))

    def run_now(self, action: Callable[[], None], _: object = None) -> None:
        action()


def happenings(clock: SimulationClock | PlainClock, seed: int) -> list[tuple[float, int]]:
    """Return when each of many actions ran, by its number; each asks for others, at the same or other instants."""
    draw, queue, seen = random.Random(seed), Queue(cast(SimulationClock, clock), 2), list[tuple[float, int]]()
    numbers = itertools.count()

    def ask() -> None:
        number = next(numbers)
        run, time_s = partial(happen, number), clock.now_s + draw.choice([-1.0, 0.0, 0.0, 0.1, 0.5, 1.0])
        ways = [partial(clock.call_at, time_s), partial(clock.call_next, time_s), clock.call_last, queue.take]
        draw.choice(ways)(run)

    def happen(number: int) -> None:
        seen.append((clock.now_s, number))
        for _ in range(draw.choice([0, 1, 1, 2, 3]) if len(seen) < 400 else 0):
            ask()
        if draw.random() < 0.3:
            queue.give()

    for _ in range(5):
        ask()
    clock.run()
    return seen


@pytest.mark.parametrize("seed", range(40))
def test_actions_run_as_by_plain_simpy(seed: int) -> None:
    assert happenings(SimulationClock(), seed) == happenings(PlainClock(), seed)


def test_actions_of_the_comparison_with_plain_simpy_are_many() -> None:
    assert sum(len(happenings(PlainClock(), seed)) for seed in range(40)) > 4_000


def test_asking_what_is_in_use_keeps_nothing() -> None:
    network = FlowNetwork(SimulationClock(), {}, may_stall=False)
    assert not network.in_use([1, 2])
    assert not network._users


def test_what_is_past_happens_now() -> None:
    kernel = SimulationClock()
    times: list[float] = []
    kernel.call_at(3.0, lambda: kernel.call_at(1.0, lambda: times.append(kernel.now_s)))
    kernel.run()
    assert times == [3.0]


def test_nothing_to_do_takes_no_time() -> None:
    kernel = SimulationClock()
    kernel.run()
    assert (kernel.now_s, kernel.events) == (0.0, 0)


# -- plans that cannot run, and small ones ----------------------------------------------


def test_a_task_that_waits_for_a_later_one_is_refused() -> None:
    machine = ring_machine(3)
    second = Work(1.0)
    tasks = (Activity(0, "a", "s", (1,), (second,), place="host"), Activity(1, "b", "t", (), (second,), place="host"))
    with pytest.raises(SimulationError, match=r"^task 0 \(a\) waits for a task that does not stand before it$"):
        execute(machine, Plan(tasks))


@pytest.mark.parametrize("fold", [True, False])
def test_flows_of_nothing_and_nothing_to_move(fold: bool) -> None:
    machine = ring_machine(3)
    way = Router(machine).route(machine.gpus[0], machine.gpus[1])
    assert execute(machine, Plan(()), fold=fold).end_s == 0.0
    tasks = (Activity(0, "none", "s", (), ()), Activity(1, "empty", "s", (), (Flow(way, 0.0),), repeat=3))
    timeline = execute(machine, Plan(tasks), fold=fold)
    assert [span.end_s for span in timeline.spans] == pytest.approx([0.0, 3e-6])


@pytest.mark.parametrize("fold", [True, False])
def test_two_streams_share_a_link_while_both_move(fold: bool) -> None:
    """10 GB/s: the small flow ends when both have moved 1 MB; the large one then has the link alone."""
    machine = ring_machine(3, bandwidth="10 GB/s", latency="0 s")
    way = Router(machine).route(machine.gpus[0], machine.gpus[1])
    builder = PlanBuilder()
    builder.transfer("small", [Flow(way, 1e6)], stream="a")
    builder.transfer("large", [Flow(way, 3e6)], stream="b")
    timeline = execute(machine, builder.build(), fold=fold)
    assert [span.end_s for span in timeline.spans] == pytest.approx([2e-4, 4e-4], rel=1e-12)


# -- closed forms ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 16, 33, 64, 100, 256, 1024, 4096])
def test_a_ring_of_equal_links_takes_what_the_formula_says(n: int) -> None:
    """2 (n-1) (S / (n B) + L), with B of 54 GB/s and L of 1 us."""
    result = exchange_on(ring_machine(n), "single-ring", SIZE)
    assert result.sync_time_s == pytest.approx(2 * (n - 1) * (SIZE / (n * 54e9) + 1e-6), rel=1e-6)


@pytest.mark.parametrize("n", [8, 33, 64])
def test_so_does_it_step_by_step(n: int) -> None:
    result = exchange_on(ring_machine(n), "single-ring", SIZE, fold=False)
    assert result.sync_time_s == pytest.approx(2 * (n - 1) * (SIZE / (n * 54e9) + 1e-6), rel=1e-9)


@pytest.mark.parametrize("n", [2, 8, 72])
def test_a_crossbar_takes_as_long(n: int) -> None:
    result = exchange_on(crossbar(n, bandwidth="54 GB/s", latency="1 us"), "single-ring", SIZE)
    assert result.sync_time_s == pytest.approx(2 * (n - 1) * (SIZE / (n * 54e9) + 1e-6), rel=1e-9)


@pytest.mark.parametrize("n", [8, 64, 512])
def test_a_ring_of_unequal_links_goes_as_fast_as_its_slowest(n: int) -> None:
    machine = unequal_ring(n)
    slowest = max(
        SIZE / n / link.bandwidth_Bps + link.latency_s
        for link in machine.links
        if (link.src + 1) % n == link.dst  # the ring runs upwards
    )
    result = exchange_on(machine, "single-ring", SIZE)
    assert result.sync_time_s == pytest.approx(2 * (n - 1) * slowest, rel=1e-9)


# -- events ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 64, 512, 1024, 4096])
def test_a_ring_of_equal_links_costs_the_same_at_any_size(n: int) -> None:
    assert exchange_on(ring_machine(n), "single-ring", SIZE).simulation_events == 7


@pytest.mark.parametrize(("n", "events"), [(8, 21), (64, 133), (512, 1021)])
def test_a_ring_of_unequal_links_costs_one_round(n: int, events: int) -> None:
    assert exchange_on(unequal_ring(n), "single-ring", SIZE).simulation_events == events


@pytest.mark.parametrize(("n", "events"), [(8, 69), (16, 149)])
def test_without_folding_each_round_costs_as_much(n: int, events: int) -> None:
    assert exchange_on(ring_machine(n), "single-ring", SIZE, fold=False).simulation_events == events


@pytest.mark.parametrize(
    ("topology", "n_nodes", "strategy", "events"),
    [
        ("p3.16xlarge", None, "ring", 10),
        ("p3.16xlarge", None, "multi-ring", 15),
        ("dgx-a100-80gb", None, "ring", 7),
        ("p3.16xlarge", 4, "hierarchical", 27),
        ("p3.16xlarge", 32, "hierarchical", 27),
    ],
)
def test_built_in_machines(topology: str, n_nodes: int | None, strategy: str, events: int) -> None:
    result = exchange_on(load_machine(topology, n_nodes=n_nodes), strategy, SIZE)
    assert result.simulation_events == events


def test_only_the_engine_imports_simpy() -> None:
    """Making a plan and inspecting its machine work without SimPy."""
    code = (
        "import sys; import simulator.plan.plan, simulator.collectives.registry, simulator.topology.load;"
        "sys.exit('simpy' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0
