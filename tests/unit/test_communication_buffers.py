"""The memory that NCCL takes for communicators: closed forms of single groups, and whole steps."""

from __future__ import annotations

from typing import cast

import pytest

from simulator.api import Session
from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl.strategy import NETWORK_BYTES, PEER_BYTES, Nccl, communicator_bytes, deep_ep_bytes
from simulator.collectives.registry import strategy_of
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Software, Where
from simulator.step.memory import MemoryNeed

MIB = 2**20
SESSION = Session()
DGX = Where(topology="dgx-a100-80gb")
TWO = Where(topology="dgx-a100-80gb", nodes=2)
ALL_REDUCE = [("all-reduce", 1e9)]


def nccl(*version: int, **said: object) -> Nccl:
    return cast(Nccl, strategy_of("nccl", Software(nccl=version), **said))  # type: ignore[arg-type]


def group(where: Where, count: int | None = None) -> Communicator:
    return SESSION.group(where, None if count is None else tuple(range(count)))


def need(layout: str, where: Where = DGX, **more: object) -> MemoryNeed:
    asked = StepQuestion(where=where, workload="gpt2", batch=2, layout=parse_layout(layout), **more)  # type: ignore[arg-type]
    return SESSION.memory(asked)


def test_connections_by_protocol() -> None:
    """A page of heads, and 4.69 + 0.5 + 4 MiB in pages; over a network the sender's LL buffer is in host memory."""
    assert PEER_BYTES == (2 + 10) * MIB
    assert NETWORK_BYTES == (10 + 10) * MIB


def test_ring_of_eight() -> None:
    """24 channels each way; three arrays of each of 32 channels (24, to a power of two) take a page."""
    taken = communicator_bytes(nccl(2, 30, algorithm="ring"), group(DGX), ALL_REDUCE)
    assert taken == (24 * 12 + 32 * 3 * 2) * MIB


def test_ring_of_two_machines() -> None:
    """Of 16 channels, each GPU has 7 of 8 connections inside and 1 of 8 over the network."""
    taken = communicator_bytes(nccl(2, 30, algorithm="ring"), group(TWO), ALL_REDUCE)
    assert taken == (16 * (12 * 7 / 8 + 20 / 8) + 16 * 3 * 2) * MIB


def test_early_versions_connect_trees_too() -> None:
    """In the other direction, and to the only other machine; before cuMem, small arrays share a page."""
    assert communicator_bytes(nccl(2, 10), group(DGX), ALL_REDUCE) == 2 * 24 * 12 * MIB
    ring = 12 * 7 / 8 + 20 / 8
    assert communicator_bytes(nccl(2, 10), group(TWO), ALL_REDUCE) == 2 * 16 * ring * MIB


def test_from_pxn_all_communicators_can_send() -> None:
    """Until connections wait for their first use: 16 chunks of 512 KiB in each of 32 channels."""
    assert communicator_bytes(nccl(2, 17), group(DGX), ALL_REDUCE) == (2 * 24 * 12 + 32 * 16 / 2) * MIB


def test_two_ranks_are_joined_both_ways_by_a_ring() -> None:
    pair = group(DGX, 2)
    channels = nccl(2, 10).graph(pair).comm_channels
    assert communicator_bytes(nccl(2, 10), pair, ALL_REDUCE) == channels * 12 * MIB


def test_nvls() -> None:
    """16 channels, 8 heads, two buffers of 8 chunks of 128 KiB; 4 MiB and a page in each of 24 channels in 2.20."""
    h100 = group(Where(topology="dgx-h100"))
    arrays = (32 * 3 + 16) * 2
    assert communicator_bytes(nccl(2, 30, algorithm="nvls"), h100, ALL_REDUCE) == (16 * 8 * 2 + arrays) * MIB
    without = communicator_bytes(nccl(2, 20, nvls=False), h100, ALL_REDUCE)
    old = 24 * 8 * 2 * 6 + 24 * 2  # and a page of each channel
    assert communicator_bytes(nccl(2, 20), h100, ALL_REDUCE) == without + old * MIB


def test_all_to_all_connects_each_pair_over_all_channels() -> None:
    """As eight H100 did (NVIDIA/nccl#1685): 32 channels for each pair; it took 3.28 GB more.

    Whether that holds the communicator's arrays, as at its first use, is not said.
    """
    h100 = group(Where(topology="dgx-h100"))
    taken = communicator_bytes(nccl(2, 30), h100, [("all-to-all", 1e9)], 7)
    arrays = (32 * 3 + 16) * 2
    assert taken == (7 * 32 * 12 + arrays) * MIB
    assert taken - arrays * MIB == pytest.approx(3.28e9, rel=0.15)
    assert taken == pytest.approx(3.28e9, rel=0.15)


def test_ranks_of_other_machines_share_buffers() -> None:
    """To send and to receive, 16 chunks of 128 KiB in each of 16 channels; two channels to each of 7 near ranks."""
    taken = communicator_bytes(nccl(2, 30), group(TWO), [("all-to-all", 1e9)], 15)
    assert taken == (2 * 16 * 16 / 8 + 7 * 2 * 12 + 16 * 3 * 2) * MIB


def test_through_the_host_buffers_are_there() -> None:
    pcie = group(Where(topology="4x-a100-pcie"))
    assert communicator_bytes(nccl(2, 10), pcie, ALL_REDUCE) == 0.0


@pytest.mark.parametrize("version", [(2, 18), (2, 30)])
def test_rccl_connects_rings_and_trees_from_the_start_by_pairs_of_8_mib(version: tuple[int, int]) -> None:
    """With 28 channels, and for sends 16 chunks of 512 KiB in each of 32."""
    taken = communicator_bytes(nccl(*version), group(Where(topology="8x-mi300x")), [])
    assert taken == (28 * 2 * 8 + 32 * 16 / 2) * MIB


def test_a_pair_of_rccl_has_a_page_and_three() -> None:
    """As a log of two AMD GPUs lists its buffers: 2,097,152 and 6,291,456 bytes; a ring joins both ways."""
    two = group(Where(topology="8x-mi355x"), 2)
    assert communicator_bytes(nccl(2, 10), two, []) == 4 * (2_097_152 + 6_291_456)  # before PXN: no sends


def test_none_for_one_rank() -> None:
    assert communicator_bytes(nccl(2, 30), group(DGX, 1), ALL_REDUCE) == 0.0


def test_a_lone_gpu_has_none() -> None:
    alone = need("dp", gpus=(0,))
    assert alone.communication_bytes == 0.0
    assert "communication" not in alone.by_use


def test_it_counts_as_memory_of_the_process() -> None:
    found = need("dp")
    assert found.communication_bytes > 0
    assert found.process_bytes == found.reserved_bytes + found.communication_bytes + found.context_bytes
    assert found.by_use["communication"] == found.communication_bytes


@pytest.mark.parametrize("version", [(2, 10), (2, 20), (2, 30)])
@pytest.mark.parametrize(
    "layouts", [("dp", "tp=2", "tp=2,pp=2"), ("pp=2", "pp=2,tp=2"), ("dp=4,pp=2,zero=1", "tp=2,pp=2")]
)
def test_more_kinds_of_groups_never_take_less(layouts: tuple[str, ...], version: tuple[int, int]) -> None:
    """On the same GPUs, where a further kind of group is a further communicator of each rank."""
    taken = [need(layout, software=Software(nccl=version)).communication_bytes for layout in layouts]
    assert taken[0] > 0
    assert taken == sorted(taken)


@pytest.mark.parametrize("strategy", ["ring", "gloo"])
def test_gradients_by_other_strategies_take_none(strategy: str) -> None:
    """NCCL still exchanges within layers."""
    assert need("dp", strategy=strategy).communication_bytes == 0.0
    within = need("tp=2", strategy=strategy).communication_bytes
    assert 0 < within < need("tp=2").communication_bytes


def test_frameworks_sum_single_numbers_in_groups_of_their_own() -> None:
    """Among all GPUs; and in Megatron-LM without a distributed optimiser, among those of a replica."""
    whole = communicator_bytes(nccl(2, 30), group(DGX), [("all-reduce", 8.0)])
    half = communicator_bytes(nccl(2, 30), group(DGX, 4), [("all-reduce", 8.0)])
    assert 0 < half <= whole

    def taken(layout: str, framework: str) -> float:
        options = StepOptions(precision="master-bf16", framework=framework)  # type: ignore[arg-type]
        return need(layout, options=options, software=Software(nccl=(2, 30))).communication_bytes

    assert taken("dp", "megatron") == taken("dp", "pytorch") + whole
    assert taken("zero=1", "megatron") == taken("zero=1", "pytorch") + whole
    assert taken("tp=4", "megatron") == taken("tp=4", "pytorch") + half
    assert taken("tp=4,zero=1", "megatron") == taken("tp=4,zero=1", "pytorch")


@pytest.mark.parametrize(
    ("n_ranks", "rings", "network_bytes"),
    [
        (8, 10 * 8 * 256, 0),
        (16, 10 * 8 * 288, 512 * MIB),  # 10 channels x 2 machines x 2 rings of 140 tokens of 16,408 B: 92 MB
        (128, 10 * 8 * 560, 1024 * MIB),  # 16 machines, rings of 132: 693 MB
    ],
)
def test_deep_ep_has_rings_for_each_gpu_of_a_machine_and_for_each_machine(
    n_ranks: int, rings: int, network_bytes: int
) -> None:
    """Of tokens of 7,168 numbers in 16 bits with 2,056 B of numbers, experts and scales; and a workspace of 32 MiB."""
    found = deep_ep_bytes(n_ranks, 7168) - rings * (2 * 7168 + 2056) - network_bytes - 32 * MIB
    assert 0 < found < MIB  # heads, tails and prefix sums


def test_the_dispatchers_own_buffers_take_the_place_of_nccls() -> None:
    sizes = (("layers", 2), ("sequence_length", 128))

    def taken(layout: str) -> float:
        asked = StepQuestion(
            where=DGX, workload="mixtral-8x7b", batch=1, sizes=sizes, layout=parse_layout(layout), strategy="nccl"
        )
        return SESSION.memory(asked).communication_bytes

    dense, nccls, own = taken("dp=8,zero=1"), taken("ep=8,zero=1"), taken("ep=8,flex,zero=1")
    assert nccls > dense
    assert own >= deep_ep_bytes(8, 4096)
