"""A step over several GPUs: what is exchanged, when it is hidden, and what rows say of it."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import load_machine, simulate_step
from simulator.step.issue import issues_of
from simulator.step.options import StepOptions
from simulator.step.place import find_place
from simulator.workload.network import Network, block_name
from simulator.workload.zoo.registry import build_network
from validate.score.machines import MachineBook
from validate.score.query import NotScored
from validate.training.copies import BUCKET_BYTES, exchange_on, step_of_copies
from validate.training.predict import StepPredictor
from validate.training.query import read_query
from validate.training.spread import Spread, read_spread

MACHINE = load_machine("dgx-a100-40gb")
DEVICE = find_place(MACHINE, None, {}).device
GPT = build_network("gpt2", batch=4, sequence_length=256, layers=4)
COPIES = Spread(8, 1, "all-reduce")
SHARES = Spread(8, 1, "shard")
HALF = StepOptions(precision="master-bf16", optimizer="adam")


class Told:
    """An exchange that takes *time_s* each, and remembers what was asked."""

    def __init__(self, time_s: float = 0.0) -> None:
        self.time_s = time_s
        self.sizes: dict[str, list[float]] = defaultdict(list)

    def __call__(self, collective: str, size_bytes: float) -> float:
        self.sizes[collective].append(size_bytes)
        return self.time_s

    @property
    def count(self) -> int:
        return sum(map(len, self.sizes.values()))


def elements(network: Network, *, outside: bool) -> int:
    """Parameters in repeated blocks, or outside of them, each once."""
    found = {p.name: (p.elements, block_name(layer.name)) for layer in network.layers for p in layer.parameters}
    return sum(n for n, block in found.values() if bool(block) != outside)


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "master-fp16"])
def test_where_exchange_is_free_a_copy_steps_as_one_gpu_does(precision: str) -> None:
    options = StepOptions(precision=precision, optimizer="adam")  # type: ignore[arg-type]
    alone = simulate_step(MACHINE, GPT, options).step_time_s
    assert step_of_copies(DEVICE, GPT, options, COPIES, Told()) == pytest.approx(alone, rel=1e-9)


def test_where_exchange_is_free_a_share_saves_the_update_of_the_others() -> None:
    options = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
    whole = step_of_copies(DEVICE, GPT, options, Spread(1, 1, "shard"), Told())
    share = step_of_copies(DEVICE, GPT, options, SHARES, Told())
    update_s = sum(issue.device_s for issue in issues_of(DEVICE, GPT, options) if issue.part == "update")
    assert whole - share <= update_s * 7 / 8 * (1 + 1e-9)
    assert share < whole


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("amp-fp16", 4), ("master-fp16", 2), ("fp16", 2)])
def test_all_gradients_are_exchanged_once_in_buckets(precision: str, size: int) -> None:
    told = Told()
    options = StepOptions(precision=precision, optimizer="adam")  # type: ignore[arg-type]
    step_of_copies(DEVICE, GPT, options, COPIES, told, micro_batches=3)
    assert list(told.sizes) == ["all-reduce"]
    sizes = told.sizes["all-reduce"]
    assert sum(sizes) == size * GPT.parameter_count
    assert all(each >= BUCKET_BYTES for each in sizes[:-1])
    assert len(sizes) > 2


@pytest.mark.parametrize("recompute", [False, True])
def test_shares_are_gathered_before_both_passes_and_scattered_once(recompute: bool) -> None:
    told = Told()
    options = StepOptions(precision="master-bf16", optimizer="adam", recompute=recompute)
    step_of_copies(DEVICE, GPT, options, Spread(8, 1, "shard", sums_in_fp32=True), told, micro_batches=2)
    inside, outside = elements(GPT, outside=False), elements(GPT, outside=True)
    assert inside + outside == GPT.parameter_count
    assert sum(told.sizes["all-gather"]) == 2 * 2 * (2 * inside + outside)
    assert sum(told.sizes["reduce-scatter"]) == 2 * 4 * (inside + outside)
    half = Told()
    step_of_copies(DEVICE, GPT, options, SHARES, half)
    assert sum(half.sizes["reduce-scatter"]) == 2 * GPT.parameter_count


@given(st.floats(0, 0.1), st.sampled_from([COPIES, SHARES]), st.integers(1, 3))
def test_exchange_is_hidden_at_best_and_comes_on_top_at_worst(time_s: float, spread: Spread, count: int) -> None:
    free_s = step_of_copies(DEVICE, GPT, HALF, spread, Told(), count)
    told = Told(time_s)
    step_s = step_of_copies(DEVICE, GPT, HALF, spread, told, count)
    exchanged_s = told.count * time_s
    assert max(free_s, exchanged_s) * (1 - 1e-9) <= step_s <= (free_s + exchanged_s) * (1 + 1e-9)


def test_buckets_of_all_but_the_end_of_the_backward_pass_are_hidden() -> None:
    told = Told(1e-5)
    free_s = step_of_copies(DEVICE, GPT, HALF, COPIES, Told())
    assert step_of_copies(DEVICE, GPT, HALF, COPIES, told) <= free_s + 1e-5 * (1 + 1e-9)
    assert told.count > 2


def test_what_is_exchanged_takes_what_nccl_takes_on_the_machine() -> None:
    one = exchange_on(MachineBook().get("dgx-a100-40gb", 1), COPIES)
    two = exchange_on(MachineBook().get("dgx-a100-40gb", 2), Spread(16, 2, "all-reduce"))
    ideal_s = 2 * 7 / 8 * 2**30 / 300e9  # six links each way, half of 600 GB/s
    assert ideal_s < one("all-reduce", 2.0**30) < 2 * ideal_s
    assert two("all-reduce", 2.0**30) > one("all-reduce", 2.0**30)


# -- rows ------------------------------------------------------------------------------

ROW = {"machine": "dgx-a100-40gb", "n_nodes": "1", "n_gpus": "8", "framework": "pytorch", "model": "gpt2",
       "seq_len": "256", "layers": "4", "dtype": "fp16", "batch_per_gpu": "4", "sync": "ddp"}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "spread"),
    [
        ({}, COPIES),
        ({"sync": "horovod", "n_gpus": "16", "n_nodes": "2"}, Spread(16, 2, "all-reduce")),
        ({"sync": "fsdp full_shard", "fsdp": "1", "tp": "1", "pp": "1"}, SHARES),
        ({"sync": "fsdp full_shard", "fsdp": "1.0", "tp": "1.0", "n_gpus": "8.0"}, SHARES),
        ({"sync": "fsdp full_shard; reduce fp32", "fsdp": "1"}, Spread(8, 1, "shard", sums_in_fp32=True)),
        ({"n_gpus": "1", "sync": ""}, None),
        ({"n_gpus": "", "n_nodes": "", "sync": ""}, None),
        ({"n_gpus": "0"}, None),
    ],
)
def test_how_a_row_is_spread(cells: dict[str, str], spread: Spread | None) -> None:
    row = {**ROW, **cells}
    assert read_spread(lambda column: row.get(column, "")) == spread


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"sync": ""}, "more than one GPU, exchanged by ''"),
        ({"sync": "parameter_server/cpu"}, "exchanged by 'parameter_server/cpu'"),
        ({"tp": "2", "cp": "4"}, r"divided among GPUs \(tp, cp\)"),
        ({"fsdp": "1", "pp": "2"}, r"divided among GPUs \(pp\)"),
        ({"n_gpus": "9", "n_nodes": "2"}, "no multiple"),
        ({"n_gpus": "1.5"}, "n_gpus is no whole number"),
        ({"tp": "two"}, "tp is no number"),
    ],
)
def test_what_is_spread_otherwise_is_not_scored(cells: dict[str, str], message: str) -> None:
    row = {**ROW, **cells}
    with pytest.raises(NotScored, match=message):
        read_spread(lambda column: row.get(column, ""))


def test_the_batch_of_all_is_divided_among_ranks_and_micro_batches() -> None:
    row = {**ROW, "batch_per_gpu": "", "global_batch": "96", "grad_accum": "3"}
    assert read_query(lambda column: row.get(column, "")).batch == 4
    row["global_batch"] = "100"
    with pytest.raises(NotScored, match="batch_per_gpu missing"):
        read_query(lambda column: row.get(column, ""))


def test_a_row_over_eight_gpus_takes_longer_than_over_one() -> None:
    predictor = StepPredictor(MachineBook(), {})

    def predicted(**cells: str) -> float:
        row = {**ROW, **cells}
        return predictor.predict_s(read_query(lambda column: row.get(column, "")))

    one_s, eight_s = predicted(n_gpus="1"), predicted()
    assert one_s < eight_s < 1.5 * one_s
    shared = {"fsdp": "1", "sync": "fsdp full_shard"}
    assert predicted(**shared, grad_accum="2") > predicted(**shared)


def test_what_runs_forward_again_leaves_no_gradients() -> None:
    """Where exchange takes for ever, a step is that and what comes before the first bucket of two blocks."""
    network = build_network("gpt2", batch=16, sequence_length=512, layers=4)
    told = Told(10.0)

    def first_s(recompute: bool) -> float:
        options = StepOptions(precision="master-bf16", optimizer="none", recompute=recompute)
        told.sizes.clear()
        return step_of_copies(DEVICE, network, options, COPIES, told) - told.count * told.time_s

    forward = [i for i in issues_of(DEVICE, network, HALF) if i.part == "forward" and i.name.startswith("layers.3.")]
    block_s = sum(issue.device_s for issue in forward)
    assert first_s(True) - first_s(False) == pytest.approx(2 * block_s, rel=0.02)
