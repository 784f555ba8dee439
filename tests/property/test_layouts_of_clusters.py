"""Properties of collectives and of divided steps that other simulators were found to violate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api.session import Session
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import Layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.training.roles import alone_s_of
from tests.examples import few

SESSION = Session()
A100 = Where("dgx-a100-40gb", 2)
OPTIONS = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
NO_UPDATE: dict[str, Any] = {"optimizer": "none", "fused_optimizer": False}
SIZES = (("sequence_length", 512), ("layers", 4), ("loss", 1))
BATCHES = 8


def exchange_s(
    size_bytes: float, *, gpus: tuple[int, ...], strategy: str = "ring", collective: Any = "all-reduce"
) -> float:
    question = CollectiveQuestion(
        where=A100, gpus=gpus, strategy=strategy, collective=collective, size_bytes=size_bytes
    )
    return SESSION.time_s(question)


@given(st.floats(1e3, 1e9), st.floats(1.0, 10.0), st.sampled_from(["ring", "tree", "halving-doubling", "hierarchical"]))
@settings(max_examples=8)
def test_a_larger_message_is_never_cheaper_on_one_algorithm(size: float, factor: float, strategy: str) -> None:
    gpus = tuple(range(16))
    assert exchange_s(size, gpus=gpus, strategy=strategy) <= exchange_s(factor * size, gpus=gpus, strategy=strategy) * (
        1 + 1e-9
    )


@given(st.integers(1, 7), st.floats(1e6, 1e9))
@settings(max_examples=8)
def test_a_group_over_two_nodes_never_beats_its_physical_cut(inside: int, size: float) -> None:
    gpus = (*range(inside), *range(8, 8 + 8 - inside))
    machine = SESSION.machine(A100)
    cut_Bps = sum(link.bandwidth_Bps for link in machine.links if machine.nodes[link.src].name.startswith("node0.ib"))
    for strategy in ("ring", "nccl"):
        assert exchange_s(size, gpus=gpus, strategy=strategy) >= size / cut_Bps  # the data that one side lacks


@given(st.floats(1e5, 1e9))
@settings(max_examples=few(10))
def test_an_all_to_all_is_not_an_all_gather(size: float) -> None:
    gpus = tuple(range(16))
    each = {c: exchange_s(size, gpus=gpus, strategy="nccl", collective=c) for c in ("all-to-all", "all-gather")}
    assert each["all-to-all"] != pytest.approx(each["all-gather"], rel=0.01)


# -- divided steps -------------------------------------------------------------------

DEGREES = st.sampled_from([1, 2, 4])
LAYOUTS = st.builds(
    lambda tp, pp, cp, zero, sp: Layout(tp=tp, pp=pp, cp=cp, zero=zero, sp=sp and tp > 1),
    DEGREES,
    DEGREES,
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
).filter(lambda layout: layout.model_ranks <= 16)


@cache
def step_s(layout: Layout, gpus: tuple[int, ...] = tuple(range(16)), part: str = "", **more: Any) -> float:
    where = Where(part or "dgx-a100-40gb", 2)
    question = StepQuestion(
        where=where,
        workload="llama3-8b",
        batch=1,
        micro_batches=BATCHES,
        sizes=SIZES,
        options=OPTIONS,
        gpus=gpus,
        layout=layout,
        **more,
    )
    return SESSION.time_s(question)


@given(LAYOUTS)
@settings(max_examples=6, deadline=None)
def test_nodes_in_another_order_change_nothing(layout: Layout) -> None:
    gpus = (*range(8, 16), *range(8))
    assert step_s(layout, gpus) == pytest.approx(step_s(layout), rel=1e-6)


@given(LAYOUTS)
@settings(max_examples=6, deadline=None)
def test_a_faster_device_never_slows_a_step(layout: Layout) -> None:
    assert step_s(layout, part="dgx-h100") <= step_s(layout) * (1 + 1e-9)


@given(LAYOUTS)
@settings(max_examples=6, deadline=None)
def test_no_layout_beats_what_its_devices_could_do_that_wait_for_nothing(layout: Layout) -> None:
    question = StepQuestion(
        where=A100, workload="llama3-8b", batch=1, micro_batches=BATCHES, sizes=SIZES, options=OPTIONS, layout=layout
    )
    result = SESSION.step(question)
    # Ranks that shard the optimiser's state share an update that each device alone does whole.
    passes = replace(question, options=replace(OPTIONS, mode="backward", **NO_UPDATE))
    alone_s, passes_s = (alone_s_of(SESSION.device(A100), SESSION.network(question), of) for of in (question, passes))
    assert result.scaling_efficiency <= (alone_s / passes_s if layout.zero else 1.0) + 1e-9
    assert 0 <= result.exposed_s + result.bubble_s <= result.step_time_s
    assert result.fits == all(device.need.fits for device in result.memory)


@given(LAYOUTS, st.sampled_from([2, 4]))
@settings(max_examples=few(10), deadline=None)
def test_groups_spread_over_nodes_are_never_faster_within_layers(layout: Layout, tp: int) -> None:
    near = replace(layout, tp=tp, pp=1, cp=1, zero=0)
    forward = replace(OPTIONS, mode="forward", **NO_UPDATE)

    def forward_s(order: Any) -> float:
        question = StepQuestion(
            where=A100, workload="llama3-8b", batch=4, sizes=SIZES, options=forward, layout=replace(near, order=order)
        )
        return SESSION.time_s(question)

    assert forward_s(("tp", "cp", "dp", "pp")) <= forward_s(("dp", "cp", "tp", "pp")) * (1 + 1e-9)


def test_what_cannot_be_divided_is_told_in_a_line() -> None:
    with pytest.raises(InputError) as raised:
        step_s(Layout(tp=16))
    assert str(raised.value).count("\n") == 0
    assert "tp=16 does not divide the 8 heads of keys and values" in str(raised.value)
