"""NCCL's kernels cost what cost.py says: launch, base, hops, shares of links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from simulator.api import load_machine, make_request
from simulator.collectives.nccl.cost import Costs, NcclConstants, ProtocolCost, costs_of
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.request import Unsuitable
from simulator.constants import DEFAULT
from simulator.engine.executor import execute
from simulator.network.machine import Machine
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import NCCL_TODAY
from simulator.workload.collective import Collective
from tests.machines import crossbar, machine_from
from validate.kinds import COLLECTIVES
from validate.tables.names import Names

_FREE = ProtocolCost(0.0, 0.0, 0.0)
_S = 64e6


def costs(*, protocols: Mapping[str, ProtocolCost] | None = None, **changes: float) -> Costs:
    """Return costs of nothing but what is named."""
    shared = {"launch_s": 0.0, "peer_launch_s": 0.0, "pcie_share": 1.0, "network_share": 1.0, "staged_share": 1.0}
    constants = replace(DEFAULT(NcclConstants), **(shared | changes))
    return Costs(constants, protocols or all_protocols(_FREE))


def seconds(
    machine: Machine, used: Costs, size: float = _S, collective: Collective = "all-reduce", gpus_per_process: int = 1
) -> float:
    request = make_request(machine, size, collective=collective, gpus_per_process=gpus_per_process)
    return execute(machine, Nccl(costs=used).plan(request)).end_s


def all_protocols(cost: ProtocolCost) -> dict[str, ProtocolCost]:
    return dict.fromkeys(("LL", "LL128", "Simple", "NVLS", "P2P"), cost)


def test_a_ring_is_base_hops_and_bytes() -> None:
    used = costs(protocols=all_protocols(ProtocolCost(10e-6, 2e-6, 0.0, share=0.8)))
    expected = 10e-6 + 14 * 2e-6 + 2 * 7 / 8 * _S / (0.8 * 50e9)
    assert seconds(crossbar(8), used) == pytest.approx(expected, rel=1e-9)


def test_flags_beside_the_data_take_the_link_too() -> None:
    used = costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, wire=2.0)))
    assert seconds(crossbar(4), used) == pytest.approx(2 * 2 * 3 / 4 * _S / 50e9, rel=1e-9)


def test_a_channel_moves_what_its_threads_can() -> None:
    machine = crossbar(4)
    strategy = Nccl(costs=costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, channel_Bps=1e8))))
    plan = strategy.plan(make_request(machine, _S))
    n_channels = plan.facts["channels"]
    assert isinstance(n_channels, int)
    assert execute(machine, plan).end_s == pytest.approx(2 * 3 / 4 * _S / (n_channels * 1e8), rel=1e-9)


def test_launches_run_beside_the_kernel() -> None:
    machine = crossbar(8)
    alone = seconds(machine, costs())
    assert seconds(machine, costs(launch_s=alone / 80), gpus_per_process=8) == pytest.approx(alone, rel=1e-9)
    assert seconds(machine, costs(launch_s=alone), gpus_per_process=8) == pytest.approx(8 * alone, rel=1e-9)
    assert seconds(machine, costs(launch_s=alone)) == pytest.approx(alone, rel=1e-9)


_PCIE = """
schema_version: 1
name: pcie
devices: {"gpu[0-3]": {kind: gpu}, cpu0: {kind: cpu}, sw0: {kind: pcie-switch}}
links:
  - {between: ["gpu[0-3]", sw0], kind: pcie, bandwidth: 16 GB/s}
  - {between: [sw0, cpu0], kind: pcie, bandwidth: 16 GB/s}
"""


def test_copies_between_gpus_reach_a_share_of_pcie() -> None:
    machine = machine_from(_PCIE)
    expected = 2 * 3 / 4 * _S / (0.5 * 16e9)
    assert seconds(machine, costs(pcie_share=0.5)) == pytest.approx(expected, rel=1e-9)


def test_a_nic_gives_a_ring_its_share() -> None:
    machine = machine_from(_PCIE.replace("[0-3]", "[0-0]"), n_nodes=4, fabric="ethernet-10g")
    link = next(link for link in machine.links if link.kind == "ethernet")
    used = costs(network_share=0.9, staged_share=0.5)
    plan = Nccl("ring", costs=used).plan(make_request(machine, 1e9))
    seconds_alone = 2 * 3 / 4 * 1e9 / (0.5 * link.bandwidth_Bps)
    assert execute(machine, plan).end_s == pytest.approx(seconds_alone, rel=1e-3)  # staged: no GPUDirect


def test_a_forced_algorithm_is_taken_or_refused() -> None:
    machine = load_machine("dgx-h100")
    request = make_request(machine, 1e9)
    assert Nccl().plan(request).facts["algorithm"] == "nvls"
    assert Nccl("ring").plan(request).facts["algorithm"] == "ring"
    with pytest.raises(Unsuitable):
        Nccl("nvls").plan(make_request(load_machine("p3.16xlarge"), 1e9))


def test_nvls_sends_each_byte_once() -> None:
    machine = load_machine("dgx-h100")
    plan = Nccl("nvls", costs=costs()).plan(make_request(machine, 1e9))
    timeline = execute(machine, plan)
    up = next(link for link in machine.links if machine.nodes[link.dst].kind == "nvlink-switch")
    assert timeline.link_bytes[up.index] == pytest.approx(1e9)
    assert timeline.end_s == pytest.approx(1e9 / up.bandwidth_Bps, rel=1e-2)


def test_the_first_window_waits_for_the_switch() -> None:
    """16 channels x 8 heads x 128 KiB are under way before the first sum comes back."""
    machine = load_machine("dgx-h100")
    up = next(link for link in machine.links if machine.nodes[link.dst].kind == "nvlink-switch")
    used = costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, fill=0.5)))
    for size in (1e6, 16 * 2**20, 1e9):
        found = execute(machine, Nccl("nvls", costs=used).plan(make_request(machine, size))).end_s
        expected = (size + 0.5 * min(size, 16 * 2**20)) / up.bandwidth_Bps
        assert found == pytest.approx(expected + up.latency_s, rel=1e-6)


_WITH_MEMORY = """
schema_version: 1
name: crossbar with memory
devices:
  "gpu[0-3]": {kind: gpu, memory_bandwidth: 1 TB/s}
  switch0: {kind: nvlink-switch, latency: 0 us}
links: [{between: ["gpu[0-3]", switch0], kind: nvlink, bandwidth: 50 GB/s}]
"""


def test_a_rank_moves_the_part_it_keeps() -> None:
    machine = machine_from(_WITH_MEMORY)
    used = costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, own_passes=4.0)))
    own_s = 4 * _S / 4 / 1e12
    assert seconds(machine, used) == pytest.approx(2 * 3 / 4 * _S / 50e9 + own_s, rel=1e-9)
    for collective in ("all-gather", "reduce-scatter", "all-to-all"):
        assert seconds(machine, used, _S, collective) == pytest.approx(3 / 4 * _S / 50e9 + own_s, rel=1e-9)
    for collective in ("broadcast", "reduce", "send-recv"):  # nobody keeps a part of its own
        assert seconds(machine, used, _S, collective) == pytest.approx(seconds(machine, costs(), _S, collective))


def test_the_pace_is_that_of_the_clock() -> None:
    def pace(name: str) -> float:
        machine = load_machine(name)
        return costs().pace(machine.nodes[machine.gpus[0]].part)

    assert pace("dgx-a100-80gb") == pytest.approx(1.0)
    assert pace("dgx-h100") == pytest.approx(1.41 / 1.98)
    assert pace("dgx-b200") == pytest.approx(1.4 * 1.41 / 1.965)
    assert costs().pace(None) == 1.0
    used = costs(protocols=all_protocols(ProtocolCost(10e-6, 0.0, 0.0)))
    h100 = load_machine("dgx-h100")
    assert seconds(h100, used, 8) - seconds(h100, costs(), 8) == pytest.approx(10e-6 * 1.41 / 1.98)


def test_versions_have_costs_of_their_own() -> None:
    known = DEFAULT(NcclConstants)
    assert costs_of((2, 23)).protocols is costs_of((3, 0)).protocols is known.recent
    assert costs_of((2, 22)).protocols is known.earlier
    assert Nccl().costs.protocols is costs_of(NCCL_TODAY).protocols is known.recent


@pytest.mark.parametrize(
    ("software", "is_recent"), [("nccl 2.23.4", True), ("nccl 3.0", True), ("nccl 2.22", False), ("torch", False)]
)
def test_a_row_of_no_version_is_of_an_earlier_one(software: str, is_recent: bool) -> None:
    row = {"machine": "dgx-h100", "n_gpus": "8", "collective": "all_reduce", "bytes": "1e6", "software": software}
    question = COLLECTIVES.read(lambda column: row.get(column, ""), Names()).question
    assert isinstance(question, CollectiveQuestion)
    known = DEFAULT(NcclConstants)
    assert costs_of(question.software.nccl).protocols is (known.recent if is_recent else known.earlier)


def test_a_switch_adds_no_type_of_eight_bits() -> None:
    request = make_request(load_machine("dgx-h100"), 1e9)
    assert Nccl(in_switch=True).plan(request).facts["algorithm"] == "nvls"
    assert Nccl(in_switch=False).plan(request).facts["algorithm"] == "ring"
    with pytest.raises(Unsuitable, match="no switch adds up types of 8 bits, which nvls needs; ring and tree do"):
        Nccl("nvls", in_switch=False).plan(request)


@pytest.mark.parametrize("collective", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"])
@pytest.mark.parametrize("name", ["p3.16xlarge", "dgx-h100", "8x-rtx2080ti", "4gpu-pcie"])
def test_every_collective_has_a_plan(collective: Collective, name: str) -> None:
    machine = load_machine(name)
    times = [
        execute(machine, Nccl().plan(make_request(machine, size, collective=collective))).end_s
        for size in (8, 1e6, 1e9)
    ]
    assert times == sorted(times)
    assert times[0] > 0


def test_all_to_all_and_pairs() -> None:
    machine = crossbar(4)
    used = costs(peer_launch_s=1e-3, launch_s=2e-3)
    assert seconds(machine, used, 8, "all-to-all", 4) == pytest.approx(4 * (2e-3 + 3 * 1e-3), rel=1e-9)
    assert seconds(machine, costs(), _S, "all-to-all") == pytest.approx(3 / 4 * _S / 50e9, rel=1e-9)
    request = make_request(machine, _S, collective="send-recv", pairs=[(0, 1), (1, 0)])
    assert execute(machine, Nccl(costs=costs()).plan(request)).end_s == pytest.approx(_S / 50e9, rel=1e-9)


def test_one_rank_exchanges_nothing() -> None:
    machine = crossbar(2)
    assert execute(machine, Nccl().plan(make_request(machine, _S, gpus=[0]))).end_s == 0


def test_a_star_of_nvlinks_is_a_ring_through_its_middle() -> None:
    """Three hops go through gpu0, written there and read from there; what that leaves unused is told."""
    star = machine_from(
        """
schema_version: 1
name: star
devices: {"gpu[0-3]": {kind: gpu}, cpu0: {kind: cpu}}
links:
  - {between: ["gpu[0-3]", cpu0], kind: pcie, bandwidth: 16 GB/s}
  - {between: [gpu0, "gpu[1-3]"], kind: nvlink, bandwidth: 50 GB/s}
"""
    )
    plan = Nccl(costs=costs()).plan(make_request(star, _S))
    # 1 -> (0) -> 2: all bytes of the ring, and asking for them: 16 B for 64 B, where 144 B carry 128 B written
    assert execute(star, plan).end_s == pytest.approx(2 * 3 / 4 * _S * (1 + 2 / 9) / 50e9, rel=1e-6)


def test_five_and_six_gpus_of_the_cube_mesh_have_the_rings_that_nccl_finds() -> None:
    """Six have one NVLink ring, both ways; five one through a neighbour, both ways, though relays carry more."""
    machine = load_machine("p3.16xlarge")
    six = Nccl(costs=costs()).plan(make_request(machine, _S, gpus=[0, 1, 2, 3, 4, 5]))
    assert sorted(six.rings) == [(0, 3, 2, 1, 5, 4), (0, 4, 5, 1, 2, 3)]
    link_Bps = next(link.unit_Bps for link in machine.links if link.kind == "nvlink")
    five = make_request(machine, _S, gpus=[0, 1, 2, 3, 4])
    busbw = 2 * 4 / 5 * _S / execute(machine, Nccl(costs=costs()).plan(five)).end_s
    assert busbw == pytest.approx(2 * link_Bps / (1 + 2 / 9), rel=0.01)
    assert any("NCCL_GRAPH_FILE" in note for note in six.notes)
    whole = Nccl(costs=costs()).plan(make_request(machine, _S))
    assert not any("NCCL_GRAPH_FILE" in note for note in whole.notes)


def test_flows_that_share_a_link_reach_its_share_together() -> None:
    """All-to-all: three flows leave each GPU; together they use what a ring would."""
    machine = crossbar(4)
    used = costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, share=0.8)))
    assert seconds(machine, used, _S, "all-to-all") == pytest.approx(3 / 4 * _S / (0.8 * 50e9), rel=1e-9)


def test_nodes_of_unequal_size_have_as_many_heads_as_the_smallest() -> None:
    machine = load_machine("dgx-h100", n_nodes=2)
    for gpus in ([0, 1, 2, 3, 4, 8, 9, 10], [0, 1, 2, 8, 9, 10, 11, 12]):
        plan = Nccl(costs=costs()).plan(make_request(machine, 1e9, gpus=gpus))
        assert execute(machine, plan).end_s > 0


@pytest.mark.parametrize("name", ["dgx-h100", "p4d.24xlarge", "dgx-a100-40gb"])
def test_more_nodes_do_not_lose_their_nics(name: str) -> None:
    """From four nodes on bus bandwidth hardly depends on how many there are."""
    found = []
    for n_nodes in (4, 8, 16):
        machine = load_machine(name, n_nodes=n_nodes)
        plan = Nccl().plan(make_request(machine, 8e9))
        n = len(machine.gpus)
        found.append(2 * (n - 1) / n * 8e9 / execute(machine, plan).end_s)
    assert min(found) > 0.85 * max(found)


def test_ranks_in_another_order_are_as_fast() -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=2)
    times = []
    for gpus in (range(16), [0, 1, 6, 5, 4, 3, 2, 7, 11, 9, 13, 14, 15, 12, 8, 10]):
        times.append(execute(machine, Nccl("ring").plan(make_request(machine, 10e9, gpus=list(gpus)))).end_s)
    assert times[1] == pytest.approx(times[0], rel=0.02)


def test_the_bottleneck_is_the_link_whose_share_is_used_up() -> None:
    """The memory bus is busier than PCIe, of which NCCL reaches half: that half is what bounds it."""
    from simulator.api import simulate

    result = simulate(load_machine("8x-rtx2080ti"), "nccl", 1e9)
    assert result.bottleneck is not None
    assert result.bottleneck.name == result.facts["bound_link"] == "plx0->cpu0"
    share = f"{DEFAULT(NcclConstants).pcie_share:.0%} of what the link carries"
    assert any(share in note for note in result.notes)


def test_staging_in_host_memory_is_told() -> None:
    from simulator.api import simulate

    machine = machine_from(_PCIE, n_nodes=2, fabric="ethernet-10g")
    assert any("through host memory" in note for note in simulate(machine, "ring", 1e6).notes)
    assert not any("through host memory" in note for note in simulate(machine_from(_PCIE), "ring", 1e6).notes)


_TWO = """
schema_version: 1
name: two
parts:
  card: {kind: nic, network: ethernet, bandwidth: 5 GB/s, plugin_latency: PLUGIN}
devices: {gpu0: {kind: gpu}, cpu0: {kind: cpu}, sw0: {kind: pcie-switch}, nic0: {part: card}}
links:
  - {between: [gpu0, sw0], kind: pcie, bandwidth: 16 GB/s}
  - {between: [nic0, sw0], kind: pcie, bandwidth: 16 GB/s}
  - {between: [cpu0, sw0], kind: pcie, bandwidth: 16 GB/s}
"""


@pytest.mark.parametrize(("collective", "hops"), [("send-recv", 1), ("all-to-all", 1), ("all-reduce", 2)])
def test_a_network_plugin_adds_its_latency_to_each_hop_between_machines(collective: Collective, hops: int) -> None:
    """Of few bytes; on top of all else, once for each hop over the network."""

    def time_s(plugin: str) -> float:
        machine = machine_from(_TWO.replace("PLUGIN", plugin), n_nodes=2)
        algorithm = "ring" if collective == "all-reduce" else None
        plan = Nccl(algorithm, costs_of(NCCL_TODAY)).plan(make_request(machine, 8.0, collective=collective))
        return execute(machine, plan).end_s

    assert time_s("50 us") - time_s("0 us") == pytest.approx(50e-6 * hops, rel=1e-6)
