"""NCCL's kernels cost what cost.py defines: launch, base, hops, shares of links."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Unsuitable
from simulator.collectives.nccl.cost import NcclConstants, NcclCosts, ProtocolCost, costs_of
from simulator.collectives.nccl.strategy import Nccl
from simulator.constants import DEFAULT
from simulator.engine.executor import execute
from simulator.network.machine import Machine
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import NCCL_TODAY
from simulator.topology.catalogue import load_part
from simulator.workload import Collective
from tests.asked import request_of
from tests.machines import crossbar, machine_from
from validate.kinds import COLLECTIVES
from validate.tables.names import RowNames

_FREE = ProtocolCost(0.0, 0.0, 0.0)
_S = 64e6


def costs(*, protocols: Mapping[str, ProtocolCost] | None = None, **changes: float) -> NcclCosts:
    """Return costs that are zero except for those named."""
    shared = {"launch_s": 0.0, "peer_launch_s": 0.0, "pcie_share": 1.0, "network_share": 1.0, "staged_share": 1.0}
    constants = DEFAULT(NcclConstants).but(**(shared | changes))
    return NcclCosts(constants, protocols or all_protocols(_FREE))


def seconds(
    machine: Machine,
    used: NcclCosts,
    size: float = _S,
    collective: Collective = "all-reduce",
    gpus_per_process: int = 1,
) -> float:
    request = request_of(machine, size, collective=collective, gpus_per_process=gpus_per_process)
    return execute(machine, Nccl(costs=used).plan(request)).end_s


def all_protocols(cost: ProtocolCost) -> dict[str, ProtocolCost]:
    return dict.fromkeys(("LL", "LL128", "Simple", "NVLS", "NVLSTree", "P2P"), cost)


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
    plan = strategy.plan(request_of(machine, _S))
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
_UPLINK = "  - {between: [sw0, cpu0], kind: pcie, bandwidth: 16 GB/s}\n"


def test_copies_under_a_switch_reach_all_of_pcie_and_through_a_cpu_a_share() -> None:
    ring_s = 2 * 3 / 4 * _S / 16e9
    under = machine_from(_PCIE)
    assert seconds(under, costs(pcie_share=0.6)) == pytest.approx(ring_s, rel=1e-9)
    through = machine_from(
        _PCIE.replace("sw0: {kind: pcie-switch}}", "}").replace("sw0]", "cpu0]").replace(_UPLINK, "")
    )
    assert seconds(through, costs(pcie_share=0.6)) == pytest.approx(ring_s / 0.6, rel=1e-9)


def test_flows_beside_each_other_fill_a_link_that_one_does_not() -> None:
    """Two GPUs without peer access exchange through host memory: both use the switch's link to the CPU, both ways."""
    machine = machine_from(_PCIE.replace("[0-3]", "[0-1]") + "transport: {peer_to_peer: none}\n")
    assert seconds(machine, costs(pcie_share=0.6)) == pytest.approx(_S / 8e9, rel=1e-9)
    assert seconds(machine, costs(pcie_share=0.4)) == pytest.approx(_S / (0.4 * 16e9), rel=1e-9)


def test_a_nic_gives_a_ring_its_share() -> None:
    machine = machine_from(_PCIE.replace("[0-3]", "[0-0]"), n_nodes=4, fabric="ethernet-10g")
    link = next(link for link in machine.links if link.kind == "ethernet")
    used = costs(network_share=0.9, staged_share=0.5)
    plan = Nccl("ring", costs=used).plan(request_of(machine, 1e9))
    seconds_alone = 2 * 3 / 4 * 1e9 / (0.5 * link.bandwidth_Bps)
    assert execute(machine, plan).end_s == pytest.approx(seconds_alone, rel=1e-3)  # staged: no GPUDirect


def test_a_forced_algorithm_is_taken_or_refused() -> None:
    machine = load_machine("dgx-h100")
    request = request_of(machine, 1e9)
    assert Nccl().plan(request).facts["algorithm"] == "nvls"
    assert Nccl("ring").plan(request).facts["algorithm"] == "ring"
    with pytest.raises(Unsuitable):
        Nccl("nvls").plan(request_of(load_machine("p3.16xlarge"), 1e9))


def test_nvls_sends_each_byte_once() -> None:
    machine = load_machine("dgx-h100")
    plan = Nccl("nvls", costs=costs()).plan(request_of(machine, 1e9))
    timeline = execute(machine, plan)
    up = next(link for link in machine.links if machine.nodes[link.dst].kind == "nvlink-switch")
    assert timeline.link_bytes[up.index] == pytest.approx(1e9)
    assert timeline.end_s == pytest.approx(1e9 / up.bandwidth_Bps, rel=1e-2)


@pytest.mark.parametrize(
    ("size", "window"), [(1e6, 1e6), (6e6, 2 * 2**20), (16 * 2**20, 4 * 2**20), (1e9, 8 * 2**20), (2e9, 16 * 2**20)]
)
def test_the_first_window_waits_for_the_switch(size: float, window: float) -> None:
    """16 channels x 8 heads x 16 to 128 KiB pass through buffers twice, before everything else."""
    machine = load_machine("dgx-h100")
    up = next(link for link in machine.links if machine.nodes[link.dst].kind == "nvlink-switch")
    used = costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, fill=0.5)))
    found = execute(machine, Nccl("nvls", costs=used).plan(request_of(machine, size))).end_s
    assert found == pytest.approx((size + 2 * 0.5 * window) / up.bandwidth_Bps + up.latency_s, rel=1e-6)


def test_nvls_serves_its_heads_in_each_round_and_stage() -> None:
    """2 GB over eight H100s take 2e9 / 16 MiB rounds; sums have three stages, all-gather has two."""
    machine = load_machine("dgx-h100")
    size, rounds = 2e9, 2e9 / (16 * 2**20)
    free = all_protocols(_FREE)
    used = costs(protocols=free | {"NVLS": ProtocolCost(0.0, head_s=1e-6)})
    pace = used.pace(machine.nodes[machine.gpus[0]].part)
    for collective, stages in (("all-reduce", 3), ("all-gather", 2)):
        request = request_of(machine, size, collective=collective)
        bare, served = (
            execute(machine, Nccl("nvls", costs=each).plan(request)).end_s for each in (costs(protocols=free), used)
        )
        assert served - bare == pytest.approx((rounds + stages) * 8 * 1e-6 * pace, rel=1e-6)


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
    for collective in ("broadcast", "reduce", "send-recv"):  # no rank keeps a part of its own
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


@pytest.mark.parametrize(
    ("capability", "is_blackwell"),
    [("8.9", False), ("9.0", False), ("9.9", False), ("10.0", True), ("10.3", True), ("12.1", True)],
)
def test_a_chip_is_known_by_all_of_its_capability(capability: str, is_blackwell: bool) -> None:
    part = load_part("a100-sxm4-80gb").model_copy(update={"compute_capability": capability})
    assert costs(blackwell_pace=2.5).pace(part) == pytest.approx(2.5 if is_blackwell else 1.0)


def test_what_no_constant_says_costs_nothing() -> None:
    assert ProtocolCost(1e-6) == ProtocolCost(1e-6, 0.0, 0.0, 1.0, float("inf"), 1.0, 0.0, 0.0)


def test_versions_have_costs_of_their_own() -> None:
    known = DEFAULT(NcclConstants)
    assert costs_of((2, 20)).protocols is costs_of((3, 0)).protocols is known.recent
    assert costs_of((2, 19)).protocols is known.earlier
    assert Nccl().costs.protocols is costs_of(NCCL_TODAY).protocols is known.recent


@pytest.mark.parametrize(
    ("software", "is_recent"), [("nccl 2.20.5", True), ("nccl 3.0", True), ("nccl 2.19", False), ("torch", False)]
)
def test_a_row_of_no_version_is_of_an_earlier_one(software: str, is_recent: bool) -> None:
    row = {"machine": "dgx-h100", "n_gpus": "8", "collective": "all_reduce", "bytes": "1e6", "software": software}
    question = COLLECTIVES.read(lambda column: row.get(column, ""), RowNames()).question
    assert isinstance(question, CollectiveQuestion)
    known = DEFAULT(NcclConstants)
    assert costs_of(question.software.nccl).protocols is (known.recent if is_recent else known.earlier)


def test_a_switch_adds_no_type_of_eight_bits() -> None:
    request = request_of(load_machine("dgx-h100"), 1e9)
    assert Nccl(in_switch=True).plan(request).facts["algorithm"] == "nvls"
    assert Nccl(in_switch=False).plan(request).facts["algorithm"] == "ring"
    with pytest.raises(Unsuitable, match="no switch reduces this type so, which nvls needs; ring and tree do without"):
        Nccl("nvls", in_switch=False).plan(request)


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"])
@pytest.mark.parametrize("name", ["p3.16xlarge", "dgx-h100", "8x-rtx2080ti", "4gpu-pcie"])
def test_every_collective_has_a_plan(collective: Collective, name: str) -> None:
    machine = load_machine(name)
    times = [
        execute(machine, Nccl().plan(request_of(machine, size, collective=collective))).end_s for size in (8, 1e6, 1e9)
    ]
    assert times == sorted(times)
    assert times[0] > 0


def test_all_to_all_and_pairs() -> None:
    machine = crossbar(4)
    used = costs(peer_launch_s=1e-3, launch_s=2e-3)
    assert seconds(machine, used, 8, "all-to-all", 4) == pytest.approx(4 * (2e-3 + 3 * 1e-3), rel=1e-9)
    assert seconds(machine, costs(), _S, "all-to-all") == pytest.approx(3 / 4 * _S / 50e9, rel=1e-9)
    request = request_of(machine, _S, collective="send-recv", pairs=[(0, 1), (1, 0)])
    assert execute(machine, Nccl(costs=costs()).plan(request)).end_s == pytest.approx(_S / 50e9, rel=1e-9)


def test_one_rank_exchanges_nothing() -> None:
    machine = crossbar(2)
    assert execute(machine, Nccl().plan(request_of(machine, _S, gpus=[0]))).end_s == 0


def test_a_star_of_nvlinks_is_a_ring_through_its_middle() -> None:
    """Three hops pass through gpu0, where data are written and read; the unused bandwidth is reported."""
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
    plan = Nccl(costs=costs()).plan(request_of(star, _S))
    # 1 -> (0) -> 2: all bytes of the ring, plus read requests: 16 B for 64 B, where 144 B carry 128 B written
    assert execute(star, plan).end_s == pytest.approx(2 * 3 / 4 * _S * (1 + 2 / 9) / 50e9, rel=1e-6)


def test_five_and_six_gpus_of_the_cube_mesh_have_the_rings_that_nccl_finds() -> None:
    """Six have an NVLink ring both ways; five have one through a neighbour, both ways, though relays carry more."""
    machine = load_machine("p3.16xlarge")
    six = Nccl(costs=costs()).plan(request_of(machine, _S, gpus=[0, 1, 2, 3, 4, 5]))
    assert sorted(six.rings) == [(0, 3, 2, 1, 5, 4), (0, 4, 5, 1, 2, 3)]
    link_Bps = next(link.unit_Bps for link in machine.links if link.kind == "nvlink")
    five = request_of(machine, _S, gpus=[0, 1, 2, 3, 4])
    busbw = 2 * 4 / 5 * _S / execute(machine, Nccl(costs=costs()).plan(five)).end_s
    assert busbw == pytest.approx(2 * link_Bps / (1 + 2 / 9), rel=0.01)
    assert any("NCCL_GRAPH_FILE" in note for note in six.notes)
    whole = Nccl(costs=costs()).plan(request_of(machine, _S))
    assert not any("NCCL_GRAPH_FILE" in note for note in whole.notes)


def test_flows_that_share_a_link_reach_its_share_together() -> None:
    """All-to-all: three flows leave each GPU; together they reach the rate of a ring."""
    machine = crossbar(4)
    used = costs(protocols=all_protocols(ProtocolCost(0.0, 0.0, 0.0, share=0.8)))
    assert seconds(machine, used, _S, "all-to-all") == pytest.approx(3 / 4 * _S / (0.8 * 50e9), rel=1e-9)


def test_nodes_of_unequal_size_have_as_many_heads_as_the_smallest() -> None:
    machine = load_machine("dgx-h100", n_nodes=2)
    for gpus in ([0, 1, 2, 3, 4, 8, 9, 10], [0, 1, 2, 8, 9, 10, 11, 12]):
        plan = Nccl(costs=costs()).plan(request_of(machine, 1e9, gpus=gpus))
        assert execute(machine, plan).end_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgx-h100", "p4d.24xlarge", "dgx-a100-40gb"])
def test_more_nodes_do_not_lose_their_nics(name: str) -> None:
    """From four nodes on, bus bandwidth hardly depends on the number of nodes."""
    found = []
    for n_nodes in (4, 8, 16):
        machine = load_machine(name, n_nodes=n_nodes)
        plan = Nccl().plan(request_of(machine, 8e9))
        n = len(machine.gpus)
        found.append(2 * (n - 1) / n * 8e9 / execute(machine, plan).end_s)
    assert min(found) > 0.85 * max(found)


def test_ranks_in_another_order_are_as_fast() -> None:
    machine = load_machine("dgx-a100-80gb", n_nodes=2)
    times = []
    for gpus in (range(16), [0, 1, 6, 5, 4, 3, 2, 7, 11, 9, 13, 14, 15, 12, 8, 10]):
        times.append(execute(machine, Nccl("ring").plan(request_of(machine, 10e9, gpus=list(gpus)))).end_s)
    assert times[1] == pytest.approx(times[0], rel=0.02)


def test_the_bottleneck_is_the_link_whose_share_is_used_up() -> None:
    """The memory bus is busier than PCIe, but NCCL only reaches a share of PCIe, which is the bound."""
    from tests.asked import exchange_on

    many = exchange_on(load_machine("8x-rtx2080ti"), "nccl", 1e9)
    assert many.bottleneck is not None
    assert many.bottleneck.name == many.facts["bound_link"] == "plx0->cpu0"
    assert many.facts["bound_share"] == 1  # two GPUs per switch fill it
    result = exchange_on(load_machine("4x-v100-sxm2-pcie"), "nccl", 1e9)
    assert result.bottleneck is not None
    assert result.bottleneck.name == result.facts["bound_link"] == "plx0->gpu0"
    share = f"{DEFAULT(NcclConstants).pcie_share:.0%} of its "
    assert any(share in note for note in result.notes)


def test_staging_in_host_memory_is_told() -> None:
    from tests.asked import exchange_on

    machine = machine_from(_PCIE, n_nodes=2, fabric="ethernet-10g")
    assert any("through host memory" in note for note in exchange_on(machine, "ring", 1e6).notes)
    assert not any("through host memory" in note for note in exchange_on(machine_from(_PCIE), "ring", 1e6).notes)


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


@pytest.mark.parametrize("collective", ["send-recv", "all-to-all", "all-reduce"])
def test_what_a_network_plugin_states_is_planned_with_and_not_waited_for(collective: Collective) -> None:
    def plan_and_s(plugin: str) -> tuple[float, float]:
        machine = machine_from(_TWO.replace("PLUGIN", plugin), n_nodes=2)
        algorithm = "ring" if collective == "all-reduce" else None
        plan = Nccl(algorithm, costs_of(NCCL_TODAY)).plan(request_of(machine, 8.0, collective=collective))
        return float(plan.facts.get("planned_us", 0)), execute(machine, plan).end_s

    (near, near_s), (far, far_s) = plan_and_s("0 us"), plan_and_s("50 us")
    assert far_s == near_s
    assert far - near == pytest.approx(100 if collective == "all-reduce" else 0)


@pytest.mark.parametrize(("collective", "hops"), [("send-recv", 1), ("all-to-all", 1), ("all-reduce", 2)])
def test_a_network_plugin_adds_its_time_to_each_hop_between_machines(collective: Collective, hops: int) -> None:
    """With few bytes: in addition to everything else, once per network hop."""

    def time_s(plugin: str) -> float:
        machine = machine_from(_TWO.replace("PLUGIN", f"0 us, plugin_time: {plugin}"), n_nodes=2)
        algorithm = "ring" if collective == "all-reduce" else None
        plan = Nccl(algorithm, costs_of(NCCL_TODAY)).plan(request_of(machine, 8.0, collective=collective))
        return execute(machine, plan).end_s

    assert time_s("50 us") - time_s("0 us") == pytest.approx(50e-6 * hops, rel=1e-6)


def test_a_network_that_reorders_has_simple_alone() -> None:
    """EFA of p4d does not deliver 128 bytes whole and in order, so a flag beside the data cannot signal arrival."""

    def protocols(text: str) -> set[str]:
        machine = machine_from(_TWO.replace("PLUGIN", "0 us").replace("network: ethernet", text), n_nodes=2)
        plans = [Nccl().plan(request_of(machine, size)) for size in (8.0, 1e5, 1e9)]
        return {str(plan.facts["protocol"]) for plan in plans}

    assert protocols("network: ethernet, in_order: false") == {"Simple"}
    assert "LL" in protocols("network: ethernet")


def test_the_first_window_goes_over_the_network_stage_by_stage() -> None:
    """NVLS over two machines: 16 x 8 x 64 KiB twice through buffers, and as often up and down."""
    machine = load_machine("dgx-h100", n_nodes=2)
    size = 16 * 8 * 128 * 1024
    known = all_protocols(_FREE)

    def time_s(nvls: ProtocolCost) -> float:
        plan = Nccl("nvls_tree", costs(protocols=known | {"NVLSTree": nvls})).plan(request_of(machine, size))
        return execute(machine, plan).end_s

    nvlink = next(link for link in machine.links if link.kind == "nvlink")
    nic = next(link for link in machine.links if link.kind == "infiniband")
    link_s, net_s = size / nvlink.bandwidth_Bps, size / 8 / nic.bandwidth_Bps
    assert time_s(ProtocolCost(0.0, fill=1.0)) == pytest.approx(2 * link_s + 2 * net_s, rel=0.02)
    assert time_s(_FREE) == pytest.approx(max(link_s, net_s), rel=0.1)


def test_the_plugin_for_efa_makes_the_chunks_of_nvls_four_times_as_large() -> None:
    """For 1 GiB, fewer than 32 rounds of 512 KiB: twice 16 channels x 8 heads x 256 KiB."""
    machine = load_machine("p5.48xlarge", n_nodes=2)
    size = 2.0**30
    known = all_protocols(_FREE)

    def time_s(fill: float) -> float:
        strategy = Nccl("nvls_tree", costs(protocols=known | {"NVLSTree": ProtocolCost(0.0, fill=fill)}))
        return execute(machine, strategy.plan(request_of(machine, size))).end_s

    nic = next(link for link in machine.links if link.kind == "efa")
    nvlink = next(link for link in machine.links if link.kind == "nvlink")
    window = 16 * 8 * 512 * 1024
    filled_s = window / nvlink.bandwidth_Bps + 2 * window / 8 / (4 * nic.bandwidth_Bps)
    assert time_s(1.0) - time_s(0.0) == pytest.approx(filled_s, rel=0.05)


@pytest.mark.parametrize(
    "name", ["dgx-h100", "p5.48xlarge", "dgx-b200", pytest.param("gb200-nvl72", marks=pytest.mark.slow)]
)
def test_two_machines_are_no_faster_than_one_for_the_same_bytes(name: str) -> None:
    """Measured: 480 GB/s (busbw) on one DGX H200, 274 of the buffer; 468 on two, 250 of it (nebius-8xh100)."""
    one, two = (load_machine(name, n_nodes=n) for n in (1, 2))
    for size in (64e6, 1.073e9):
        times = [execute(m, Nccl().plan(request_of(m, size))).end_s for m in (one, two)]
        assert times[0] <= times[1]


def test_nvls_reaches_less_of_a_younger_gpus_links() -> None:
    """By NCCL's own figures: 0.74 on Blackwell where it is 0.85 on Hopper."""
    known = costs_of(NCCL_TODAY)
    shares = [known.nvls([load_machine(name).nodes[0]], several=False).share for name in ("dgx-h100", "dgx-b200")]
    assert shares[0] == known.protocols["NVLS"].share
    assert shares[1] == pytest.approx(shares[0] * 0.74 / 0.85)


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "dgx-h100"])
def test_ampere_uses_less_of_its_links_in_ll128(name: str) -> None:
    """From 8 to 16 MiB a ring of eight takes 7/4 of the bytes, with flags, at the share of the link, and own passes."""
    machine = load_machine(name)
    known = DEFAULT(NcclConstants)
    cost = known.recent["LL128"]
    share = known.ampere_ll128_share if name == "dgx-a100-80gb" else cost.share
    part = load_part("a100-sxm4-80gb" if name == "dgx-a100-80gb" else "h100-sxm5-80gb")
    link_Bps = min(link.bandwidth_Bps for link in machine.links if link.kind == "nvlink")
    slope_s = cost.wire * 7 / 4 / (share * link_Bps) + cost.own_passes / 8 / part.memory_bandwidth
    times = [
        execute(machine, Nccl("ring", protocol="LL128").plan(request_of(machine, float(size)))).end_s
        for size in (8 << 20, 16 << 20)
    ]
    assert times[1] - times[0] == pytest.approx(slope_s * (8 << 20), rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_an_all_to_all_is_no_faster_than_its_blocks(n: int) -> None:
    """On B200 the blocks bind for any number of GPUs, as they copy the part that a rank keeps too."""
    machine, size = load_machine("dgx-b200"), 1 << 28
    blocks_Bps = 32 * DEFAULT(NcclConstants).recent["P2P"].channel_Bps
    times = [
        execute(
            machine, Nccl().plan(request_of(machine, float(k * size), collective="all-to-all", gpus=range(n)))
        ).end_s
        for k in (1, 2)
    ]
    assert times[1] - times[0] == pytest.approx(size / blocks_Bps, rel=1e-6)
