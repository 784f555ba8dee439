"""Pipelines: schedules compared with closed forms, and what a step over stages takes, holds and waits for."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.places import Places
from simulator.questions.layout import SCHEDULES, Layout, Schedule
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.rates import rates_of
from simulator.results.step_view import time_shares
from simulator.results.trace import step_trace
from simulator.results.training import TrainingResult
from simulator.training.pipeline import Chunk, CollectivePrice, StageWork, plan_pipeline
from simulator.training.placement import Placement
from simulator.training.roles import Role
from simulator.training.schedules import chunks_of, in_flight, part_count, schedule_of
from simulator.workload.network import Network
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

pytestmark = pytest.mark.usefixtures("answered_once")

MACHINE = load_machine("dgx-a100-40gb")
PLACES = Places(MACHINE)
HALF = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
F, B, W = 1.0, 2.0, 1.0  # seconds per stage: forward, backward, and the weight gradients' part of that
NOTHING = Network("nothing", (), (), 1)


def pipeline_s(layout: Layout, count: int, *, sent_s: float = 0.0, slow: dict[int, float] | None = None) -> float:
    """Return the time of a pipeline whose stages take *F* and *B* per micro-batch, times the factors of *slow*."""
    group = Communicator(MACHINE, MACHINE.gpus[: layout.pp])
    known = layout.on(layout.pp)
    where = Where(MACHINE.name)
    question = StepQuestion(where=where, workload="", batch=1, micro_batches=count, layout=layout, contention=False)
    stages = []
    for stage in range(layout.pp):
        share = (slow or {}).get(stage, 1.0) * layout.pp / part_count(layout)
        chunk = Chunk(F * share, B * share, W * share, (), (), trained=0, trained_of_experts=0)
        node = MACHINE.nodes[MACHINE.gpus[stage]]
        role = Role(PLACES.place(node.index), node.index, 1, ())
        chunks, received = (chunk,) * chunks_of(layout), (sent_s,) * chunks_of(layout)
        stages.append(StageWork(role, NOTHING, chunks, received, received, shared_bytes=0.0, update_s=0.0, node=node))
    plan = plan_pipeline(stages, question, Placement(group, known), lambda *_: CollectivePrice(0.0, (0.0, 0.0)))
    return execute(MACHINE, plan).end_s


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(1, 24), st.sampled_from(["1f1b", "gpipe"]))
def test_the_fill_is_a_pass_for_each_other_stage(pp: int, count: int, schedule: Schedule) -> None:
    layout = Layout(pp=pp, schedule=schedule if pp > 1 else "1f1b")
    assert pipeline_s(layout, count) == pytest.approx((count + pp - 1) * (F + B))


@given(st.integers(2, 4), st.integers(1, 4), st.integers(2, 4))
def test_virtual_stages_divide_the_fill(pp: int, turns: int, vp: int) -> None:
    count = pp * turns
    assert pipeline_s(Layout(pp=pp, vp=vp), count) == pytest.approx((count + (pp - 1) / vp) * (F + B))


@pytest.mark.slow
@given(st.integers(2, 6), st.integers(0, 12))
def test_gradients_of_parameters_fill_the_bubble(pp: int, more: int) -> None:
    count = 2 * pp + more
    layout = Layout(pp=pp, schedule="zero-bubble")
    assert pipeline_s(layout, count) == pytest.approx(count * (F + B) + (pp - 1) * (F + B - 2 * W))


@given(st.integers(2, 6), st.integers(1, 16), st.integers(0, 5), st.floats(1.0, 3.0))
def test_the_slowest_stage_sets_the_pace(pp: int, count: int, which: int, factor: float) -> None:
    slowest = which % pp
    found = pipeline_s(Layout(pp=pp), count, slow={slowest: factor})
    assert found >= count * factor * (F + B) * (1 - 1e-9)
    assert found <= (count * factor + pp - 1) * (F + B) * (1 + 1e-9)


@pytest.mark.slow
@given(st.integers(2, 6), st.integers(1, 16), st.floats(0.0, 0.5))
def test_what_is_sent_is_never_free_and_never_counted_more_than_on_its_way(pp: int, count: int, sent_s: float) -> None:
    least = pipeline_s(Layout(pp=pp), count)
    found = pipeline_s(Layout(pp=pp), count, sent_s=sent_s)
    assert least + 2 * (pp - 1) * sent_s * (1 - 1e-9) <= found
    assert found <= least + 4 * (count + pp) * sent_s + 1e-9


def bubble_s(schedule: Schedule, pp: int, count: int) -> float:
    return pipeline_s(Layout(pp=pp, schedule=schedule), count) - count * (F + B)


@given(st.integers(2, 7), st.integers(0, 6))
def test_a_v_without_bubble_waits_for_its_first_pass_alone(pp: int, more: int) -> None:
    assert bubble_s("zb-v", pp, 2 * pp - 1 + more) == pytest.approx((pp - 1) * F / 2)


@given(st.integers(2, 7), st.integers(0, 6))
def test_half_the_activations_wait_half_as_long_as_1f1b(pp: int, more: int) -> None:
    of_1f1b = (pp - 1) * (F + B)
    assert bubble_s("v-half", pp, 2 * pp + more) == pytest.approx(of_1f1b / 2 - F / 2 * (pp % 2))


@given(st.integers(2, 7), st.integers(0, 6))
def test_a_third_of_the_activations_waits_two_thirds_as_long_as_1f1b(pp: int, more: int) -> None:
    of_1f1b, rounded = (pp - 1) * (F + B), 1 if pp % 3 == 0 else -1
    assert bubble_s("v-min", pp, 2 * pp + more) == pytest.approx(of_1f1b * 2 / 3 + rounded * F / 2)


@given(st.integers(1, 4), st.integers(0, 4))
def test_two_directions_wait_as_deepseek_says(half: int, more: int) -> None:
    both = F + B  # a forward and a backward pass that are joined, without overlap
    each_s = both + B - 3 * W
    assert bubble_s("dualpipe", 2 * half, 4 * half + 2 * more) == pytest.approx((half - 1) * each_s)
    if half > 1:
        assert bubble_s("dualpipe-v", half, 2 * half + more) == pytest.approx((half - 1) * each_s / 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_estimate_of_the_search_waits_as_long(schedule: Schedule) -> None:
    layout = Layout(pp=8, schedule=schedule)
    of_1f1b = 7 * (F + B)
    assert bubble_s(schedule, 8, 24) == pytest.approx(schedule_of(layout).fill * of_1f1b, abs=0.07 * of_1f1b)


MOST_HELD = {  # parts of the network times micro-batches, for pp stages: the papers' claims, rounded up
    "1f1b": lambda pp: pp,
    "zero-bubble": lambda pp: pp,
    "zb-v": lambda pp: 2 * pp,
    "v-half": lambda pp: 2 * (pp // 2 + 1),
    "v-min": lambda pp: 2 * ((pp + 4) // 3),
    "dualpipe": lambda pp: pp + 1,
    "dualpipe-v": lambda pp: 2 * pp + 1,
}


@pytest.mark.parametrize("schedule", MOST_HELD)
@pytest.mark.parametrize("pp", [2, 4, 6, 8, 16])
def test_what_stages_hold_at_most(schedule: Schedule, pp: int) -> None:
    layout = Layout(pp=pp, schedule=schedule)
    most = max(in_flight(layout, stage, 4 * pp) for stage in range(pp)) * chunks_of(layout)
    assert most == MOST_HELD[schedule](pp)


def test_a_schedule_has_a_name_that_a_layout_knows() -> None:
    for schedule in SCHEDULES:
        assert schedule_of(Layout(pp=4, schedule=schedule)).order(Layout(pp=4, schedule=schedule), 0, 8)


ORDERS = [*(Layout(pp=4, schedule=schedule) for schedule in SCHEDULES), Layout(pp=4, vp=3)]


@pytest.mark.parametrize("layout", ORDERS, ids=lambda layout: layout.words)
@given(turns=st.integers(1, 5))
def test_every_pass_runs_once_after_what_it_needs(layout: Layout, turns: int) -> None:
    count = 4 * turns + 4 * layout.schedule.startswith("dual")
    for stage in range(layout.pp):
        order = schedule_of(layout).order(layout, stage, count)
        passes = Counter((each.kind, each.chunk, each.micro_batch) for each in order)
        assert set(passes.values()) == {1}
        kinds = Counter(each.kind for each in order)
        assert kinds["forward"] == kinds["backward"] == count * part_count(layout) / layout.pp
        place = {(each.kind, each.chunk, each.micro_batch): i for i, each in enumerate(order)}
        assert all(place["forward", c, m] < i for (kind, c, m), i in place.items() if kind == "backward")
        assert all(place["backward", c, m] < i for (kind, c, m), i in place.items() if kind == "weights")
        alive = most = 0
        frees = "weights" if kinds["weights"] else "backward"
        for each in order:
            alive += (each.kind == "forward") - (each.kind == frees)
            most = max(most, alive)
        assert most == pytest.approx(in_flight(layout, stage, count) * chunks_of(layout))


def test_virtual_stages_need_micro_batches_that_share_out() -> None:
    with pytest.raises(InputError) as raised:
        schedule_of(Layout(pp=4, vp=2)).order(Layout(pp=4, vp=2), 0, 6)
    why = "takes turns among 4 micro-batches at a time, and there are 6; 4 or 8 would do"
    assert raised.value.spelt("command") == f"--parallel: vp=2 {why}"


@pytest.mark.parametrize(
    ("schedule", "pp", "count", "why"),
    [
        ("dualpipe", 4, 9, "8 or more, from both ends of pp=4, and there are 9; 10 would do"),
        ("dualpipe", 4, 4, "an even number of micro-batches, 8 or more, from both ends of pp=4, and there are 4; 8"),
        ("dualpipe-v", 4, 7, "takes 8 micro-batches or more with pp=4, and there are 7; 8 would do"),
    ],
)
def test_two_directions_need_micro_batches(schedule: Schedule, pp: int, count: int, why: str) -> None:
    with pytest.raises(InputError, match=why):
        schedule_of(Layout(pp=pp, schedule=schedule)).order(Layout(pp=pp, schedule=schedule), 0, count)
    if schedule == "dualpipe":
        with pytest.raises(InputError, match="an even number of stages, not pp=3"):
            Layout(pp=3, schedule=schedule)


# -- the whole step ------------------------------------------------------------------

LLAMA = build_network("llama3-8b", batch=1, loss=True, sequence_length=1024, layers=8)


LARGE = build_network("llama3-8b", batch=4, loss=True, sequence_length=4096, layers=8)


def step(layout: Layout, micro_batches: int = 8, network: Network = LLAMA) -> TrainingResult:
    return step_on(MACHINE, network, HALF, layout=layout, micro_batches=micro_batches)


@pytest.mark.slow
def test_more_micro_batches_make_the_fill_a_smaller_part() -> None:
    shares = []
    for count in (4, 8, 16, 32):
        result = step(Layout(pp=4), count)
        shares.append(result.bubble_s / result.step_time_s)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 2 * shares[-1]


def test_interleaving_shrinks_the_bubble() -> None:
    plain, interleaved = step(Layout(pp=4)), step(Layout(pp=4, vp=2))
    assert interleaved.bubble_s < 0.75 * plain.bubble_s
    assert interleaved.step_time_s < plain.step_time_s


def test_earlier_stages_keep_more_micro_batches() -> None:
    memory = step(Layout(pp=4), network=LARGE).memory
    assert [device.stage for device in memory] == [0, 1, 2, 3]
    kept = [device.need.activations_bytes for device in memory]
    assert kept[1] == pytest.approx(1.5 * kept[2], rel=0.05)  # 3 micro-batches against 2
    everything = step(Layout(pp=4, schedule="gpipe"), 16, LARGE).memory[1].need.activations_bytes
    assert everything == pytest.approx(16 / 3 * kept[1], rel=0.05)


DEEP = build_network("llama3-8b", batch=1, loss=True, sequence_length=2048, layers=16)


def test_a_v_holds_less_and_two_directions_hold_parameters_twice() -> None:
    """Of a stage in the middle: the last part of a V, with the logits, is on the first stage."""
    schedules: tuple[Schedule, ...] = ("1f1b", "v-half", "v-min", "dualpipe")
    plain, half, least, both = (step(Layout(pp=8, schedule=each), 16, DEEP).memory[3].need for each in schedules)
    assert half.activations_bytes == pytest.approx(plain.activations_bytes, rel=0.1)  # 1F1B's fourth of 8 holds 5 too
    assert least.activations_bytes == pytest.approx(0.6 * plain.activations_bytes, rel=0.1)  # and V-Min 3
    first = step(Layout(pp=8), 16, DEEP).memory[1].need.activations_bytes  # of 7
    assert half.activations_bytes == pytest.approx(5 / 7 * first, rel=0.1)
    assert both.parameters_bytes == pytest.approx(2 * plain.parameters_bytes)
    assert both.optimizer_bytes == pytest.approx(2 * plain.optimizer_bytes)


def test_schedules_rank_as_their_bubbles() -> None:
    of = {each: step(Layout(pp=4, schedule=each), 8, DEEP).step_time_s for each in SCHEDULES}
    assert max(of["zb-v"], of["dualpipe-v"]) < of["v-half"] < of["v-min"] < of["1f1b"]


def test_work_does_not_depend_on_the_order_of_passes() -> None:
    """Nor on the stages that do it: a part that is there twice sees half of the micro-batches on each."""
    found = [step(Layout(pp=4, schedule=each), 8, DEEP) for each in SCHEDULES]
    flops = [rates_of(each).mfu * each.step_time_s for each in found]
    assert flops == pytest.approx([flops[0]] * len(flops))


def test_both_copies_of_parameters_sum_their_gradients() -> None:
    """The eight stages of one replica: each part is in two of them, which exchange all its gradients."""
    plain, both = (step(Layout(pp=8, schedule=schedule), 16, DEEP) for schedule in ("1f1b", "dualpipe"))
    assert plain.exposed_s == 0.0
    assert both.exposed_s > 0.0


def test_the_sum_of_a_tied_embedding_is_no_data_parallel_exchange() -> None:
    network = build_network("gpt3-125m", batch=2, loss=True)
    for stages, several in ((8, False), (4, True)):
        result = step(Layout(pp=stages), network=network)
        spent = time_shares(result)
        assert spent["tied"] > 0.0
        assert ("data" in spent) == several
        assert spent["tied"] + spent.get("data", 0.0) == pytest.approx(result.exposed_s)
        assert sum(spent.values()) == pytest.approx(result.step_time_s)


def test_a_stage_says_what_it_waits_for() -> None:
    result = step(Layout(tp=2, pp=2, zero=1, sp=True))
    assert set(result.streams) >= {"compute", "communication", "tp communication"}
    assert result.exposed_s > 0
    assert result.bubble_s > 0
    assert set(result.step.parts_s) == {"forward", "backward", "update"}
    waits_s = sum(result.streams["compute"].waits_s.values())
    assert waits_s + result.streams["compute"].busy_s == pytest.approx(result.step_time_s, rel=1e-6)


def test_a_trace_has_each_stage_at_its_own_gpu() -> None:
    result = step(Layout(pp=4, tp=2), 4)
    events = json.loads(step_trace(result.timeline, "llama", result.device_count))["traceEvents"]
    passes = [event for event in events if event["ph"] == "X" and event["name"] == "forward 0"]
    assert len({event["pid"] for event in passes}) == 4
    assert {event["args"]["micro-batch"] for event in passes} == {0}
    sends = [event for event in events if event["ph"] == "X" and event["name"] == "send"]
    assert {event["pid"] for event in sends} == {event["pid"] for event in passes}


def test_shards_of_parameters_do_not_go_with_stages() -> None:
    with pytest.raises(InputError, match=r"fsdp does not go with pp=2.*zero=1 or zero=2 goes with pp"):
        step(Layout(pp=2, zero=3))


@pytest.mark.slow
def test_recomputing_attention_alone_costs_less_and_keeps_more_than_recomputing_all() -> None:
    times, kept = [], []
    for again in ("none", "selective", "full"):
        result = step_on(
            MACHINE,
            build_network("gpt", batch=1, loss=True, sequence_length=1024, layers=4),
            StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, recompute=again),
            layout=Layout(tp=2),
            micro_batches=4,
        )
        times.append(result.step.busy_s)
        kept.append(result.tightest.need.activations_bytes)
    assert times == sorted(times)
    assert kept[0] > kept[2]
