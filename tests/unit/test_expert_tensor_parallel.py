"""Experts split by tensor parallelism: the ranks that split them, and each rank's computation, memory and exchanges."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.training import divided
from simulator.training.placement import Placement
from simulator.workload.operators import Exchange, Linear
from simulator.workload.split.experts import expert_parameters
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-a100-40gb")
NODES = load_machine("dgx-a100-40gb", n_nodes=2)
TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 512, 4096, 14336, 8, 2
MIXTRAL = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=TOKENS, layers=1)
OF_EXPERTS = EXPERTS * 3 * HIDDEN * INNER
HALF = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
WORDS = ["tp=2,sp,ep=4", "tp=2,sp,ep=8,etp=1", "tp=4,sp,ep=4,etp=2", "tp=2,ep=4", "tp=2", "ep=4,etp=2", "tp=2,sp,etp=4"]


def layout_of(words: str, n_ranks: int = 8) -> Layout:
    return parse_layout(words).on(n_ranks)


# -- computation and memory of a rank ------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
def test_a_rank_holds_its_part_of_its_experts_and_all_ranks_compute_all(words: str) -> None:
    layout = layout_of(words)
    own = divided(MIXTRAL, layout)
    names = expert_parameters(own)
    assert sum(p.elements for p in own.parameters if p.name in names) == OF_EXPERTS // (layout.ep * layout.expert_tp)
    flop = sum(layer.operator.flop for layer in own.layers if layer.part == "experts" and _is_product(layer.operator))
    assert flop == 2 * CHOSEN * TOKENS * 3 * HIDDEN * INNER // layout.tp  # each replica of tp ranks has its own tokens
    for layer in own.layers:
        assert own.elements[layer.output] == layer.operator.output_elements or layer.part != "experts"


def _is_product(operator: object) -> bool:
    return isinstance(operator, Linear)


@pytest.mark.parametrize("words", WORDS)
def test_what_is_exchanged_follows_from_degrees(words: str) -> None:
    layout = layout_of(words)
    own = divided(MIXTRAL, layout)
    sent = [layer.operator for layer in own.layers if layer.part == "experts" and isinstance(layer.operator, Exchange)]
    rows = CHOSEN * TOKENS // (layout.tp if layout.sp else 1)  # rows of token copies per rank
    found = Counter((e.axis, e.forward, e.backward, e.elements) for e in sent)
    expected: Counter[object] = Counter()
    if layout.ep > 1:
        expected["ep", "all-to-all", "all-to-all", rows * HIDDEN] = 2
    if layout.expert_tp > 1 and (layout.sp or layout.tp == 1):
        expected["etp", "all-gather", "reduce-scatter", layout.expert_tp * rows * HIDDEN] = 1
        expected["etp", "reduce-scatter", "all-gather", layout.expert_tp * rows * HIDDEN] = 1
    elif layout.expert_tp > 1:
        expected["etp", None, "all-reduce", rows * HIDDEN] = 1
        expected["etp", "all-reduce", None, rows * HIDDEN] = 1
    assert found == expected


@pytest.mark.slow
def test_optimisers_share_experts_among_those_that_hold_the_same_part() -> None:
    for words, n_ranks in (("tp=2,sp,ep=8,etp=1,zero=1", 16), ("tp=2,sp,ep=4,zero=1", 16), ("tp=4,sp,etp=1,zero=1", 8)):
        layout = layout_of(words, n_ranks)
        own = divided(MIXTRAL, layout)
        names = expert_parameters(own)
        experts = sum(p.elements for p in own.parameters if p.name in names)
        shared = (own.parameter_count - experts) / (n_ranks // layout.tp)
        kept = shared + experts / (n_ranks // (layout.ep * layout.expert_tp))
        machine = MACHINE if n_ranks == 8 else NODES
        need = step_on(machine, MIXTRAL, HALF, layout=parse_layout(words)).tightest.need
        assert need.optimizer_bytes == pytest.approx(8 * kept)


# -- choice of ranks -----------------------------------------------------------------


def groups(bundles: list) -> list[list[int]]:
    return sorted(sorted(part.ranks) for bundle in bundles for part in bundle.groups)


def test_experts_lie_across_tensor_parallel_ranks() -> None:
    machine = load_machine("dgx-a100-40gb")
    group = Communicator(machine, machine.gpus)
    first = group.ranks[0]

    def of(words: str, find: str, *stage: int, **what: bool) -> list[list[int]]:
        bundles = getattr(Placement(group, layout_of(words)), find)(*stage, **what)
        return [[rank - first for rank in ranks] for ranks in groups(bundles)]

    assert of("tp=2,sp,ep=8,etp=1", "expert_groups") == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert of("tp=2,sp,ep=4", "expert_groups") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert of("tp=2,sp,ep=2,etp=1", "data_groups", 0, experts=True) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert of("tp=2,sp,ep=2", "data_groups", 0, experts=True) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert of("tp=4,sp,ep=2,etp=2", "split_expert_groups") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert of("tp=2,pp=2,sp,ep=4,etp=1", "expert_groups") == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("tp=2,ep=4,etp=1", "etp=1 with tp=2 takes ranks of tp with tokens of their own; say sp, or etp=2"),
        ("tp=2,sp,etp=3", "etp=3 does not divide the 8 ranks of a stage; 1, 2, 4, 8"),
        ("tp=2,sp,ep=8", "ep=8 does not divide the 4 ranks of cp x dp; 1, 2, 4"),
        ("tp=4,sp,ep=8,etp=2", "ep=8 does not divide the 4 ranks of tp x cp x dp / etp; 1, 2, 4"),
        ("tp=2,sp,zero=1,shards=2,ep=3,etp=1", "ep=3 does not divide the 8 ranks of tp x cp x dp / etp; 1, 2, 4, 8"),
    ],
)
def test_degrees_of_experts_that_do_not_share_out_say_which_do(words: str, error: str) -> None:
    with pytest.raises(InputError, match=re.escape(error)):
        layout_of(words)


def test_columns_that_do_not_share_out_are_told() -> None:
    narrow = build_network("mixtral-8x7b", batch=1, sequence_length=64, layers=1, expert_inner=14)
    with pytest.raises(
        InputError, match=r"etp=4 does not divide the 14 columns of layers\.0\.experts_down; 1, 2, 7, 14"
    ):
        divided(narrow, layout_of("etp=4"))


# -- the whole step ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("words", ["tp=2,sp,ep=4", "tp=2,sp,ep=8,etp=1,zero=1", "pp=2,tp=2,sp,ep=4,etp=1", "tp=2,ep=2"])
def test_folded_and_unfolded_steps_take_as_long(words: str) -> None:
    network = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=TOKENS, layers=2)
    folded, unfolded = (
        step_on(MACHINE, network, HALF, layout=parse_layout(words), fold=fold).step_time_s for fold in (True, False)
    )
    assert folded == pytest.approx(unfolded, rel=1e-9)


def test_a_launch_line_says_how_experts_are_split() -> None:
    line = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 4096 --num-attention-heads 32 "
        "--ffn-hidden-size 14336 --seq-length 4096 --swiglu --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm "
        "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 8 --micro-batch-size 1 "
        "--global-batch-size 8 --bf16 --vocab-size 32000"
    )
    assert "etp=1" in str(read_launch(f"{line} --expert-tensor-parallel-size 1").options["parallel"])
    assert "etp" not in str(read_launch(f"{line} --expert-tensor-parallel-size 2").options["parallel"])
    assert "etp" not in str(read_launch(line).options["parallel"])
