"""How ranks divide a step: parsing layouts, placing ranks, and each rank's computation, memory and exchanges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import Session, load_machine
from simulator.collectives.communicator import Communicator
from simulator.errors import InputError
from simulator.places import Places
from simulator.questions.layout import AXES, FSDP, REPLICAS, Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.step.issue import launches_of
from simulator.training import divided
from simulator.training.placement import Placement
from simulator.training.roles import alone_s_of
from simulator.workload.network import Network, block_name
from simulator.workload.operators import Attention, Exchange, LayerNorm
from simulator.workload.split.context import context_split
from simulator.workload.split.experts import expert_split
from simulator.workload.split.stages import stages_of
from simulator.workload.split.tensor import tensor_split
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on
from validate.tables.names import RowNames

pytestmark = pytest.mark.usefixtures("answered_once")

MACHINE = load_machine("dgx-a100-40gb")
BATCH, LENGTH, HIDDEN, LAYERS = 2, 512, 1024, 4
GPT = build_network(
    "gpt", batch=BATCH, loss=True, sequence_length=LENGTH, hidden=HIDDEN, heads=16, layers=LAYERS, vocabulary=51200
)
LLAMA = build_network("llama3-8b", batch=BATCH, loss=True, sequence_length=LENGTH, layers=LAYERS)
MIXTRAL = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=LENGTH, layers=2)
HALF = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)


# -- words ---------------------------------------------------------------------------

LAYOUTS = [
    ("dp", REPLICAS),
    ("fsdp", FSDP),
    ("fsdp=8", Layout(zero=3, shards=8)),
    ("tp=8,pp=4,dp=2", Layout(tp=8, pp=4, dp=2)),
    ("tp=2,sp,pp=4,vp=2,zero=1", Layout(tp=2, sp=True, pp=4, vp=2, zero=1)),
    ("tp=2,sp,tp_overlap", Layout(tp=2, sp=True, tp_overlap=True)),
    ("tp=2,cp=2,ep=4,order=pp-dp-cp-tp", Layout(tp=2, cp=2, ep=4, order=("pp", "dp", "cp", "tp"))),
    ("pp=2,schedule=zero-bubble", Layout(pp=2, schedule="zero-bubble")),
]


@pytest.mark.parametrize(("text", "layout"), LAYOUTS)
def test_a_layout_is_read_and_said(text: str, layout: Layout) -> None:
    assert parse_layout(text) == layout
    assert parse_layout(layout.words) == layout


MISTAKES = {
    "tp": "--parallel tp: tp is a whole number, 1 to 1000000",
    "tp=0": "--parallel tp=0: tp is a whole number, 1 to 1000000",
    "zero=4": "--parallel zero=4: zero is a whole number, 0 to 3",
    "fdsp": "--parallel fdsp: 'fdsp' is none of its items; did you mean 'fsdp'?",
    "tp=2,tp=4": "--parallel tp=2,tp=4: tp is given twice",
    "cp_comm=a2a": "--parallel cp_comm=a2a: cp_comm is what ranks that split a sequence exchange; add cp=2 or more",
    "cp=2,cp_comm=ring": "--parallel cp=2,cp_comm=ring: cp_comm 'ring'; allowed: a2a, all_gather, p2p",
    "tp=2,tp_overlap": "--parallel tp=2,tp_overlap: tp_overlap overlaps what sp gathers and scatters; add sp",
    "sp": "--parallel sp: sp splits what tp leaves whole; add tp=2 or more",
    "vp=2": "--parallel vp=2: vp, blocks and schedule apply to a pipeline; add pp=2 or more",
    "pp=2,schedule=1f": "--parallel pp=2,schedule=1f: schedule '1f'; did you mean '1f1b'?",
    "order=tp-pp": "--parallel order=tp-pp: order names tp, cp, dp, pp each once, nearest ranks first: tp-cp-dp-pp",
    "pp=2,vp=2,schedule=gpipe": "--parallel pp=2,vp=2,schedule=gpipe: vp=2 goes with schedule=1f1b",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_names_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_layout(text)
    assert raised.value.spelt("command") == MISTAKES[text]


NUMBERS = {
    "tp=3": "--parallel: tp=3 takes 3 ranks or a multiple of them; 6 ranks would do",
    "tp=16": "--parallel: tp=16 takes 16 ranks or a multiple of them; there are 8",
    "tp=2,dp=2": "--parallel: tp=2 x dp=2 is 4 ranks, and 8 take part; dp=4 would do",
    "ep=3": "--parallel: ep=3 does not divide the 8 ranks of cp x dp; 1, 2, 4, 8",
    "zero=1,shards=3": "--parallel: shards=3: 8 ranks have the same parameters; 1, 2, 4, 8 would do",
}


@pytest.mark.parametrize("text", NUMBERS)
def test_degrees_that_do_not_multiply_are_told_with_what_would_do(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_layout(text).on(8)
    assert raised.value.spelt("command") == NUMBERS[text]


# -- where ranks are -----------------------------------------------------------------

DEGREES = st.sampled_from([1, 2, 4])


@pytest.mark.slow
@given(DEGREES, DEGREES, DEGREES, st.permutations(AXES))
def test_groups_of_each_axis_hold_every_rank_once(tp: int, cp: int, pp: int, order: list[Any]) -> None:
    machine = load_machine("dgx-a100-40gb", n_nodes=8)
    group = Communicator(machine, machine.gpus)
    layout = Layout(tp=tp, cp=cp, pp=pp, order=tuple(order)).on(64)
    placement = Placement(group, layout)
    ranks = {placement.rank(tp=t, cp=c, dp=d, pp=p) for t, c, d, p in product(*map(range, (tp, cp, layout.dp, pp)))}  # type: ignore[arg-type]
    assert ranks == set(range(64))
    for axis, size in (("tp", tp), ("cp", cp)):
        bundles = placement.layer_groups(axis)  # type: ignore[arg-type]
        assert {bundle.n_ranks for bundle in bundles} == {size}
        for bundle in bundles:
            nodes = [node for part in bundle.groups for node in part.ranks]
            assert len(nodes) == len(set(nodes))
    for stage in range(pp):
        (bundle, *_) = placement.data_groups(stage)
        assert bundle.n_ranks == 64 // (tp * pp)


def test_groups_that_share_a_machine_exchange_together_and_alike_ones_once() -> None:
    machine = load_machine("dgx-a100-40gb", n_nodes=4)
    placement = Placement(Communicator(machine, machine.gpus), Layout(tp=4, pp=2).on(32))
    (inside,) = placement.layer_groups("tp")  # two groups per node, on each of four nodes
    assert [len(part.ranks) for part in inside.groups] == [4, 4]
    (across,) = placement.data_groups(0)  # four groups of four ranks over two nodes
    assert [part.n_ranks for part in across.groups] == [4, 4, 4, 4]


def test_a_group_over_machines_takes_longer_than_one_within() -> None:
    machine = load_machine("dgx-a100-40gb", n_nodes=2)
    near, far = (
        step_on(
            machine, LLAMA, replace(HALF, mode="forward", fused_optimizer=False), layout=Layout(tp=8, order=order)
        ).step_time_s  # type: ignore[arg-type]
        for order in (("tp", "cp", "dp", "pp"), ("dp", "cp", "tp", "pp"))
    )
    assert far > 1.05 * near


# -- computation of each rank --------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("network", [GPT, LLAMA], ids=["gpt", "llama"])
def test_tensor_parallel_ranks_share_products_and_exchange_twice_a_block(
    network: Network, ranks: int, by_rows: bool
) -> None:
    part = tensor_split(network, ranks, by_rows)
    assert part.flop * ranks == network.flop
    replicated = sum(p.elements for p in network.parameters if "norm" in p.name or "positions" in p.name)
    replicated += sum(p.elements for p in network.parameters if p.name.endswith(("out.bias", "down.bias")))
    assert ranks * (part.parameter_count - replicated) == network.parameter_count - replicated
    inside = [
        layer.operator for layer in part.layers if block_name(layer.name) and isinstance(layer.operator, Exchange)
    ]
    forward, backward = (Counter(getattr(e, way) for e in inside) for way in ("forward", "backward"))
    tokens = network.tokens * (HIDDEN if network is GPT else 4096)
    assert {e.elements for e in inside} == {tokens}
    if by_rows:
        both = {"all-gather": 2 * LAYERS, "reduce-scatter": 2 * LAYERS}
        assert (forward, backward) == (both, both)
    else:
        assert (forward["all-reduce"], backward["all-reduce"]) == (2 * LAYERS, 2 * LAYERS)


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50"])
def test_convolutions_are_divided_without_being_named(name: str) -> None:
    network = build_network(name, batch=4, loss=True)
    part = tensor_split(network, 4)
    assert part.flop * 4 == network.flop
    assert part.parameter_count < 0.26 * network.parameter_count


def test_heads_that_do_not_share_out_are_told() -> None:
    with pytest.raises(InputError, match=r"tp=3 does not divide the 16 heads .*; 1, 2, 4, 8, 16$|tp=3 does not divide"):
        tensor_split(GPT, 3)
    with pytest.raises(InputError, match=r"tp=16 does not divide the 8 heads of keys and values"):
        tensor_split(build_network("llama3-8b", batch=1, sequence_length=64, layers=1), 16)


@pytest.mark.parametrize("ranks", [2, 4])
def test_context_parallel_ranks_share_each_sequence_and_pass_keys_round(ranks: int) -> None:
    part = context_split(LLAMA, ranks)
    assert part.flop * ranks == pytest.approx(LLAMA.flop, rel=0.25)  # masked work is counted, but not computed
    rings = [layer.operator for layer in part.layers if isinstance(layer.operator, Exchange)]
    assert len(rings) == LAYERS * (ranks - 1)
    assert {e.elements for e in rings} == {2 * BATCH * 8 * LENGTH // ranks * 128}
    assert part.parameter_count == LLAMA.parameter_count
    with pytest.raises(InputError, match="attention=fused"):
        context_split(build_network("gpt2", batch=1, attention="eager", sequence_length=64), 2)


def sent_of_context(comm: str, ranks: int) -> list[tuple[str | None, str | None, int]]:
    part = context_split(LLAMA, ranks, comm)
    assert part.parameter_count == LLAMA.parameter_count
    found = [layer.operator for layer in part.layers if isinstance(layer.operator, Exchange)]
    return [(each.forward, each.backward, each.elements) for each in found]


@pytest.mark.parametrize("ranks", [2, 4])
def test_heads_may_be_exchanged_for_whole_sequences(ranks: int) -> None:
    queries, keys = (BATCH * heads * LENGTH // ranks * 128 for heads in (32, 2 * 8))
    ways = ("all-to-all", "all-to-all")
    assert sent_of_context("a2a", ranks) == [(*ways, queries), (*ways, keys), (*ways, queries)] * LAYERS
    part = context_split(LLAMA, ranks, "a2a")
    assert part.flop * ranks == LLAMA.flop  # nothing is computed twice
    assert {layer.operator.heads for layer in part.layers if isinstance(layer.operator, Attention)} == {32 // ranks}
    with pytest.raises(InputError, match=r"cp_comm=a2a: cp=16 does not divide the 8 heads of keys of .*; 1, 2, 4, 8"):
        context_split(LLAMA, 16, "a2a")


@pytest.mark.parametrize("ranks", [2, 4])
def test_keys_of_the_whole_sequence_may_be_gathered(ranks: int) -> None:
    """A rank's two chunks see half of all keys on average, as many as in a ring."""
    whole = 2 * BATCH * 8 * LENGTH * 128
    assert sent_of_context("all_gather", ranks) == [("all-gather", "reduce-scatter", whole)] * LAYERS
    pairs = {
        comm: sum(
            layer.operator.query_length * layer.operator.key_length / (1 + layer.operator.causal)
            for layer in context_split(LLAMA, ranks, comm).layers
            if isinstance(layer.operator, Attention)
        )
        for comm in ("p2p", "all_gather")
    }
    assert pairs["all_gather"] == pairs["p2p"] == LAYERS * LENGTH * LENGTH / (2 * ranks)


def test_experts_are_divided_and_tokens_sent_to_them_and_back() -> None:
    part = expert_split(MIXTRAL, 4)
    sent = [layer.operator for layer in part.layers if isinstance(layer.operator, Exchange)]
    assert [e.forward for e in sent] == ["all-to-all"] * 4  # two per layer
    assert {e.elements for e in sent} == {LENGTH * 2 * 4096}
    assert part.flop == MIXTRAL.flop  # as many rows, of fewer experts
    of_experts = sum(p.elements for p in MIXTRAL.parameters if "experts_" in p.name)
    assert part.parameter_count == MIXTRAL.parameter_count - of_experts * 3 // 4
    with pytest.raises(InputError, match=r"ep=3 does not divide the 8 experts of .*; 1, 2, 4, 8"):
        expert_split(MIXTRAL, 3)
    with pytest.raises(InputError, match=r"ep=2: gpt has no experts"):
        expert_split(GPT, 2)


@given(st.integers(1, LAYERS))
def test_stages_are_the_network_in_order(count: int) -> None:
    stages = stages_of(GPT, count)
    assert [layer for stage in stages for layer in stage.network.layers] == list(GPT.layers)
    assert stages[0].received_elements == 0
    assert {stage.received_elements for stage in stages[1:]} <= {BATCH * LENGTH * HIDDEN}


def test_equal_blocks_are_shared_out_evenly_and_others_by_their_weight() -> None:
    blocks = [len({block_name(layer.name) for layer in stage.network.layers} - {""}) for stage in stages_of(GPT, 2)]
    assert blocks == [2, 2]
    flop = [stage.network.flop for stage in stages_of(build_network("vgg16", batch=1), 4)]
    assert max(flop) < 0.4 * sum(flop)
    with pytest.raises(InputError, match="has 4 blocks; pp x vp is at most that, not 5"):
        stages_of(GPT, 5)


def test_of_two_parts_more_than_blocks_the_first_embeds_and_the_last_predicts() -> None:
    first, *between, last = stages_of(GPT, 6)
    assert [{block_name(layer.name) for layer in part.network.layers} for part in (first, last)] == [{""}, {""}]
    assert [len({block_name(layer.name) for layer in part.network.layers}) for part in between] == [1] * 4
    assert [layer for part in (first, *between, last) for layer in part.network.layers] == list(GPT.layers)
    with pytest.raises(InputError, match="has 4 blocks; pp x vp is at most that, not 7"):
        stages_of(GPT, 7)


def test_a_tied_embedding_is_in_the_first_stage_and_the_last() -> None:
    first, *_, last = stages_of(GPT, 4)
    assert first.shared_elements == last.shared_elements == 51200 * HIDDEN


# -- the whole step ------------------------------------------------------------------


def step_s(layout: Layout, network: Network = GPT, **asked: Any) -> float:
    return step_on(MACHINE, network, HALF, layout=layout, **asked).step_time_s


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["tp=8", "tp=4,sp", "cp=2,tp=2", "tp=2,zero=1", "zero=2,shards=4", "tp=2,fsdp", "fsdp=4"]
)
def test_one_role_stands_for_all_ranks(words: str) -> None:
    layout = parse_layout(words)
    folded, whole = (step_s(layout, LLAMA, fold=fold) for fold in (True, False))
    assert folded == pytest.approx(whole, rel=1e-9)


def test_tokens_that_do_not_divide_are_refused_with_what_does() -> None:
    question = StepQuestion(
        where=Where("p3.8xlarge"),
        workload="gpt2",
        batch=1,
        sizes=(("sequence_length", 2),),
        layout=parse_layout("tp=4,sp"),
    )
    with pytest.raises(InputError, match=r"sp: tp=4 does not divide the 2 tokens of gpt2; 1, 2$"):
        Session().step(question)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["tp=2", "tp=2,sp", "cp=2,zero=1", "pp=2", "zero=1", "zero=2", "fsdp=4", "tp=2,pp=2,zero=1"]
)
def test_every_layout_names_its_ways_and_fits_in_less_memory(words: str) -> None:
    whole = step_on(MACHINE, LLAMA, HALF)
    result = step_on(MACHINE, LLAMA, HALF, layout=parse_layout(words))
    assert result.samples == BATCH * 8 // parse_layout(words).model_ranks
    assert result.tightest.need.total_bytes < whole.tightest.need.total_bytes
    # Ranks that shard the optimiser's state share an update that each device alone does whole.
    passes = replace(result.question, options=replace(HALF, mode="backward", optimizer="none", fused_optimizer=False))
    device = Places(MACHINE).gpu(0)
    alone_s, passes_s = (alone_s_of(device, LLAMA, asked) for asked in (result.question, passes))
    assert 0.05 < result.scaling_efficiency <= (alone_s / passes_s if result.question.layout.zero else 1.0)
    assert result.step.parameter_count == LLAMA.parameter_count
    assert result.step.tokens == LLAMA.tokens


def test_shards_of_the_optimiser_exchange_what_replicas_do() -> None:
    replicas, shards = (step_on(MACHINE, LLAMA, HALF, layout=Layout(zero=zero), bucket_bytes=0.0) for zero in (0, 1))
    n_bytes = {
        op: sum(t.about.size_bytes for t in result.timeline.plan.tasks if getattr(t.about, "op", "") == op)
        for result in (replicas, shards)
        for op in ("all-reduce", "reduce-scatter", "all-gather")
    }
    assert n_bytes["reduce-scatter"] == n_bytes["all-gather"] == 2 * LLAMA.parameter_count
    assert updating_s(shards) == pytest.approx(updating_s(replicas) / 8, rel=0.05)


def test_parameters_are_gathered_ahead_or_after_the_update() -> None:
    ahead, after = (
        step_on(MACHINE, LLAMA, HALF, layout=Layout(zero=1), prefetches=prefetches, contention=False)
        for prefetches in (True, False)
    )
    plans = [[task for task in result.timeline.plan.tasks if task.label == "all-gather"] for result in (ahead, after)]
    assert len(plans[0]) > 1
    (last,) = plans[1]
    span = after.timeline.spans[after.timeline.plan.tasks.index(last)]
    assert span.end_s == pytest.approx(after.step_time_s)
    gathered_s = span.end_s - span.start_s
    assert 0 < after.step_time_s - ahead.step_time_s <= gathered_s * (1 + 1e-9)
    assert after.exposed_s >= gathered_s * (1 - 1e-9)


def updating_s(result: TrainingResult) -> float:
    """Return the time in which the device updates parameters, in seconds."""
    tasks = zip(result.timeline.plan.tasks, result.timeline.spans, strict=True)
    mine = [(task, span) for task, span in tasks if task.stream == "compute" and task.about.issue.part == "update"]
    return sum(span.end_s - span.start_s for _, span in mine)


def test_dividing_is_composed() -> None:
    layout = parse_layout("tp=2,cp=2").on(8)
    assert divided(LLAMA, layout).flop * 4 == pytest.approx(LLAMA.flop, rel=0.2)
    assert divided(LLAMA, REPLICAS.on(8)) is LLAMA


@pytest.mark.slow
@pytest.mark.parametrize("words", ["cp=2", "cp=4", "tp=2", "pp=2", "cp=2,pp=2"])
def test_utilisation_is_as_many_sequences_a_second_whoever_computes_them(words: str) -> None:
    layout = parse_layout(words)
    whole, parts = (step_on(MACHINE, LLAMA, HALF, layout=way) for way in (REPLICAS, layout))
    assert parts.step.torch_flop * layout.model_ranks == pytest.approx(whole.step.torch_flop)


@pytest.mark.parametrize("words", ["pp=2,zero=1", "pp=2,zero=2", "pp=4,tp=2", "pp=2,vp=2,zero=1"])
def test_kernels_of_a_stage_take_no_longer_than_it_computes(words: str) -> None:
    step = step_on(MACHINE, LLAMA, HALF, layout=parse_layout(words), micro_batches=2).step
    assert sum(kind.time_s for kind in step.kinds) <= step.busy_s
    assert sum(layer.time_s for layer in step.layers) <= step.busy_s
    updating_s = sum(kind.parts_s.get("update", 0.0) for kind in step.kinds)
    assert updating_s == pytest.approx(step.parts_s["update"], rel=0.1)


def test_columns_of_a_table_are_a_layout() -> None:
    from validate.kinds.steps import ranks_and_layout

    row = {"n_gpus": "16", "n_nodes": "2", "tp": "4", "pp": "2", "dp": "2", "sp": "1", "zero": "1"}
    assert ranks_and_layout(lambda column: row.get(column, "")) == (16, 2, Layout(tp=4, pp=2, sp=True, zero=1))
    assert RowNames()  # the tables' column names are those of the layout's fields


def test_exchanges_pass_beside_the_products_that_read_and_write_them() -> None:
    def seconds(words: str, network: Network, n: int) -> float:
        layout, gpus = parse_layout(words), tuple(range(n))
        return step_s(layout, network, gpus=gpus, contention=False)

    def computed_s(network: Network, n: int) -> float:
        part = divided(network, parse_layout(f"tp={n},sp").on(n))
        return sum(issue.device_s for issue in launches_of(Places(MACHINE).gpu(MACHINE.gpus[0]), part, HALF))

    # With large products little stays exposed: the ends, which no product hides, and a part of each exchange.
    sizes = {"sequence_length": 2048, "hidden": 8192, "heads": 64, "layers": 2, "vocabulary": 1024}
    wide = build_network("gpt", batch=4, loss=True, **sizes)  # type: ignore[arg-type]
    least = computed_s(wide, 2)
    beside, apart = seconds("tp=2,sp,tp_overlap", wide, 2), seconds("tp=2,sp", wide, 2)
    assert least < beside < least + 0.7 * (apart - least)


def test_vocabularies_of_megatron_are_whole_on_each_rank() -> None:
    def words(framework: str, tp: int) -> int:
        options = replace(HALF, framework=framework)  # type: ignore[type-var]
        question = StepQuestion(
            where=Where("dgx-a100-40gb"), workload="gpt3-1.3b", batch=1, options=options, layout=Layout(tp=tp)
        )
        network = Session().network(question)
        return next(x.operator.outputs for x in network.layers if x.name == "lm_head")  # type: ignore[union-attr]

    assert words("pytorch", 8) == 50257
    assert words("megatron", 1) == 50304
    assert words("megatron", 8) == 51200


def test_a_weight_that_all_heads_share_is_whole_on_each_rank() -> None:
    network = build_network("qwen3-30b-a3b", batch=1, layers=1)
    part = tensor_split(network, 4)
    for name in ("layers.0.norm_q.weight", "layers.0.norm_k.weight"):
        assert [p.elements for p in part.parameters if p.name == name] == [128]
    rows = {layer.name: layer.operator.rows for layer in part.layers if isinstance(layer.operator, LayerNorm)}
    assert rows["layers.0.norm_q"] * 4 == 32 * network.tokens
