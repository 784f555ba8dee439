"""NCCL's cost model compared with worked rows: a table beside the project, and others given here."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.collectives.communicator import Unsuitable
from simulator.collectives.nccl.strategy import channels_used
from simulator.collectives.nccl.tables import planned_nvlink, planned_pcie, search_speeds
from simulator.collectives.nccl.tuning import CommGraph, NcclChoice, TunedPair, candidates, fastest_choice

KIB, MIB = 1024, 1024**2
FACTS = Path(os.environ.get("TOPOCAST_FACTS") or Path(__file__).parents[3] / "shared" / "facts")
GOLDEN = FACTS / "nccl_model_golden.csv"
GENERATION = {"dgx1v": 70, "a100": 80, "h100": 90, "pcie": 61}


def model(*of: Any) -> tuple[float, float] | None:
    return TunedPair(*of).figures()


def graph(**changes: Any) -> CommGraph:
    """Return the graph of eight V100s in a cube mesh, with *changes*."""
    plain = CommGraph(
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
    )
    return replace(plain, **changes)


CUBE_MESH = graph()
A100 = graph(n_channels=12, comm_channels=24, compute_capability_min=80, compute_capability_max=80, cpu="amd")
H100 = graph(
    n_channels=12,
    comm_channels=24,
    bw_intra_GBps=30,
    bw_inter_GBps=30,
    compute_capability_min=90,
    compute_capability_max=90,
    has_nvlink_switch=True,
    nvls_channels=8,
    nvls_bw_intra_GBps=40,
    nvls_bw_inter_GBps=60,
)
TWO_H100 = replace(
    H100,
    n_ranks=16,
    n_nodes=2,
    n_channels=8,
    comm_channels=16,
    bw_intra_GBps=45,
    bw_inter_GBps=45,
    type_inter="pxn",
    nvls_bw_inter_GBps=48,
)
# One A100 with one 200 Gbit/s NIC in each of four nodes: only the network counts.
FOUR_NODES = replace(
    A100, n_ranks=4, n_nodes=4, n_channels=1, comm_channels=2, bw_intra_GBps=24, bw_inter_GBps=24, type_intra="loc"
)


def rows() -> list[dict[str, str]]:
    if not GOLDEN.exists():
        return []
    with GOLDEN.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.skipif(not GOLDEN.exists(), reason=f"no {GOLDEN.name} in {FACTS}; set TOPOCAST_FACTS to its folder")
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['case']}-{row['algo']}-{row['proto']}-{row['bytes']}")
def test_golden_rows(row: dict[str, str]) -> None:
    generation = GENERATION[row["case"].split("_")[0]]
    given = CommGraph(
        n_ranks=int(row["nRanks"]),
        n_nodes=int(row["nNodes"]),
        n_channels=int(row["graph_nChannels"]),
        bw_intra_GBps=float(row["bwIntra"]),
        bw_inter_GBps=float(row["bwInter"]),
        type_intra="nvl" if row["typeIntra"] == "nvl" else "phb",
        type_inter="pix",
        compute_capability_min=generation,
        compute_capability_max=generation,
        cpu="amd" if row["cpu"] == "amd" else "intel",
        comm_channels=int(row["comm_channels"]),
    )
    size = float(row["bytes"])
    [found] = [
        choice
        for choice in candidates(given, "all-reduce", size, algorithms=["ring", "tree"])
        if (choice.algorithm, choice.protocol) == (row["algo"], row["proto"])
    ]
    figures = model(given, "all-reduce", found.algorithm, found.protocol)
    assert figures is not None
    latency, algbw = figures
    assert latency == pytest.approx(float(row["latency_us"]), abs=0.5e-3)
    assert algbw == pytest.approx(float(row["algbw_GBps"]), abs=0.51e-4)
    assert found.time_us == pytest.approx(float(row["predicted_us"]), abs=0.51e-3)


# Latency in us, algbw in GB/s, and the time of a size, computed by hand from the tables.
WORKED = [
    # 6.6 + 14 x .6; min(39, 120 / 2) x 8 / 14
    (CUBE_MESH, "all-reduce", "ring", "LL", 15.0, 39 * 8 / 14, KIB, 15.0 + 1.024 / (39 * 8 / 14)),
    # .92 x 120 = 110.4 below 6 x 20
    (CUBE_MESH, "all-reduce", "ring", "LL128", 40.6, 110.4 * 8 / 14, MIB, 40.6 + 1048.576 / (110.4 * 8 / 14)),
    (CUBE_MESH, "all-reduce", "ring", "Simple", 56.0, 120 * 8 / 14, MIB, 56.0 + 1048.576 / (120 * 8 / 14)),
    # 8.4 + 14 x 4; 110.4 below 6 x 26.5; 2^14 x 64 B: .5
    (CUBE_MESH, "all-reduce", "tree", "Simple", 64.4, 55.2, MIB, 64.4 + 1048.576 / 27.6),
    # 110.4 x 7 / 9; .6
    (CUBE_MESH, "all-reduce", "tree", "LL128", 31.5, 110.4 * 7 / 18, MIB, 31.5 + 1048.576 / (0.6 * 110.4 * 7 / 18)),
    # seven steps, 8 / 7
    (CUBE_MESH, "all-gather", "ring", "Simple", 32.2, 120 * 8 / 7, MIB, 32.2 + 1048.576 * 7 / 960),
    (CUBE_MESH, "reduce-scatter", "ring", "LL", 10.8, 39 * 8 / 7, 0, 10.8),
    # one hop with equal channels; n / n = 1
    (CUBE_MESH, "broadcast", "ring", "Simple", 11.8, 120.0, 0, 11.8),
    # eight tree hops of 4 where channels differ
    (replace(CUBE_MESH, same_channels=False), "reduce", "ring", "Simple", 40.4, 120.0, 0, 40.4),
    (replace(CUBE_MESH, same_channels=False), "reduce", "ring", "LL", 11.4, 39.0, 0, 11.4),
    # min(240 / 2, 87.7)
    (A100, "all-reduce", "ring", "LL", 15.0, 87.7 * 8 / 14, 0, 15.0),
    # 40 x .85 x 7 / 8 x 2 = 59.5 below 60
    (H100, "all-reduce", "nvls", "Simple", 25.0, 8 * 59.5 * 8 / 14, 0, 25.0),
    (H100, "all-gather", "nvls", "Simple", 25.0, 8 * 40 * 0.85 * (7 / 8) ** 2, 0, 25.0),
    # 28 hops of 3.4, above the overhead of 3; two over the network
    (TWO_H100, "all-reduce", "ring", "Simple", 131.6, 192.0, MIB, 131.6 * 1.4 + 1048.576 / 192),
    # below 64 B for each rank and channel nothing is added
    (TWO_H100, "all-reduce", "ring", "Simple", 131.6, 192.0, 16 * KIB - 1, 131.6 + 16.383 / 192),
    # capped at 57.7, below 59.5 and 96; 25 + 2 x 20.9
    (TWO_H100, "all-reduce", "nvls_tree", "Simple", 66.8, 8 * 57.7 * 16 / 30, 0, 66.8),
    # three nodes with six hops of the tree's network latency: 8.4 + 6 x 14
    (FOUR_NODES, "all-reduce", "ring", "Simple", 92.4, 16.0, 0, 92.4),
    # plain tree: min(.92 x 24, 17.8) x .85 / 2; 8.4 + 2 x 2 x 14
    (FOUR_NODES, "all-reduce", "tree", "Simple", 64.4, 17.8 * 0.85 / 2, 0, 64.4),
    # 8 + 2 x 14 / 3.5 + 4 x 2.8
    (FOUR_NODES, "all-gather", "pat", "Simple", 27.2, 18.0, 0, 27.2),
]


@pytest.mark.parametrize(("given", "collective", "algorithm", "protocol", "latency", "algbw", "size", "time"), WORKED)
def test_worked_by_hand(
    given: CommGraph,
    collective: Any,
    algorithm: Any,
    protocol: Any,
    latency: float,
    algbw: float,
    size: int,
    time: float,
) -> None:
    assert model(given, collective, algorithm, protocol) == pytest.approx((latency, algbw))
    [found] = [c for c in candidates(given, collective, size, algorithms=[algorithm]) if c.protocol == protocol]
    assert found.time_us == pytest.approx(time)
    assert found.latency_us + size / (1000 * found.algbw_GBps) == pytest.approx(time)


def pairs(given: CommGraph, collective: Any) -> set[tuple[str, str]]:
    return {(c.algorithm, c.protocol) for c in candidates(given, collective, MIB)}


RINGS = {("ring", "LL"), ("ring", "LL128"), ("ring", "Simple")}
TREES = {("tree", "LL"), ("tree", "LL128"), ("tree", "Simple")}


def test_enabled_pairs() -> None:
    assert pairs(CUBE_MESH, "all-reduce") == RINGS | TREES
    assert pairs(CUBE_MESH, "broadcast") == RINGS
    assert pairs(H100, "all-reduce") == RINGS | TREES | {("nvls", "Simple")}
    assert pairs(H100, "all-gather") == RINGS | {("nvls", "Simple")}
    assert pairs(TWO_H100, "all-reduce") == RINGS | TREES | {("nvls_tree", "Simple")}
    assert pairs(TWO_H100, "all-gather") == RINGS
    assert pairs(FOUR_NODES, "reduce-scatter") == RINGS | {("pat", "Simple")}
    assert pairs(CUBE_MESH, "all-to-all") == pairs(graph(n_ranks=1), "all-reduce") == set()


@pytest.mark.parametrize(
    ("changes", "enabled"),
    [
        ({}, True),
        ({"type_intra": "nvb"}, True),
        ({"type_intra": "pix"}, False),
        ({"n_ranks": 16, "n_nodes": 2, "type_inter": "pxb"}, True),
        ({"n_ranks": 16, "n_nodes": 2, "type_inter": "pxn"}, False),
        ({"type_inter": "phb"}, True),  # no traffic leaves the machine
        ({"compute_capability_min": 60, "compute_capability_max": 60}, False),
        ({"compute_capability_max": 80}, False),
        ({"compute_capability_min": 90, "compute_capability_max": 100}, True),
    ],
)
def test_ll128_only_where_stores_arrive_whole(changes: dict[str, Any], enabled: bool) -> None:
    assert (("ring", "LL128") in pairs(graph(**changes), "all-reduce")) is enabled


def test_hops_other_than_nvlink_cost_as_much_as_pcie() -> None:
    assert model(graph(type_intra="nvb"), "all-reduce", "ring", "LL") == pytest.approx((20.6, 39 * 8 / 14))
    figures = model(graph(type_intra="phb", cpu="ibm"), "all-reduce", "tree", "Simple")
    assert figures == pytest.approx((8.4 + 14 * 5.7, 55.2))


def test_network_posts_of_amd_cost_twice() -> None:
    two = graph(n_ranks=16, n_nodes=2, cpu="amd", nic_latency_us=5.0)
    # 14 + 28 max(1.9, 2) + 2 (4 + 5); Simple flushes: 8.4 + 28 x 6 + 2 (14 + 10)
    assert model(two, "all-reduce", "ring", "LL128") == pytest.approx((88.0, 110.4 * 16 / 30))
    assert model(two, "all-reduce", "ring", "Simple") == pytest.approx((224.4, 64.0))
    assert model(two, "all-reduce", "ring", "LL") == pytest.approx((6.6 + 28 * 2 + 2 * 7.7, 22.5 * 16 / 30))
    slow = [c for c in candidates(two, "all-reduce", MIB, algorithms=["ring"]) if c.protocol == "Simple"]
    assert slow[0].latency_us == pytest.approx(224.4 * 1.9)


def test_tree_has_its_own_speed_within_two_nodes() -> None:
    two = graph(n_ranks=16, n_nodes=2, n_channels=1, comm_channels=2, bw_intra_GBps=3, bw_inter_GBps=3)
    faster = replace(two, tree_bw_intra_GBps=6.0)
    assert model(faster, "all-reduce", "tree", "Simple") == pytest.approx((8.4 + 2 * (7 * 4 + 14), 0.92 * 6 / 2))
    assert model(faster, "all-reduce", "ring", "Simple") == model(two, "all-reduce", "ring", "Simple")
    four = replace(faster, n_ranks=32, n_nodes=4)
    assert model(four, "all-reduce", "tree", "Simple") == model(
        replace(four, tree_bw_intra_GBps=None), "all-reduce", "tree", "Simple"
    )


def test_nvls_tree_is_corrected_on_blackwell_with_x86() -> None:
    old = replace(TWO_H100, compute_capability_min=100, compute_capability_max=100)
    [corrected] = candidates(old, "all-reduce", MIB, algorithms=["nvls_tree"])
    [plain] = candidates(replace(old, cpu="arm"), "all-reduce", MIB, algorithms=["nvls_tree"])
    assert corrected.algbw_GBps == pytest.approx(plain.algbw_GBps * 0.5)


@pytest.mark.parametrize(
    ("given", "size", "algorithm", "protocol"),
    [
        (CUBE_MESH, KIB, "ring", "LL"),
        (CUBE_MESH, MIB, "ring", "LL128"),
        (CUBE_MESH, 256 * MIB, "ring", "Simple"),
        (A100, MIB, "ring", "LL"),
        (TWO_H100, KIB, "tree", "LL"),
        (TWO_H100, MIB, "tree", "LL128"),
        (TWO_H100, 256 * MIB, "ring", "Simple"),
    ],
)
def test_choice_among_rings_and_trees(given: CommGraph, size: int, algorithm: str, protocol: str) -> None:
    found = fastest_choice(given, "all-reduce", size, algorithms=["tree", "ring"])
    assert (found.algorithm, found.protocol) == (algorithm, protocol)


def test_nvls_is_chosen_for_large_sizes_on_hopper() -> None:
    assert fastest_choice(H100, "all-reduce", 256 * MIB).algorithm == "nvls"
    assert fastest_choice(TWO_H100, "all-reduce", 256 * MIB).algorithm == "nvls_tree"


def test_of_equal_times_the_first_in_order_is_chosen() -> None:
    none = replace(CUBE_MESH, n_ranks=2)
    assert fastest_choice(none, "all-reduce", 0).protocol == "LL"
    found = candidates(CUBE_MESH, "all-reduce", MIB)
    assert [c.algorithm for c in found] == ["tree"] * 3 + ["ring"] * 3


def test_nothing_to_choose_from() -> None:
    with pytest.raises(Unsuitable, match="NCCL has no algorithm for all-to-all on 8 ranks"):
        fastest_choice(CUBE_MESH, "all-to-all", MIB)
    with pytest.raises(Unsuitable, match="NCCL has no algorithm for all-reduce on 8 ranks among nvls"):
        fastest_choice(CUBE_MESH, "all-reduce", MIB, algorithms=["nvls"])


@pytest.mark.parametrize(
    ("given", "algorithm", "protocol", "size", "channels", "threads"),
    [
        (CUBE_MESH, "ring", "Simple", 256 * MIB, 12, 512),
        (CUBE_MESH, "ring", "Simple", 12 * 512 * 64, 12, 512),
        (CUBE_MESH, "ring", "Simple", 12 * 512 * 64 - 1, 11, 512),
        (CUBE_MESH, "ring", "LL", 3 * 512 * 64, 3, 512),  # 8 B x 8 ranks
        (CUBE_MESH, "tree", "LL", 3 * 512 * 8, 3, 512),
        (CUBE_MESH, "ring", "LL128", 2 * 640 * 8, 2, 640),
        (CUBE_MESH, "ring", "Simple", 512 * 32, 1, 256),
        (CUBE_MESH, "ring", "Simple", 4, 1, 64),
        (graph(n_channels=1, comm_channels=2, bw_intra_GBps=12), "ring", "Simple", MIB, 2, 256),
        (H100, "nvls", "Simple", KIB, 16, 640),
        (replace(H100, compute_capability_min=100), "nvls", "Simple", KIB, 24, 640),
        (replace(TWO_H100, compute_capability_min=100), "nvls_tree", "Simple", KIB, 32, 640),
    ],
)
def test_channels_used(given: CommGraph, algorithm: Any, protocol: Any, size: int, channels: int, threads: int) -> None:
    choice = NcclChoice(algorithm, protocol, 0.0, 1.0, 0.0)
    *used, filled = channels_used(given, choice, size)
    assert used == [channels, threads]
    assert int(filled) == channels  # as the buffer grows, the next channel fills gradually


def test_planning_bandwidths() -> None:
    assert [planned_nvlink(cc) for cc in (60, 70, 75, 80, 86, 89, 90, 100, 103)] == [
        *(18.0, 20.0, 20.0, 20.0, 12.0, 20.0, 20.6, 40.1, 40.1)
    ]
    assert planned_nvlink(52) == 20.0
    assert [planned_pcie(nominal) for nominal in (15.754e9, 7.877e9, 31.508e9, 63.015e9)] == [12.0, 6.0, 24.0, 48.0]
    assert [planned_pcie(nominal) for nominal in (16e9, 8e9, 4e9, 0.985e9)] == [12.0, 6.0, 3.0, 0.75]
    assert planned_pcie(11e9) == pytest.approx(8.38, abs=0.01)
    assert search_speeds(70, inter=False)[0] == 40
    assert search_speeds(90, inter=True)[:2] == (48, 45)
    assert search_speeds(120, inter=False)[0] == 90
