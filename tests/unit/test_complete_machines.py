"""Rings and chains that share no link where all GPUs are joined directly, and RCCL's use of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator import simulate
from simulator.api.context import load_machine
from simulator.collectives.communicator import Communicator, Request
from simulator.collectives.nccl.cost import NcclConstants
from simulator.collectives.nccl.graph import channel_rings, direct_protocol
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.search import separate_chains, separate_rings
from simulator.constants import DEFAULT
from simulator.engine.executor import execute


@pytest.mark.parametrize(("n_gpus", "count"), [(3, 2), (4, 2), (5, 4), (6, 4), (7, 6), (8, 7), (12, 11), (16, 15)])
def test_rings_share_no_directed_link(n_gpus: int, count: int) -> None:
    rings = separate_rings(n_gpus)
    links = [link for order in rings for link in pairwise((*order, order[0]))]
    assert len(rings) == count
    assert len(set(links)) == len(links) == count * n_gpus
    assert all(sorted(order) == list(range(n_gpus)) for order in rings)


@pytest.mark.parametrize("n_gpus", [2, 4, 8, 16])
def test_chains_use_each_directed_link_once(n_gpus: int) -> None:
    chains = separate_chains(n_gpus)
    links = [link for order in chains for link in pairwise(order)]
    assert len(set(links)) == len(links) == n_gpus * (n_gpus - 1)
    assert [(order[0], order[-1]) for order in chains] == [(i, (i + n_gpus // 2) % n_gpus) for i in range(n_gpus)]
    assert all(sorted(order) == list(range(n_gpus)) for order in chains)


def test_there_are_none_where_none_are_known() -> None:
    assert separate_rings(2) == separate_rings(17) == separate_chains(7) == ()


@pytest.mark.parametrize(("nodes", "count"), [(1, 7), (2, 8), (4, 8)])
def test_rings_of_rccl_share_no_link(nodes: int, count: int) -> None:
    machine = load_machine("8x-mi300x", n_nodes=nodes if nodes > 1 else None)
    rings = channel_rings(Communicator(machine, machine.gpus))
    assert len(rings) == count
    links = [link for ring in rings for route in ring.routes[:8] for link, _ in route.links]
    direct = [link for link in links if machine.links[link].kind == "xgmi"]
    assert len(direct) == len(set(direct))
    assert direct
    each_Bps = {round(ring.bandwidth_Bps) for ring in rings}
    assert len(each_Bps) == 1  # as fast as a link, and over a network as an adapter
    assert each_Bps.pop() == pytest.approx(47.7e9, rel=0.01)


def test_more_machines_are_not_slower_than_their_adapters() -> None:
    """Eight rings over eight adapters of 400 Gbit/s; all over one link between two GPUs would be a seventh of it."""
    one, two = (simulate("8x-mi300x", workload="bytes:4GiB", strategy="nccl", nodes=n) for n in (1, 2))
    assert two.busbw_Bps == pytest.approx(8 * 47.7e9, rel=0.1)
    assert one.busbw_Bps == pytest.approx(7 * 47.7e9, rel=0.1)


def _request(size_bytes: float, n: int = 8, collective: str = "all-reduce", gpus_per_process: int = 1) -> Request:
    machine = load_machine("8x-mi300x")
    group = Communicator(machine, machine.gpus[:n])
    return Request(group, collective, size_bytes, gpus_per_process=gpus_per_process)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_of", "version", "protocol"),
    [
        (_request(512), (2, 22), None),  # a program needs whole elements in 256 chunks
        (_request(1024), (2, 22), "LL"),
        (_request(1025), (2, 22), None),
        (_request(1025), (2, 30), "LL"),  # own kernels
        (_request(1 << 20), (2, 22), "Simple"),
        (_request(20 << 20), (2, 22), "Simple"),
        (_request(32 << 20), (2, 22), None),
        (_request(20 << 20), (2, 30), None),
        (_request(1024, n=4), (2, 22), None),
        (_request(1024, gpus_per_process=8), (2, 22), None),
        (_request(1 << 20, collective="all-gather"), (2, 22), None),
        (_request(1 << 20, collective="all-gather"), (2, 26), "Simple"),
        (_request(1 << 20, collective="reduce-scatter"), (2, 26), None),
    ],
)
def test_rccl_exchanges_directly_where_its_programs_are_for_it(
    request_of: Request, version: tuple[int, int], protocol: str | None
) -> None:
    assert direct_protocol(request_of, version) == protocol
    chosen = Nccl(version=version).plan(request_of).facts["algorithm"]
    assert (chosen == "direct") == (protocol is not None)


@pytest.mark.parametrize(("size", "wire", "protocol"), [(256 << 10, 2, "LL"), (4 << 20, 1, "Simple")])
def test_a_direct_exchange_sends_each_part_twice_over_its_own_link(size: int, wire: int, protocol: str) -> None:
    known, machine = DEFAULT(NcclConstants), load_machine("8x-mi300x")
    link = next(link for link in machine.links if link.kind == "xgmi")
    pace, of = 1.41e9 / 2.1e9, known.recent[protocol]
    base_s = pace * known.recent["LL"].base_s + known.rccl_base_s
    part_s = wire * size / 8 / (known.rccl_direct_share * link.bandwidth_Bps)
    expected = base_s + 2 * (pace * of.hop_s + link.latency_s + part_s)
    taken = execute(machine, Nccl(version=(2, 22)).plan(_request(size))).end_s
    assert taken == pytest.approx(expected, rel=1e-6)


def test_other_gpus_take_the_algorithms_of_nccl() -> None:
    machine = load_machine("dgx-h100")
    assert direct_protocol(Request(Communicator(machine, machine.gpus), "all-reduce", 1024), (2, 22)) is None
