"""The built-in machines and parts load, state their sources, and are wired as published."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from simulator.network.compiling import compile_machine
from simulator.network.routing import Router
from simulator.topology import Topology, catalogue
from simulator.topology.json_schema import json_schemas, write_json_schemas
from simulator.topology.load import load_topology, topology_from_text
from simulator.topology.parts import CpuPart, GpuPart, LinkPart, NicPart, Part, StoragePart, SwitchPart

TEXTS = {name: path.read_text(encoding="utf-8") for name, path in catalogue.builtin_topologies().items()}
TOPOLOGIES = list(TEXTS)
NODES = [name for name, text in TEXTS.items() if "\ncluster:" not in text]
WITH_NVLINK = [name for name in NODES if "part: nvlink" in TEXTS[name].replace("part: nvlink-c2c", "")]
PARTS = catalogue.part_names()
KINDS = {"gpu": GpuPart, "cpu": CpuPart, "link": LinkPart, "switch": SwitchPart, "nic": NicPart, "storage": StoragePart}
WORDS = {
    "kind",
    "description",
    "aliases",
    "pci_ids",
    "source",
    "sources",
    "vendor",
    "of",
    "network",
    "forwarding",
    "duplex",
}

# The machines of published collective measurements, as named in tables.
MEASURED = [
    "2xv100-pcie-16gb",
    "4xv100-pcie-gdr116",
    "8xh100-4used",
    "8xh200-sxm",
    "8xhopper-nvswitch-mooncake",
    "8xv100-sxm2-16gb-cube-mesh",
    "a100-sxm4-80gb-node-2of8",
    "deepbench-10xtitanx-pascal-single-root",
    "deepbench-8xm40-dual-root",
    "deepbench-8xp100-pcie-dual-root",
    "deepbench-8xtitanx-maxwell-dual-root",
    "dgx-spark",
    "dgx1v-8xv100-32gb",
    "dgxa100-8xa100",
    "gb200-nvl72",
    "gb200-nvl72-xla",
    "gcp-a3-high",
    "gcp-v100-32gbe",
    "h100-2x1gpu-4nic",
    "knl7250-cluster",
    "llmcompass-4xa100-nvlink",
    "ndv4-8xa100",
    "nebius-8xh100",
    "nig-2xv100-sxm2",
    "oci-bm.gpu3.8",
    "p4d.24xlarge",
    "p4de.24xlarge",
    "p5.48xlarge",
    "unknown-2x1gpu-100g",
    "vtrain-8xa100-nvswitch",
    "vtrain-8xv100-cube-mesh",
    "xla-8xh100",
]

# Pairs of the hybrid cube mesh by their number of links (apache/mxnet src/kvstore/gpu_topology.h).
DOUBLE = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
SINGLE = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
CUBE_MESHES = ["p3.16xlarge", "p3dn.24xlarge", "dgx-1-v100-16gb", "dgx-1-v100-32gb", "oci-bm.gpu3.8"]

# Machines that leave some NVLinks unused, with the number that each GPU uses.
FEWER_LINKS = {"p3.8xlarge": [4, 4, 5, 5], "2x-v100-sxm2-ib": [2, 2]}


@cache
def topology(name: str) -> Topology:
    return load_topology(name)


@cache
def names_of_topologies() -> dict[str, list[str]]:
    found = defaultdict(list)
    for stem in TOPOLOGIES:
        for name in (stem, *topology(stem).aliases):
            found[name].append(stem)
    return dict(found)


def part(name: str) -> Part:
    found = catalogue.load_part(name)
    assert found is not None
    return found


def figures(item: Part) -> list[str]:
    """Return the figures that *item* states, each GPU rate separately."""
    keys = [k for k in item.model_fields_set if k not in WORDS and getattr(item, k) is not None]
    rates = [f"peak.{precision}" for precision in getattr(item, "peak", {})]
    return sorted([k for k in keys if k != "peak"] + rates)


def nvlink_counts(machine: Topology) -> Counter[str]:
    counts: Counter[str] = Counter()
    for wire in machine.wires:
        if wire.part.of == "nvlink":
            counts[wire.a] += wire.count
            counts[wire.b] += wire.count
    return counts


def gpu_pairs(machine: Topology) -> dict[tuple[int, int], int]:
    pairs: Counter[tuple[int, int]] = Counter()
    for wire in machine.wires:
        if wire.part.of == "nvlink":
            a, b = sorted(int(name.removeprefix("gpu")) for name in (wire.a, wire.b))
            pairs[a, b] += wire.count
    return dict(pairs)


# -- files ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topology_loads_and_says_what_it_is(name: str) -> None:
    machine = topology(name)
    text = TEXTS[name]
    assert machine.name == name
    assert machine.description
    assert not machine.notes, "a machine that warns about itself is not as its source says"
    assert re.search(r"^source: (\"\S|>-\n  \S)", text, re.MULTILINE), "a machine names its source"
    assert text.startswith("# yaml-language-server: $schema=./topology.schema.json\n")
    assert len(text.splitlines()) <= 40, "a machine fits on one screen"


@pytest.mark.parametrize("name", PARTS)
def test_part_loads_and_stands_in_the_folder_of_its_kind(name: str) -> None:
    (path,) = catalogue.builtin_folder().glob(f"parts/*/{name}.yaml")
    assert isinstance(part(name), KINDS[path.parent.name])
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=../../part.schema.json\n")
    assert part(name).description


@pytest.mark.parametrize("name", PARTS)
def test_every_figure_has_a_source(name: str) -> None:
    item = part(name)
    stated = figures(item)
    assert stated, "a part without figures"
    assert set(item.sources) <= {*stated, "peak"}, "a source for a figure that is not there"
    for key in stated:
        source = item.sources.get(key) or item.sources.get(key.split(".")[0]) or item.source
        assert source, f"{key} has no source"
        if source.upper().startswith("UNVERIFIED"):
            assert re.match(r"UNVERIFIED: \S", source), f"{key}: say after UNVERIFIED what it rests on"


@pytest.mark.parametrize("name", catalogue.part_names("link") + catalogue.part_names("nic"))
def test_links_and_nics_state_efficiency_and_latency(name: str) -> None:
    assert {"efficiency", "latency"} <= part(name).model_fields_set, "defaults would be silent guesses"


def test_part_names_are_unique_over_all_kinds() -> None:
    stems = Counter(path.stem for path in catalogue.builtin_folder().glob("parts/*/*.yaml"))
    assert [stem for stem, n in stems.items() if n > 1] == []


def test_no_two_parts_share_a_name() -> None:
    owners = defaultdict(list)
    for stem in PARTS:
        for name in (stem, *part(stem).aliases):
            owners[name].append(stem)
    assert {name: stems for name, stems in owners.items() if len(stems) > 1} == {}


def test_no_two_topologies_share_a_name() -> None:
    assert {name: stems for name, stems in names_of_topologies().items() if len(stems) > 1} == {}


@pytest.mark.parametrize("machine", MEASURED)
def test_measured_machine_has_one_topology_of_one_node(machine: str) -> None:
    (stem,) = names_of_topologies()[machine]
    assert topology(stem).n_nodes == 1


@pytest.mark.parametrize("name", sorted(json_schemas()))
def test_json_schema_is_current(name: str) -> None:
    written = (catalogue.builtin_folder() / name).read_text(encoding="utf-8")
    assert written == json_schemas()[name], "run python -m simulator.topology.json_schema"


def test_json_schemas_are_written_where_told(tmp_path: Path) -> None:
    write_json_schemas(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == json_schemas()


# -- wiring --------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_NVLINK)
def test_nvlinks_of_a_gpu_add_up_to_its_ports(name: str) -> None:
    machine = topology(name)
    counts = nvlink_counts(machine)
    gpus = [device for device in machine.devices if isinstance(device.part, GpuPart)]
    ports = [device.part.nvlink_count for device in gpus if isinstance(device.part, GpuPart)]
    assert [counts[gpu.name] for gpu in gpus] == FEWER_LINKS.get(name, ports)


@pytest.mark.parametrize("name", CUBE_MESHES)
def test_hybrid_cube_mesh_is_as_published(name: str) -> None:
    assert gpu_pairs(topology(name)) == {**dict.fromkeys(DOUBLE, 2), **dict.fromkeys(SINGLE, 1)}


def test_dgx_1_p100_has_the_same_pairs_with_one_link_each() -> None:
    assert gpu_pairs(topology("dgx-1-p100")) == dict.fromkeys(DOUBLE | SINGLE, 1)


def test_p3_8xlarge_is_half_of_p3_16xlarge() -> None:
    whole = gpu_pairs(topology("p3.16xlarge"))
    assert gpu_pairs(topology("p3.8xlarge")) == {pair: n for pair, n in whole.items() if max(pair) < 4}


@pytest.mark.parametrize("name", NODES)
def test_pcie_is_a_forest_with_its_roots_at_the_cpus(name: str) -> None:
    machine = topology(name)
    kinds = {device.name: device.kind for device in machine.devices}
    up: dict[str, str] = {}
    wires = [(w.a, w.b) for w in machine.wires if w.part.of in ("pcie", "storage", "c2c")]
    frontier = [device for device, kind in kinds.items() if kind == "cpu"]
    reached = set(frontier)
    while frontier:
        above = frontier.pop()
        for a, b in wires:
            below = b if a == above else a if b == above else None
            if below is None or up.get(above) == below:
                continue
            assert below not in reached, f"{below} has two ways up"
            up[below] = above
            reached.add(below)
            frontier.append(below)
    assert {d for d, kind in kinds.items() if kind != "nvlink-switch"} == reached


@pytest.mark.parametrize("name", NODES)
def test_every_gpu_of_a_node_reaches_every_other_one(name: str) -> None:
    machine = topology(name)
    compiled = compile_machine(machine)
    router = Router(compiled)
    for dst in compiled.gpus[1:]:
        assert router.route(compiled.gpus[0], dst).bandwidth_Bps > 1e9


@pytest.mark.parametrize(
    ("name", "src", "dst", "transport", "path_class"),
    [
        ("p3.16xlarge", 0, 3, "nvlink", "nvl"),
        ("p3.16xlarge", 0, 5, "host-staged", "sys"),
        ("dgx-2", 0, 15, "nvlink", "nvl"),
        ("p2.16xlarge", 0, 1, "peer-to-peer", "pix"),
        ("p2.16xlarge", 0, 7, "peer-to-peer", "pxb"),
        ("p2.16xlarge", 7, 8, "host-staged", "sys"),
        ("g4dn.12xlarge", 0, 3, "host-staged", "phb"),
        ("2x-gtx1080-desktop", 0, 1, "host-staged", "phb"),
        ("8x-m40-dual-root", 0, 1, "host-staged", "phb"),
        ("8x-m40-dual-root", 0, 2, "host-staged", "phb"),
        ("8x-rtx2080ti", 0, 1, "host-staged", "phb"),
    ],
)
def test_transport_between_two_gpus(name: str, src: int, dst: int, transport: str, path_class: str) -> None:
    machine = compile_machine(topology(name))
    route = Router(machine).route(machine.node(f"gpu{src}").index, machine.node(f"gpu{dst}").index)
    assert (route.transport, route.path_class) == (transport, path_class)


@pytest.mark.parametrize(
    ("name", "gpu", "nics"),
    [
        ("dgx-1-v100-32gb", "gpu2", {"ib1"}),
        ("dgx-1-v100-32gb-roce", "gpu5", {"nic1"}),
        ("dgx-a100-40gb", "gpu6", {"ib6", "ib7"}),
        ("azure-nd-a100-v4", "gpu0", {"ib0", "ib1"}),
        ("p4d.24xlarge", "gpu5", {"efa2"}),
        ("p5.48xlarge", "gpu1", {"efa4", "efa5", "efa6", "efa7"}),
        ("dgx-h100", "gpu3", {"ib3"}),
        ("gcp-a3-high", "gpu7", {"nic3"}),
    ],
)
def test_adapters_stand_under_the_switch_of_their_gpus(name: str, gpu: str, nics: set[str]) -> None:
    wires = [(w.a, w.b) for w in topology(name).wires if w.part.of == "pcie"]
    (switch,) = {b for a, b in wires if a == gpu}
    kinds = {device.name: device.kind for device in topology(name).devices}
    assert {a for a, b in wires if b == switch and kinds[a] == "nic"} == nics


@pytest.mark.parametrize(
    ("name", "n_nodes", "gpus", "nics_Bps"),
    [
        ("p3.16xlarge-x8-25g", 8, 8, 25e9 / 8),
        ("dgx-a100-x4-hdr", 4, 8, 8 * 200e9 / 8),
        ("p4d-x2-efa", 2, 8, 4 * 100e9 / 8),
        ("dgx-1-v100-x2-100g", 2, 8, 2 * 100e9 / 8),
        ("dgx-h100-x4-ndr", 4, 8, 8 * 400e9 / 8),
        ("2x-gtx1080-desktop-x4-10g", 4, 2, 10e9 / 8),
    ],
)
def test_cluster_joins_all_nodes(name: str, n_nodes: int, gpus: int, nics_Bps: float) -> None:
    cluster = topology(name)
    uplinks = [w for w in cluster.wires if w.b == "network"]
    assert cluster.n_nodes == n_nodes
    assert len(compile_machine(cluster).gpus) == n_nodes * gpus
    assert sum(w.part.bandwidth for w in uplinks) == pytest.approx(nics_Bps)  # of each node


# -- figures -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "effective_GBps"),
    [
        ("nvlink1", 17.5),
        ("nvlink2", 68.5 / 3),
        ("nvlink3", 20.0),
        ("nvlink4", 20.6),
        ("nvlink5", 40.1),
        ("pcie3-x16", 12.35),
        ("pcie4-x16", 26.24),
        ("pcie5-x16", 55.4),
        ("qpi-9.6", 2 * 9.6 * 2 * 0.83),
        ("upi-10.4-x2", 2 * 10.4 * 2 * 0.83),
        ("upi-16-x3", 3 * 16 * 2 * 0.83),
        ("xgmi-socket", 4 * 16 * 16 / 8 * 0.7),
    ],
)
def test_link_reaches_the_bandwidth_of_its_source(name: str, effective_GBps: float) -> None:
    link = part(name)
    assert isinstance(link, LinkPart)
    assert link.bandwidth * link.efficiency / 1e9 == pytest.approx(effective_GBps, rel=2e-3)


@pytest.mark.parametrize("name", catalogue.part_names("gpu"))
def test_gpu_part_is_complete_and_its_fp32_rate_follows_from_its_clock(name: str) -> None:
    gpu = part(name)
    assert isinstance(gpu, GpuPart)
    for figure in ("memory_size", "memory_bandwidth", "l2_size", "boost_clock", "board_power"):
        assert getattr(gpu, figure), f"{figure} is not stated"
    assert gpu.sm_count
    assert gpu.boost_clock
    lanes = gpu.peak["fp32"] / (2 * gpu.sm_count * gpu.boost_clock)
    usual = [32, 64, 128, 192, 256]  # lanes per SM or core
    assert min(abs(lanes / n - 1) for n in usual) < 0.09


@pytest.mark.parametrize(
    ("name", "board_GiB", "at_least"),
    [
        # HBM and GeForce boards report nearly all memory; GDDR with ECC reserves 1/16.
        *((name, 16, 0.98) for name in ("v100-sxm2-16gb", "v100-pcie-16gb", "p100-pcie-16gb")),
        *((name, 80, 0.98) for name in ("a100-sxm4-80gb", "h100-sxm5-80gb")),
        ("v100-pcie-32gb", 32, 0.98),
        ("a100-sxm4-40gb", 40, 0.98),
        ("mi300x", 192, 0.99),
        ("gtx-1080", 8, 1.0),
        ("rtx-4090", 24, 1.0),
        ("t4", 16, 0.93),
        *((name, 12, 0.93) for name in ("k80-die", "m40")),
        *((name, 48, 0.93) for name in ("a40", "l40")),
        ("l4", 24, 0.93),
    ],
)
def test_memory_of_a_gpu_is_binary_less_what_the_board_keeps(name: str, board_GiB: int, at_least: float) -> None:
    gpu = part(name)
    assert isinstance(gpu, GpuPart)
    share = gpu.memory_size / (board_GiB * 2**30)
    assert at_least <= share <= (0.94 if at_least == 0.93 else 1.0)
    assert gpu.sources["memory_size"]


@pytest.mark.parametrize(
    ("name", "vcpus"),
    [
        ("p2.xlarge", 4),
        ("p2.8xlarge", 32),
        ("p2.16xlarge", 64),
        ("p3.2xlarge", 8),
        ("p3.8xlarge", 32),
        ("p3.16xlarge", 64),
        ("p3dn.24xlarge", 96),
        ("p4d.24xlarge", 96),
        ("p4de.24xlarge", 96),
        ("p5.48xlarge", 192),
        ("g3.4xlarge", 16),
        ("g4dn.12xlarge", 48),
        ("gcp-8xk80", 32),
        ("gcp-a3-high", 208),
        ("azure-nd40rs-v2", 40),
        ("azure-nd-a100-v4", 96),
    ],
)
def test_instance_has_the_threads_that_the_cloud_lends(name: str, vcpus: int) -> None:
    parts = [d.part for d in topology(name).devices if isinstance(d.part, CpuPart)]
    assert sum(p.thread_count or 0 for p in parts) == vcpus
    one_a_core = name.startswith("azure")
    assert sum(p.core_count or 0 for p in parts) == (vcpus if one_a_core else vcpus // 2)


def test_fewer_cores_have_fewer_threads_unless_said_otherwise() -> None:
    def cpu(keys: str) -> CpuPart:
        text = f"schema_version: 1\nname: x\ndevices:\n  cpu0: {{part: xeon-e5-2686-v4{keys}}}\n"
        part = topology_from_text(text).devices[0].part
        assert isinstance(part, CpuPart)
        return part

    assert (cpu("").core_count, cpu("").thread_count) == (18, 36)
    assert (cpu(", core_count: 4").core_count, cpu(", core_count: 4").thread_count) == (4, 8)
    assert cpu(", core_count: 4, thread_count: 4").thread_count == 4


def test_nothing_names_a_place_that_readers_do_not_have() -> None:
    for path in catalogue.builtin_folder().rglob("*.yaml"):
        assert not re.search(r"/tmp/|/home/|public text|FACTS|corpus", path.read_text(encoding="utf-8")), path.name
