"""Rings between ranks that exchange heads (``cp_a2a=4``; Transformer Engine's ``a2a+p2p``), by hand count."""

from __future__ import annotations

import pytest

from simulator.api import Session, load_machine
from simulator.collectives.communicator import Communicator
from simulator.errors import InputError
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.results.step_view import time_shares
from simulator.results.training import TrainingResult
from simulator.search.space import parse_fixed
from simulator.training.placement import Placement
from simulator.workload.network import Network
from simulator.workload.operators import Attention, Exchange
from simulator.workload.split.context import context_split
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

BATCH, LENGTH, HEADS, KEYS, SIZE = 2, 1024, 32, 8, 128
LLAMA = build_network("llama3-8b", batch=BATCH, loss=True, sequence_length=LENGTH, layers=2)
LONG = build_network("llama3-8b", batch=1, loss=True, sequence_length=16384, layers=2)
HALF = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
MACHINE = load_machine("dgx-h100")


def alike(one: Network, other: Network) -> bool:
    return (one.layers, one.elements) == (other.layers, other.elements)


def step(words: str) -> TrainingResult:
    return step_on(MACHINE, LONG, HALF, layout=parse_layout(words))


@pytest.mark.parametrize(("of_heads", "of_ring"), [(2, 4), (4, 2), (2, 2)])
def test_heads_are_exchanged_once_and_keys_go_round_in_shorter_rings(of_heads: int, of_ring: int) -> None:
    ranks = of_heads * of_ring
    part = context_split(LLAMA, ranks, "p2p", of_heads)
    sent = [layer.operator for layer in part.layers if isinstance(layer.operator, Exchange)]
    queries, keys = (BATCH * heads * SIZE * LENGTH // ranks for heads in (HEADS, 2 * KEYS))  # of a rank's tokens
    within, ring = ("cp heads", "all-to-all"), ("cp", "send-recv")
    block = [(*within, queries), (*within, keys), *[(*ring, keys)] * (of_ring - 1), (*within, queries)]
    assert [(each.axis, each.forward, each.elements) for each in sent] == block * 2
    assert {each.forward == each.backward for each in sent} == {True}
    attends = [layer.operator for layer in part.layers if isinstance(layer.operator, Attention)]
    assert {(each.heads, each.kv_heads, each.query_length) for each in attends} == {
        (HEADS // of_heads, KEYS // of_heads, LENGTH // of_ring)
    }
    pairs = sum(each.heads * each.query_length * each.key_length / (1 + each.causal) for each in attends)
    assert pairs == 2 * HEADS * LENGTH**2 / (2 * ranks)  # an equal part of what a causal mask leaves
    for layer in part.layers:
        assert part.elements[layer.output] == layer.operator.output_elements


def test_at_its_ends_it_is_a_ring_and_an_exchange_of_heads() -> None:
    assert alike(context_split(LLAMA, 8, "p2p", 1), context_split(LLAMA, 8, "p2p"))
    assert alike(context_split(LLAMA, 8, "p2p", 8), context_split(LLAMA, 8, "a2a"))
    for same, as_words in (("cp=8,cp_a2a=1", "cp=8"), ("cp=8,cp_a2a=8", "cp=8,cp_comm=a2a")):
        one, other = step(same), step(as_words)
        assert one.step_time_s == other.step_time_s
        assert one.memory[0].need.allocated_bytes == other.memory[0].need.allocated_bytes
        assert one.confidence.band == other.confidence.band


def test_between_its_ends_fewer_keys_go_round() -> None:
    """Of 2 r - 1 parts of keys sent by r ranks of a ring, and of three exchanges of heads."""

    def bytes_of(words: str) -> int:
        layout = parse_layout(words)
        part = context_split(LONG, 8, layout.cp_comm, layout.cp_a2a)
        return sum(x.operator.elements for x in part.layers if isinstance(x.operator, Exchange))

    found = [bytes_of(words) for words in ("cp=8", "cp=8,cp_a2a=2", "cp=8,cp_a2a=4", "cp=8,cp_a2a=8")]
    keys, queries = (2 * 16384 // 8 * 128 * heads for heads in (2 * 8, 32))
    assert found == [7 * keys, 4 * keys + 2 * queries, 2 * keys + 2 * queries, keys + 2 * queries]


def test_neighbours_exchange_heads_and_rings_go_over_them() -> None:
    layout = parse_layout("tp=2,cp=4,cp_a2a=2").on(8)
    machine = Session().machine(Where("dgx-h100"))
    found = Placement(Communicator(machine, machine.gpus), layout).within_layers()

    def ranks(axis: str) -> list[list[int]]:
        gpus = list(machine.gpus)
        return sorted([gpus.index(rank) for rank in group.ranks] for each in found[axis] for group in each.groups)

    assert ranks("cp heads") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert ranks("cp") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_what_a_step_waits_for_is_of_its_sequence_and_has_no_band() -> None:
    found = step("cp=8,cp_a2a=4")
    assert time_shares(found)["context"] > 0
    assert found.confidence.band is None
    assert found.confidence.outside == ("no measured step whose sequences are divided by heads and in rings",)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("cp_a2a=2", "add cp=2 or more"),
        ("cp=4,cp_a2a=2,cp_comm=a2a", "not with cp_comm=a2a"),
        ("cp=4,cp_a2a=3", "cp_a2a=3 does not divide cp=4; 1, 2, 4"),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_layout(words).on(8)


def test_heads_and_windows_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(InputError, match="cp_a2a=16 does not divide the 8 heads of keys"):
        context_split(LLAMA, 32, "p2p", 16)
    windows = build_network("gpt-oss-20b", batch=1, layers=2, sequence_length=512)
    with pytest.raises(InputError, match="keys do not circulate where a query sees a window"):
        context_split(windows, 8, "p2p", 4)
    assert alike(context_split(windows, 8, "p2p", 8), context_split(windows, 8, "a2a"))


def test_a_search_may_fix_how_many_exchange_heads() -> None:
    assert parse_fixed("cp=4,cp_a2a=2") == (("cp", 4), ("cp_a2a", 2))
