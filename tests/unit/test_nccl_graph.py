"""Results of the search: the worked outcomes, and small machines calculated by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator, Request
from simulator.collectives.nccl.graph import comm_graph
from simulator.collectives.nccl.paths import Sight, rank_of
from simulator.collectives.nccl.search import Search
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.nccl.tables import PATH_TYPES
from simulator.collectives.nccl.tuning import CommGraph, candidates
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.topology.load import load_topology
from tests.machines import crossbar, machine_from, machines, ring_machine


def found(machine: Machine, ranks: Sequence[int] | None = None) -> CommGraph:
    nodes = machine.gpus if ranks is None else tuple(machine.gpus[rank] for rank in ranks)
    return comm_graph(Communicator(machine, nodes))


def built_in(name: str, n_nodes: int | None = None) -> Machine:
    return compile_machine(load_topology(name, n_nodes=n_nodes))


def boxed(graph: CommGraph) -> tuple[int, float, int, str]:
    return graph.n_channels, graph.bw_intra_GBps, graph.comm_channels, graph.type_intra


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_nodes", "expected"),
    [
        ("p3.16xlarge", None, (6, 20, 12, "nvl")),
        ("dgx-1-v100-32gb", None, (6, 20, 12, "nvl")),
        ("4x-a100-nvlink", None, (12, 20, 24, "nvl")),
        ("p4d.24xlarge", None, (12, 20, 24, "nvl")),
        ("dgx-h100", None, (12, 30, 24, "nvl")),
        ("dgx-h100", 2, (8, 45, 16, "nvl")),
        ("p5.48xlarge", 2, (8, 45, 16, "nvl")),  # four adapters of 100 Gbit/s act as one
        ("dgx-2", None, (6, 20, 12, "nvl")),
        ("dgx-b200", None, (16, 45, 32, "nvl")),
        # Not in the table of worked outcomes, but by the same rules:
        ("dgx-1-p100", None, (4, 18, 8, "nvl")),  # two cycles in both directions take all four links
        ("dgx-a100-80gb", 2, (8, 24, 16, "nvl")),  # eight adapters behind PCIe 4
        ("p4d.24xlarge", 2, (4, 12, 8, "nvl")),
        ("dgx-1-v100-32gb", 2, (4, 12, 8, "nvl")),
    ],
)
def test_worked_outcomes(name: str, n_nodes: int | None, expected: tuple[int, float, int, str]) -> None:
    assert boxed(found(built_in(name, n_nodes))) == expected


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([0, 3], (2, 20, 4, "nvl")),  # 1 x 40, doubled
        ([0, 1], (1, 20, 2, "nvl")),
        ([0, 1, 2, 3], (4, 20, 8, "nvl")),
        ([4, 5, 6, 7], (4, 20, 8, "nvl")),
        ([3, 2, 1, 0], (4, 20, 8, "nvl")),
        ([0, 1, 4], (1, 20, 2, "nvb")),  # 1 and 4 are only connected through 0
        ([0, 5], (1, 6, 2, "sys")),  # nothing passes through GPUs of other ranks
    ],
)
def test_parts_of_the_cube_mesh(ranks: list[int], expected: tuple[int, float, int, str]) -> None:
    graph = found(built_in("p3.16xlarge"), ranks)
    assert boxed(graph) == expected
    assert graph.n_ranks == len(ranks)


def test_eight_v100_in_full() -> None:
    assert found(built_in("p3.16xlarge")) == CommGraph(
        n_ranks=8,
        n_nodes=1,
        n_channels=6,
        bw_intra_GBps=20,
        bw_inter_GBps=20,
        type_intra="nvl",
        type_inter="pix",
        compute_capability_min=70,
        compute_capability_max=70,
        cpu="intel",
        comm_channels=12,
        same_channels=False,
    )


def test_two_machines_with_one_slow_adapter_each() -> None:
    graph = found(built_in("p3.16xlarge", 2))
    assert boxed(graph) == (1, 3, 2, "nvl")
    assert (graph.n_ranks, graph.n_nodes) == (16, 2)
    assert graph.type_inter == "phb"  # no GPUDirect
    assert graph.tree_bw_intra_GBps == 6  # 3 -> 4 -> 5 -> 6, twice the network's


def test_hopper_with_an_adapter_for_each_gpu() -> None:
    graph = found(built_in("dgx-h100", 2))
    assert graph.type_inter == "pxn"
    assert graph.tree_bw_intra_GBps == 45  # 7 x 48 + 45 do not leave through 370.8
    assert (graph.nvls_channels, graph.nvls_bw_intra_GBps, graph.nvls_bw_inter_GBps) == (8, 40, 48)
    alone = found(built_in("dgx-h100"))
    # 9 x 40 of 370.8; the inter-node speed, without a network, is raised to the last value
    assert (alone.nvls_channels, alone.nvls_bw_intra_GBps, alone.nvls_bw_inter_GBps) == (8, 40, 60)
    assert found(built_in("dgx-h100"), [0, 1]).nvls_channels == 0
    assert {c.algorithm for c in candidates(alone, "all-reduce", 1e6)} == {"tree", "ring", "nvls"}


def test_equal_machines_cost_one_search() -> None:
    two, many = found(built_in("dgx-h100", 2)), found(built_in("dgx-h100", 64))
    assert boxed(two) == boxed(many)


def test_one_gpu_in_each_machine() -> None:
    graph = found(built_in("dgx-h100", 2), [0, 8])
    assert boxed(graph) == (2, 24, 4, "loc")  # 1 x 48, doubled
    assert graph.tree_bw_intra_GBps == 24
    assert found(built_in("p3.16xlarge", 2), [5, 8]).type_inter == "sys"


def test_machines_agree_on_the_least() -> None:
    graph = found(built_in("dgx-h100", 2), [*range(8), 8])  # eight GPUs in one machine, one in the other
    assert boxed(graph) == (2, 24, 4, "nvl")
    assert (graph.type_inter, graph.nvls_channels) == ("pxn", 0)


def test_efa_states_its_latency() -> None:
    assert found(built_in("p4d.24xlarge", 2)).nic_latency_us == 75
    assert found(built_in("p4d.24xlarge")).nic_latency_us == 0
    assert found(built_in("dgx-h100", 2)).nic_latency_us == 0


BOX = """
schema_version: 1
name: box
devices:
  gpu[0-{last}]: {{part: {gpu}}}
  cpu[0-1]: {{part: {cpu}}}
  switch[0-1]: {{kind: pcie-switch}}
links:
  - {{between: ["gpu[0-{last}]", "{above}"], part: {link}}}
  - {{between: ["switch[0-1]", "{roots}"], part: {link}}}
  - {{between: [cpu0, cpu1], kind: socket, bandwidth: 38.4 GB/s}}
transport: {{peer_to_peer: {peer}}}
"""


def box(
    above: str,
    roots: str = "cpu[0-1]",
    gpu: str = "p100-pcie-16gb",
    cpu: str = "xeon-e5-2686-v4",
    link: str = "pcie3-x16",
    peer: str = "pxb",
) -> Machine:
    last = above.count(",")
    return machine_from(BOX.format(last=last, above=above, roots=roots, gpu=gpu, cpu=cpu, link=link, peer=peer))


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (box("switch[0,0,0,0]"), (1, 12, 2, "pix")),
        (box("cpu[0,0]"), (1, 10, 2, "phb")),  # 12 / 1.2 through an Intel CPU
        (box("cpu[0,0]", cpu="epyc-7502"), (1, 12, 2, "phb")),
        (box("switch[0,0,1,1]", "cpu[0,0]"), (1, 10, 2, "phb")),
        (box("switch[0,0,1,1]"), (1, 6, 2, "sys")),  # Broadwell
        (box("switch[0,0,1,1]", cpu="xeon-gold-6230"), (1, 10, 2, "sys")),
        (box("switch[0,0,1,1]", cpu="epyc-7502", link="pcie4-x16"), (1, 15, 2, "sys")),
        (box("switch[0,0]", peer="none"), (1, 5, 2, "phb")),  # both staged in host memory over one link
        (box("switch[0,0]", gpu="h100-pcie", link="pcie5-x16"), (2, 24, 4, "pix")),  # 1 x 40 is less
    ],
)
def test_pcie_boxes(machine: Machine, expected: tuple[int, float, int, str]) -> None:
    assert boxed(found(machine)) == expected


def test_two_islands_of_nvlink_get_two_channels() -> None:
    graph = found(built_in("8x-quadro-rtx8000-nvlink"), [0, 1, 2, 3])
    assert boxed(graph) == (2, 5, 4, "phb")  # 2 x 5 x 1.2 through the CPU
    assert boxed(found(built_in("8x-quadro-rtx8000-nvlink"), [0, 1, 2])) == (1, 10, 2, "phb")


def test_gpus_without_capability_are_taken_for_an_a100_with_links_as_fast_as_theirs() -> None:
    graph = found(ring_machine(4, "54 GB/s"))
    assert boxed(graph) == (4, 20, 8, "nvl")  # 40 each way, doubled
    assert (graph.compute_capability_min, graph.compute_capability_max, graph.cpu) == (80, 80, "other")
    assert boxed(found(crossbar(4, "50 GB/s"))) == (2, 20, 4, "nvl")


def test_gpus_of_other_makers() -> None:
    graph = found(built_in("8x-mi300x"))
    assert graph.n_channels * graph.bw_intra_GBps == 280  # seven rings of 40
    assert graph.compute_capability_min == 80


def test_nothing_found_is_one_slow_ring() -> None:
    graph = found(ring_machine(4, "1 GB/s"))
    assert boxed(graph) == (1, 0.1, 2, "sys")


def test_a_single_rank() -> None:
    graph = found(built_in("p3.16xlarge"), [0])
    assert (graph.n_channels, graph.type_intra) == (1, "loc")
    assert candidates(graph, "all-reduce", 1e6) == []


def test_path_classes_of_the_cube_mesh() -> None:
    machine = built_in("p3.16xlarge")
    seen = Sight(machine, machine.nodes, network=True).of(machine.gpus)
    nic = seen.nets[0]
    of = {key: (PATH_TYPES[path.kind], path.bandwidth) for key, path in seen.paths.items()}
    assert of[0, 3] == ("nvl", 40_000)
    assert of[0, 1] == ("nvl", 20_000)
    assert of[0, 5] == ("nvb", 20_000)
    assert of[0, 7] == ("nvb", 40_000)  # through 3 or 4: the wider path
    assert of[0, nic] == ("phb", 3_125)
    assert of[nic, 7] == ("sys", 3_125)
    pair = Sight(machine, machine.nodes, network=False).of((0, 1))
    assert set(pair.paths) == {(0, 1), (1, 0)}


def test_adapters_behind_a_neighbour() -> None:
    machine = built_in("dgx-h100", 2)
    host = [node for node in machine.nodes if node.host == 0]
    seen = Sight(machine, host, network=True).of(tuple(machine.gpus_of(0)))
    first, second = seen.nets[:2]
    assert seen.paths[0, first].kind == rank_of["pix"]
    assert seen.paths[0, second].kind == rank_of["pxn"]
    assert seen.paths[second, 0].kind > rank_of["pxn"]  # data arrive at the GPU beside the adapter
    assert seen.paths[0, second].bandwidth == 48_000


@pytest.mark.slow
@given(machines())
def test_any_machine_has_a_plan_within_what_its_links_carry(machine: Machine) -> None:
    graph = found(machine)
    assert graph == found(machine)
    assert graph.n_channels >= 1
    assert graph.comm_channels == min(2 * graph.n_channels, 64)
    assert candidates(graph, "all-reduce", 1e6)
    seen = Sight(machine, machine.nodes, network=False).of(machine.gpus)
    for gpu in machine.gpus:
        leaving = {path.hops[0] for (a, _), path in seen.paths.items() if a == gpu}
        planned = graph.n_channels * graph.bw_intra_GBps * 1000
        assert graph.bw_intra_GBps == 0.1 or planned <= sum(seen.capacity[link] for link in leaving)


def test_superchips_reach_their_adapters_over_the_cpu() -> None:
    assert boxed(found(built_in("gb200-nvl72"))) == (16, 45, 32, "nvl")
    graph = found(built_in("dgx-spark", 2))
    assert (graph.type_inter, graph.cpu) == ("p2c", "arm")


def test_every_two_sockets_are_joined() -> None:
    machine = machine_from(
        """
schema_version: 1
name: three sockets in a row
devices:
  gpu[0-1]: {part: t4}
  cpu[0-2]: {part: epyc-7502}
links:
  - {between: ["gpu[0-1]", "cpu[0,2]"], part: pcie4-x16}
  - {between: ["cpu[0-1]", "cpu[1-2]"], part: xgmi-socket}
"""
    )
    assert boxed(found(machine)) == (1, 15, 2, "sys")  # of 16 between AMD sockets
    assert len(Sight(machine, machine.nodes, network=False).of(machine.gpus).paths[0, 1].hops) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "taking_part"),
    [("gb200-nvl72", range(0, 72, 9)), ("gb200-nvl72", (3, 4, 5, 70)), ("p2.16xlarge", (0, 3)), ("dgx-h100", (1, 6))],
)
@pytest.mark.parametrize("several", [True, False])
def test_who_else_is_there_changes_nothing(topology: str, taking_part: Sequence[int], several: bool) -> None:
    """Paths searched once for all GPUs equal those found where only some exist."""
    machine = built_in(topology)
    gpus = tuple(machine.gpus[i] for i in taking_part)
    nodes = [node for node in machine.nodes if node.kind != "gpu" or node.index in gpus]
    among_all, alone = (Sight(machine, some, network=several).of(gpus) for some in (machine.nodes, nodes))
    for pair, path in alone.paths.items():
        other = among_all.paths[pair]
        assert (path.kind, path.bandwidth, len(path.hops)) == (other.kind, other.bandwidth, len(other.hops))
        assert sorted(share for _, share in path.loads) == sorted(share for _, share in other.loads)
    assert alone.paths.keys() == among_all.paths.keys()
    assert (alone.total, alone.has_switch) == (among_all.total, among_all.has_switch)
    searches = [Search(seen, 90, several).found() for seen in (among_all, alone)]
    assert searches[0] == searches[1]


def test_groups_on_equal_racks_are_searched_once() -> None:
    machine = built_in("gb200-nvl72", 4)
    whole = Communicator(machine, machine.gpus)
    first, second = (comm_graph(whole.part(range(rack * 72, rack * 72 + 4))) for rack in (0, 3))
    assert first == second
    searches = [key for key in whole.router._young if key[0] == "nccl search"]
    assert len(searches) == 1


@pytest.mark.parametrize(("name", "algorithms"), [("gcp-a3-mega", {"ring", "tree"}), ("gcp-a3-high", {"ring"})])
def test_an_adapter_limits_nccl_to_what_its_setup_leaves(name: str, algorithms: set[str]) -> None:
    machine = load_machine(name, n_nodes=2)
    group = Communicator(machine, machine.gpus)
    for size in (1 << 10, 1 << 20, 1 << 30):
        facts = Nccl().plan(Request(group, "all-reduce", size)).facts
        assert facts["algorithm"] in algorithms
        assert facts["protocol"] == "Simple"
    assert Nccl("tree").plan(Request(group, "all-reduce", 1 << 20)).facts["algorithm"] == "tree"  # NCCL_ALGO wins
    inside = Communicator(machine, machine.gpus[:8])
    assert Nccl().plan(Request(inside, "all-reduce", 1 << 30)).facts["algorithm"] == "nvls"
