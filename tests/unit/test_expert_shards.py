"""Sharding of parameters that all ranks share, and of experts that fewer ranks hold; of optimiser and gradients."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator
from simulator.errors import InputError
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.results.training import TrainingResult
from simulator.training import divided
from simulator.training.placement import Placement
from simulator.workload.operators import Exchange, GroupedLinear
from simulator.workload.operators.grouped import largest_of
from simulator.workload.split.experts import expert_parameters
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-a100-40gb")
NODES = load_machine("dgx-a100-40gb", n_nodes=2)
MIXTRAL = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=512, layers=1)
LLAMA = build_network("llama3-8b", batch=1, loss=True, sequence_length=512, layers=2)
HALF = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)


def step_of(words: str, machine=MACHINE, network=MIXTRAL, **asked) -> TrainingResult:
    return step_on(machine, network, HALF, layout=parse_layout(words), **asked)


def kept(words: str, n_ranks: int) -> float:
    """Return the number of parameters whose shard a rank updates, counted by name."""
    layout = parse_layout(words).on(n_ranks)
    own = divided(MIXTRAL, layout)
    names = expert_parameters(own)
    experts = sum(p.elements for p in own.parameters if p.name in names)
    return (own.parameter_count - experts) / n_ranks + experts / (n_ranks // layout.ep)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "machine"), [("ep=8,zero=1", MACHINE), ("ep=8,fsdp", NODES), ("ep=4,zero=2", NODES)])
def test_a_rank_keeps_a_shard_of_its_own_experts_alone(words: str, machine) -> None:
    need = step_of(words, machine).tightest.need
    n_ranks = 8 if machine is MACHINE else 16
    assert need.optimizer_bytes == pytest.approx(8 * kept(words, n_ranks))


def test_experts_of_which_a_rank_has_all_are_not_exchanged_by_shards() -> None:
    layout = parse_layout("ep=8").on(8)
    own = divided(MIXTRAL, layout)
    names = expert_parameters(own)
    shared = sum(p.elements for p in own.parameters if p.name not in names)
    for words in ("ep=8,zero=1", "ep=8,zero=2", "ep=8,fsdp"):
        n_bytes = exchanged(step_of(words))
        assert n_bytes["reduce-scatter"] == 2 * shared
        assert n_bytes["all-gather"] == 2 * shared if "fsdp" not in words else n_bytes["all-gather"] < 4 * shared


def exchanged(result: TrainingResult) -> dict[str, float]:
    found = dict.fromkeys(("all-reduce", "reduce-scatter", "all-gather"), 0.0)
    for task in result.timeline.plan.tasks:
        if getattr(task.about, "op", "") in found:
            found[task.about.op] += task.about.size_bytes
    return found


@pytest.mark.parametrize(("shards", "size", "replicas"), [(16, 4, 1), (8, 2, 2), (4, 1, 4), (2, 1, 4)])
def test_those_with_the_same_experts_share_them(shards: int, size: int, replicas: int) -> None:
    layout = Layout(ep=4, zero=1, shards=shards).on(16)
    placement = Placement(Communicator(NODES, range(16)), layout)
    assert placement.shard_groups(0, experts=True)[0].n_ranks == size
    assert placement.replica_groups(0, experts=True)[0].n_ranks == replicas
    for groups in (placement.shard_groups, placement.replica_groups):
        for bundle in groups(0, experts=True):
            for group in bundle.groups:
                assert len({rank % 4 for rank in group.ranks}) == 1  # with the same experts


def test_shards_that_cut_through_experts_are_refused() -> None:
    with pytest.raises(InputError, match="shards=6 with ep=4: one is a multiple of the other"):
        Layout(ep=4, zero=1, shards=6).on(12)


# -- shards of gradients -------------------------------------------------------------


@pytest.mark.parametrize("words", ["{}", "pp=2,{}"])
def test_shards_of_gradients_are_scattered_in_every_micro_batch(words: str) -> None:
    once, each = (
        exchanged(step_of(words.format(f"zero={zero}"), network=LLAMA, micro_batches=2, bucket_bytes=25 * 2**20))
        for zero in (1, 2)
    )
    assert each["reduce-scatter"] == pytest.approx(2 * once["reduce-scatter"])
    assert each["all-gather"] == once["all-gather"]


@pytest.mark.slow
def test_shards_of_gradients_need_a_share_of_them_and_a_bucket() -> None:
    autocast = StepOptions(precision="amp-bf16", optimizer="adam", fused_optimizer=True)
    first, second = (
        step_on(MACHINE, LLAMA, autocast, layout=Layout(zero=zero), bucket_bytes=25 * 2**20).tightest.need.total_bytes
        for zero in (1, 2)
    )
    n_bytes = 4 * LLAMA.trained_count
    bucket = 25 * 2**20 + 4 * max(p.elements for p in LLAMA.parameters)
    # With ZeRO-1 all gradients exist twice at the peak; with ZeRO-2 the peak is at another moment.
    assert 2 * n_bytes - n_bytes / 8 - bucket >= first - second > 0.5 * n_bytes


def test_with_unbalanced_routing_each_rank_is_the_busiest() -> None:
    sizes = {"batch": 1, "layers": 1, "sequence_length": 1024}
    even, uneven = (
        divided(build_network("qwen3-30b-a3b", imbalance=percent, **sizes), parse_layout("ep=8").on(8))
        for percent in (0, 40)
    )
    share = 1 + 0.4 / 4 * largest_of(8)  # 16 experts a rank
    for before, after in zip(even.layers, uneven.layers, strict=True):
        if isinstance(before.operator, GroupedLinear) and isinstance(after.operator, GroupedLinear):
            assert after.operator.rows == pytest.approx(share * before.operator.rows, rel=1e-4)
            assert after.operator.most_rows > after.operator.rows / 16
        elif isinstance(before.operator, Exchange) and isinstance(after.operator, Exchange):
            assert after.operator.elements == pytest.approx(share * before.operator.elements, rel=1e-4)
        else:
            assert (
                before.part == "experts" and before.name.endswith(("silu", "mul"))
            ) or before.operator == after.operator
    assert largest_of(1) == pytest.approx(0.0)
    assert largest_of(2) == pytest.approx(0.564, rel=0.05)
