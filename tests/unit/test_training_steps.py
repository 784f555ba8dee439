"""A step over several GPUs: which exchanges it makes, when they are hidden, and the rows' columns."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.collectives.communicator import Request, Unsuitable
from simulator.errors import InputError
from simulator.places import Places
from simulator.plan.plan import Plan, PlanBuilder
from simulator.questions.layout import FSDP, REPLICAS, Layout
from simulator.questions.options import Recompute, StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.step.issue import launches_of
from simulator.training.worker import CollectiveLabel
from simulator.workload.network import Network, block_name
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on, exchange_on, step_on
from validate.kinds import STEPS
from validate.tables.cells import NotScored, csv_bytes, read_records
from validate.tables.names import RowNames
from validate.tables.table import tabulate

pytestmark = pytest.mark.slow

MACHINE = load_machine("dgx-a100-40gb")
DEVICE = Places(MACHINE).find().device
GPT = build_network("gpt2", batch=4, sequence_length=256, layers=4)
HALF = StepOptions(precision="master-bf16", optimizer="adam")
SHARES = {"layout": FSDP}


class Told:
    """A strategy that takes *time_s* whatever the exchange."""

    name = "told"
    summary = "for tests"

    def __init__(self, time_s: float = 0.0) -> None:
        self.time_s = time_s

    def plan(self, request: Request) -> Plan:
        builder = PlanBuilder()
        builder.work("wait", "host", self.time_s)
        return builder.build()


def step(options: StepOptions = HALF, network: Network = GPT, *, time_s: float = 0.0, **asked: Any) -> TrainingResult:
    """Return a step over the machine's eight GPUs whose exchanges take *time_s* each and slow nothing."""
    return step_on(MACHINE, network, options, strategy=Told(time_s), contention=False, **asked)


def exchanged(result: TrainingResult) -> list[CollectiveLabel]:
    return [task.about for task in result.timeline.plan.tasks if isinstance(task.about, CollectiveLabel)]


def sizes(result: TrainingResult, op: str) -> list[float]:
    return [each.size_bytes for each in exchanged(result) if each.op == op]


def elements(network: Network, *, outside: bool) -> int:
    """Return the parameters in repeated blocks, or outside of them, each counted once."""
    found = {p.name: (p.elements, block_name(layer.name)) for layer in network.layers for p in layer.parameters}
    return sum(n for n, block in found.values() if bool(block) != outside)


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "master-fp16"])
def test_where_exchange_is_free_a_replica_steps_as_one_gpu_does(precision: str) -> None:
    options = StepOptions(precision=precision, optimizer="adam")  # type: ignore[arg-type]
    alone_s = alone_on(MACHINE, GPT, options).step_time_s
    result = step(options)
    assert result.step_time_s == pytest.approx(alone_s, rel=1e-9)
    assert result.alone_s == pytest.approx(alone_s, rel=1e-9)
    assert (result.device_count, result.samples) == (8, 8 * 4)


def test_where_exchange_is_free_a_share_saves_the_update_of_the_others() -> None:
    options = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
    network = build_network("gpt2", batch=64, sequence_length=512, layers=4)  # no hook of a share keeps it waiting
    whole_s = alone_on(MACHINE, network, options).step_time_s
    share_s = step(options, network, **SHARES).step_time_s
    update_s = sum(issue.device_s for issue in launches_of(DEVICE, network, options) if issue.part == "update")
    assert whole_s - share_s <= update_s * 7 / 8 * (1 + 1e-9)
    assert share_s < whole_s


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("amp-fp16", 4), ("master-fp16", 2), ("fp16", 2)])
def test_all_gradients_are_exchanged_once_in_buckets(precision: str, size: int) -> None:
    options = StepOptions(precision=precision, optimizer="adam")  # type: ignore[arg-type]
    result = step(options, micro_batches=3)
    assert {(each.op, each.micro_batch) for each in exchanged(result)} == {("all-reduce", 2)}
    found = sizes(result, "all-reduce")
    assert sum(found) == size * GPT.parameter_count
    assert all(each >= BUCKET_BYTES for each in found[:-1])
    assert len(found) > 2


def test_buckets_are_as_large_as_is_asked_and_without_them_all_goes_at_once() -> None:
    small, all_at_once = step(bucket_bytes=1e6), step(bucket_bytes=0, time_s=0.01)
    found = sizes(small, "all-reduce")
    assert all(each >= 1e6 for each in found[:-1])
    assert len(found) > len(sizes(step(), "all-reduce"))
    assert sum(found) == 2 * GPT.parameter_count
    assert sizes(all_at_once, "all-reduce") == [2 * GPT.parameter_count]
    assert all_at_once.step_time_s == pytest.approx(0.01 + step().step_time_s, rel=1e-9)  # the update waits for it


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_shares_are_gathered_before_both_passes_and_scattered_once(recompute: Recompute) -> None:
    options = StepOptions(precision="master-bf16", optimizer="adam", recompute=recompute)
    result = step(options, micro_batches=2, sums_in_fp32=True, **SHARES)
    inside, outside = elements(GPT, outside=False), elements(GPT, outside=True)
    assert inside + outside == GPT.parameter_count
    assert sum(sizes(result, "all-gather")) == 2 * 2 * (2 * inside + outside)
    assert sum(sizes(result, "reduce-scatter")) == 2 * 4 * (inside + outside)
    assert {each.op for each in exchanged(result)} == {"all-gather", "reduce-scatter"}
    half = step(options, **SHARES)
    assert sum(sizes(half, "reduce-scatter")) == 2 * GPT.parameter_count


def test_units_that_autocast_casts_are_exchanged_in_fp32() -> None:
    wide, half = (step(StepOptions(precision="amp-bf16"), gathers_in_fp32=each, **SHARES) for each in (True, False))
    inside, outside = elements(GPT, outside=False), elements(GPT, outside=True)
    assert sum(sizes(wide, "all-gather")) == 4 * (2 * inside + outside) == 2 * sum(sizes(half, "all-gather"))
    assert sum(sizes(wide, "reduce-scatter")) == 4 * (inside + outside) == 2 * sum(sizes(half, "reduce-scatter"))


@cache
def free_s(layout: Layout, count: int) -> float:
    return step(layout=layout, micro_batches=count).step_time_s


@given(st.floats(0, 0.1), st.sampled_from([REPLICAS, FSDP]), st.integers(1, 3))
def test_exchange_is_hidden_at_best_and_comes_on_top_at_worst(time_s: float, layout: Layout, count: int) -> None:
    result = step(time_s=time_s, layout=layout, micro_batches=count)
    computed_s, exchanged_s = free_s(layout, count), len(exchanged(result)) * time_s
    assert max(computed_s, exchanged_s) * (1 - 1e-9) <= result.step_time_s
    assert result.step_time_s <= (computed_s + exchanged_s) * (1 + 1e-9)


def test_buckets_of_all_but_the_end_of_the_backward_pass_are_hidden() -> None:
    result = step(time_s=1e-5)
    assert result.step_time_s <= free_s(REPLICAS, 1) + 1e-5 * (1 + 1e-9)
    assert len(exchanged(result)) > 2


@pytest.mark.parametrize("layout", [REPLICAS, FSDP])
def test_micro_batches_that_pass_at_once_take_what_they_take_one_by_one(layout: Layout) -> None:
    folded, whole = (step(time_s=1e-4, layout=layout, micro_batches=12, fold=fold) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert len(folded.timeline.plan.tasks) < len(whole.timeline.plan.tasks) / 2


def test_what_is_exchanged_takes_what_nccl_takes_on_the_machine() -> None:
    two_nodes = load_machine("dgx-a100-40gb", n_nodes=2)
    for machine in (MACHINE, two_nodes):
        timeline = step_on(machine, GPT, HALF, contention=False).timeline
        spans = [
            (task.about.size_bytes, span.end_s - span.start_s)
            for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True)
            if isinstance(task.about, CollectiveLabel)
        ]
        assert len(spans) > 2
        for size_bytes, took_s in spans:
            assert took_s == pytest.approx(exchange_on(machine, "nccl", size_bytes).sync_time_s, rel=1e-9)
    one_s, two_s = (exchange_on(machine, "nccl", 2.0**30).sync_time_s for machine in (MACHINE, two_nodes))
    ideal_s = 2 * 7 / 8 * 2**30 / 300e9  # six links each way, half of 600 GB/s
    assert ideal_s < one_s < 2 * ideal_s
    assert two_s > one_s


def test_what_runs_forward_again_leaves_no_gradients() -> None:
    """With very slow exchanges, a step takes these plus the work before the first bucket of two blocks."""
    network = build_network("gpt2", batch=16, sequence_length=512, layers=4)

    def first_s(recompute: Recompute) -> float:
        options = StepOptions(precision="master-bf16", optimizer="none", recompute=recompute)
        result = step(options, network, time_s=10.0)
        return result.step_time_s - len(exchanged(result)) * 10.0

    forward = [i for i in launches_of(DEVICE, network, HALF) if i.part == "forward" and i.name.startswith("layers.3.")]
    block_s = sum(issue.device_s for issue in forward)
    assert first_s("full") - first_s("none") == pytest.approx(2 * block_s, rel=0.02)


def test_a_strategy_that_does_not_fit_is_refused_with_its_reason() -> None:
    class Unfit(Told):
        name = "unfit"

        def plan(self, request: Request) -> Plan:
            raise Unsuitable(f"no way to do {request.collective}")

    with pytest.raises(Unsuitable, match="no way to do all-reduce"):
        step_on(MACHINE, GPT, HALF, strategy=Unfit(), contention=False)
    with pytest.raises(InputError, match="no strategy is called 'rign'; did you mean 'ring'"):
        step_on(MACHINE, GPT, HALF, strategy="rign", contention=False)
    with pytest.raises(InputError, match="there is no GPU 8"):
        step(gpus=[0, 8])


# -- rows ------------------------------------------------------------------------------

NAMES = RowNames()
ROW = {"machine": "dgx-a100-40gb", "n_nodes": "1", "n_gpus": "8", "framework": "pytorch", "model": "gpt2",
       "seq_len": "256", "layers": "4", "dtype": "fp16", "batch_per_gpu": "4", "sync": "ddp",
       "step_time_s": "1"}  # fmt: skip


def read(**cells: str) -> StepQuestion:
    row = {**ROW, **cells}
    records = read_records(csv_bytes([tuple(row), tuple(row.values())]), "t.csv")
    table = tabulate(records, "training.csv", STEPS.needed, STEPS.columns, STEPS.name)
    asked = {column: table.cell(table.rows[0], column) for column in STEPS.asked}
    found = STEPS.read(asked.__getitem__, NAMES).question
    assert isinstance(found, StepQuestion)
    return found


@pytest.mark.parametrize(
    ("cells", "gpus", "nodes", "parallel", "sums_in_fp32"),
    [
        ({}, 8, 1, "dp", False),
        ({"sync": "horovod", "n_gpus": "16", "n_nodes": "2"}, 16, 2, "dp", False),
        ({"sync": "horovod", "n_gpus": "4"}, 4, 1, "dp", False),
        ({"sync": "fsdp full_shard", "fsdp": "1", "tp": "1", "pp": "1"}, 8, 1, "fsdp", False),
        ({"sync": "fsdp full_shard", "fsdp": "1.0", "tp": "1.0", "n_gpus": "8.0"}, 8, 1, "fsdp", False),
        ({"sync": "fsdp full_shard; reduce fp32", "fsdp": "1"}, 8, 1, "fsdp", True),
        ({"n_gpus": "1", "sync": ""}, 1, 1, "dp", False),
        ({"n_gpus": "", "n_nodes": "", "sync": ""}, 1, 1, "dp", False),
        ({"n_gpus": "0"}, 1, 1, "dp", False),
    ],
)
def test_how_a_row_is_spread(cells: dict[str, str], gpus: int, nodes: int, parallel: str, sums_in_fp32: bool) -> None:
    question = read(**cells)
    assert (question.where, question.gpus) == (Where("dgx-a100-40gb", nodes), tuple(range(gpus)))
    assert (question.layout.words, question.sums_in_fp32) == (parallel, sums_in_fp32)


def test_ranks_are_the_first_gpus_of_each_node() -> None:
    assert read(n_gpus="4", n_nodes="2").gpus == (0, 1, 8, 9)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"sync": ""}, "more than one GPU, exchanged by ''"),
        ({"sync": "by hand"}, "exchanged by 'by hand'"),
        ({"tp": "3"}, "n_gpus 8: tp=3 takes 3 ranks or a multiple of them; 6 ranks would do"),
        ({"tp": "2", "dp": "3"}, "tp x pp x cp x dp is 6, and n_gpus 8"),
        ({"n_gpus": "9", "n_nodes": "2"}, "no multiple"),
        ({"n_gpus": "1.5"}, "n_gpus is not a whole number"),
        ({"tp": "two"}, "tp is not a number"),
        ({"n_gpus": "16"}, "more GPUs a node than dgx-a100-40gb has"),
    ],
)
def test_what_is_spread_otherwise_is_not_scored(cells: dict[str, str], message: str) -> None:
    with pytest.raises(NotScored, match=message):
        read(**cells)


def test_the_batch_of_all_is_divided_among_ranks_and_micro_batches() -> None:
    cells = {"batch_per_gpu": "", "grad_accum": "3"}
    assert read(**cells, global_batch="96").batch == 4
    with pytest.raises(NotScored, match="batch_per_gpu missing"):
        read(**cells, global_batch="100")


def test_a_row_over_eight_gpus_takes_longer_than_over_one() -> None:
    def predicted_s(**cells: str) -> float:
        return NAMES.session.time_s(read(**cells))

    one_s, eight_s = predicted_s(n_gpus="1"), predicted_s()
    assert one_s < eight_s < 1.5 * one_s
    shared = {"fsdp": "1", "sync": "fsdp full_shard"}
    assert predicted_s(**shared, grad_accum="2") > predicted_s(**shared)
