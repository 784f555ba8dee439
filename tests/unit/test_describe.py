"""Drafts of topologies from a system's files, a driver's listing and its matrix of links."""

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart, GpuPart
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on
from validate.cli import main
from validate.cli.describe import draft_of
from validate.machine.describe.driver import Card, ask_driver, driver_part, parse_cards, pcie_part
from validate.machine.describe.placement import parse_topo, place_gpus
from validate.machine.describe.processor import (
    CacheFacts,
    Processor,
    architecture,
    flop_per_cycle,
    nearest_cpu,
    vector_bits,
)
from validate.machine.measure.host import slug
from validate.tables.names import find_cpu

AVX512 = frozenset(("sse2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16"))
EPYC = Processor(
    model="AMD EPYC", vendor="amd", family=25, flags=AVX512, sockets=1, cores=2, threads=2, clock_Hz=2.6e9,
    turbo_Hz=None, caches=(CacheFacts(1, 32768, 1), CacheFacts(3, 32 << 20, 2)), memory_bytes=24 << 30, socket_of={},
)  # fmt: skip
XEONS = replace(
    EPYC, model="Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", vendor="intel", family=6, sockets=2, cores=20, threads=40,
    socket_of={i: i // 20 % 2 for i in range(80)},
)  # fmt: skip
CUBE = """\
\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV2\tNV1\tSYS\tPIX\t0-19,40-59\t0
GPU1\tNV2\t X \tSYS\tNV1\tPIX\t0-19,40-59\t0
GPU2\tNV1\tSYS\t X \tNV2\tSYS\t20-39,60-79\t1
GPU3\tSYS\tNV1\tNV2\t X \tSYS\t20-39,60-79\t1
NIC0\tPIX\tPIX\tSYS\tSYS\t X

Legend:
  X    = Self
  NIC0: mlx5_0
"""


def cards(name: str, count: int, generation: int = 3) -> tuple[Card, ...]:
    return tuple(Card(name, 16 << 30, generation, 16) for _ in range(count))


def machine_of(processor: Processor, boards: tuple[Card, ...] = (), topo: str = "") -> Machine:
    return compile_machine(topology_from_text(draft_of(processor, boards, topo)[0]))


def transports(machine: Machine, first: int = 0) -> list[str]:
    router = Router(machine)
    return [router.route(machine.gpus[first], gpu).transport for gpu in machine.gpus if gpu != machine.gpus[first]]


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "fp32"),
    [
        ("intel", 6, AVX512, 64),
        ("amd", 25, AVX512, 32),  # in two halves
        ("amd", 26, AVX512, 64),
        ("intel", 6, {"avx", "avx2", "fma"}, 32),
        ("intel", 6, {"avx"}, 16),
        ("arm", 0, {"asimd", "sve"}, 32),
        ("arm", 0, {"asimd"}, 16),
    ],
)
def test_flags_say_how_wide_a_core_is(vendor, family, flags, fp32) -> None:
    found = flop_per_cycle(vendor, family, flags)
    assert (found["fp32"], found["fp64"]) == (fp32, fp32 // 2)


def test_flags_give_built_in_parts_their_figures() -> None:
    for name, flags in (("xeon-e5-2698-v4", {"avx", "fma"}), ("xeon-gold-6230", {"avx", "avx512f", "fma"})):
        part = load_part(name)
        assert isinstance(part, CpuPart)
        assert vector_bits(flags) == part.vector_bits
        assert flop_per_cycle("intel", 6, flags)["fp32"] == part.flop_per_cycle["fp32"]


def test_the_nearest_part_is_of_the_same_maker_and_size() -> None:
    assert nearest_cpu(replace(EPYC, model="AMD EPYC 9999", cores=60, flags=frozenset(("avx", "fma")))).startswith(
        "epyc-7"
    )
    assert nearest_cpu(replace(EPYC, model="AMD Ryzen 9 5950X", cores=16)) == "generic-desktop-cpu"
    assert nearest_cpu(replace(XEONS, model="Intel(R) Core(TM) i9-9900K")) == "generic-desktop-cpu"
    assert nearest_cpu(replace(EPYC, vendor="other", cores=64)) == "generic-server-cpu"


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "xeon-e5-2686-v4"),
        ("AMD EPYC 7742 64-Core Processor", "epyc-7742"),
        ("Intel(R) Xeon(R) Platinum 8480C", "xeon-platinum-8480c"),
        ("Intel(R) Core(TM) i7-3820 CPU @ 3.60GHz", "core-i7-3820"),
        ("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", "xeon-e5-2670"),
        ("Intel(R) Xeon(R) CPU E5-2670 v2 @ 2.50GHz", None),
        ("AMD EPYC", None),
        ("", None),
    ],
)
def test_a_system_s_name_of_its_processor_is_a_part(model, part) -> None:
    assert find_cpu(slug(model)) == find_cpu(model) == part


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("GeForce GTX 1080 Ti", "gtx-1080-ti"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("TITAN X (Pascal)", "titan-x-pascal"),
        ("AMD Instinct MI210", "mi210"),
        ("NVIDIA Imaginary 9000", None),
    ],
)
def test_what_a_driver_calls_a_gpu_is_a_part(name, part) -> None:
    assert driver_part(Card(name)) == part


def test_no_driver_s_name_is_of_two_parts() -> None:
    owners: dict[str, set[str]] = {}
    for name in part_names("gpu"):
        part = load_part(name)
        assert isinstance(part, GpuPart)
        for known in (name, *part.aliases):
            owners.setdefault(slug(known), set()).add(name)
    assert {known: parts for known, parts in owners.items() if len(parts) > 1} == {}


def test_a_listing_is_read_by_its_columns() -> None:
    assert parse_cards("NVIDIA H200, 143771, 5, 16\nTesla T4, 15360, [N/A], [N/A]\n\n") == (
        Card("NVIDIA H200", 143771 << 20, 5, 16),
        Card("Tesla T4", 15360 << 20, 0, 0),
    )
    assert parse_cards("No devices were found") == ()
    assert pcie_part(Card("NVIDIA GH200 480GB", 0, 4, 16)) == ("nvlink-c2c", True)
    assert pcie_part(Card("NVIDIA H200", 0, 5, 16)) == ("pcie5-x16", True)
    assert pcie_part(Card("NVIDIA H200")) == ("pcie5-x16", False)
    assert pcie_part(Card("Tesla T4", 0, 3, 12)) == ("pcie3-x16", False)


def test_without_a_driver_there_is_no_gpu(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert ask_driver() == ((), "", "")


def test_a_driver_that_fails_is_none(monkeypatch, tmp_path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert ask_driver() == ((), "", "")


def test_a_matrix_says_links_and_sockets() -> None:
    matrix = parse_topo(CUBE)
    assert (matrix.gpus, matrix.nics, matrix.affinity) == (4, ("NIC0",), {0: 0, 1: 0, 2: 20, 3: 20})
    assert [matrix.nvlinks(0, b) for b in range(4)] == [0, 2, 1, 0]
    placed = place_gpus(matrix, 2, XEONS.socket_of)
    assert (placed.socket, [each.gpus for each in placed.switches]) == ((0, 0, 1, 1), [(0, 1)])
    assert not placed.guessed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no line names the GPUs"),
        ("0 2 2\n2 0 3\n2 3 0", "no line names the GPUs"),
        ("GPU0 GPU1\nGPU0 X NV2", "there is no row of GPU1"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 NV2 X", "the row of GPU0 has 1 cells for 2 columns"),
        ("GPU0 GPU1\nGPU0 X NV2\nGPU1 NV1 X", "GPU0 to GPU1 is NV2, but GPU1 to GPU0 is NV1"),
        ("GPU0 GPU1\nGPU0 X OK\nGPU1 OK X", "'OK' between GPU0 and GPU1 is no word of nvidia-smi's"),
        ("GPU1 GPU2\nGPU1 X NV2\nGPU2 NV2 X", "the GPUs are not numbered from 0"),
    ],
)
def test_what_is_no_matrix_is_told(text, reason) -> None:
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
        parse_topo(text)
    _, remarks = draft_of(XEONS, cards("Tesla V100-SXM2-16GB", 2), text)
    assert remarks[0].startswith(f"nvidia-smi topo -m: {reason}")


def test_gpus_of_a_mesh_keep_their_links() -> None:
    machine = machine_of(XEONS, cards("Tesla V100-SXM2-16GB", 4), CUBE)
    assert transports(machine) == ["nvlink", "nvlink", "host-staged"]
    counts = {link.name: link.count for link in machine.links if link.kind == "nvlink"}
    assert counts["gpu0->gpu1"] == 2
    assert counts["gpu0->gpu2"] == 1
    assert {node.part_name for node in machine.nodes if node.kind == "cpu"} == {"xeon-e5-2698-v4"}


def test_more_links_than_a_gpu_has_ports_go_through_switches() -> None:
    header = " ".join(f"GPU{i}" for i in range(8)) + " CPU Affinity"
    rows = [f"GPU{i} " + " ".join("X" if i == j else "NV18" for j in range(8)) + " 0-51" for i in range(8)]
    machine = machine_of(XEONS, cards("NVIDIA H100 80GB HBM3", 8, 5), "\n".join([header, *rows]))
    switch = machine.node("nvswitch0")
    assert switch.part_name == "nvswitch3"
    assert [link.count for link in machine.outgoing[switch.index]] == [18] * 8
    assert transports(machine) == ["nvlink"] * 7
    assert {link.kind for link in machine.outgoing[machine.gpus[0]]} == {"nvlink", "pcie"}


def test_switches_behind_a_switch() -> None:
    words = [
        ["X", "PIX", "PXB", "PXB"],
        ["PIX", "X", "PXB", "PXB"],
        ["PXB", "PXB", "X", "PIX"],
        ["PXB", "PXB", "PIX", "X"],
    ]
    text = "\n".join(["GPU0 GPU1 GPU2 GPU3", *(f"GPU{i} {' '.join(row)}" for i, row in enumerate(words))])
    machine = machine_of(EPYC, cards("Tesla P4", 4), text)
    router = Router(machine)
    classes = [router.route(machine.gpus[0], gpu).path_class for gpu in machine.gpus[1:]]
    assert classes == ["pix", "pxb", "pxb"]


def test_what_the_driver_keeps_apart_goes_through_the_host() -> None:
    matrix = "GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X SYS\nGPU2 SYS SYS X"
    closed = " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tCNS\tNS\n GPU1\tCNS\tX\tNS\n GPU2\tNS\tNS\tX\n\nLegend:\n"
    for peers, expected in (
        (closed, "host-staged"),
        (closed.replace("CNS", "OK"), "peer-to-peer"),
        ("?", "host-staged"),
    ):
        text, _ = draft_of(XEONS, cards("NVIDIA GeForce RTX 4090", 3, 4), matrix, peers)
        assert transports(compile_machine(topology_from_text(text))) == [expected, "host-staged"]


def test_links_of_their_own_are_no_matter_of_peers() -> None:
    matrix = "GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X"
    text, _ = draft_of(XEONS, cards("NVIDIA GeForce RTX 2080 Ti", 2), matrix, "GPU0 X NS\nGPU1 NS X")
    assert "transport" not in text


def test_a_gpu_that_is_not_built_in_is_a_part_to_fill_in() -> None:
    text, _ = draft_of(EPYC, cards("NVIDIA Imaginary 9000", 1), "")
    assert '"nvidia-imaginary-9000":' in text
    assert "fill in for what compute costs" in text
    machine = compile_machine(topology_from_text(text))
    part = machine.nodes[machine.gpus[0]].part
    assert isinstance(part, GpuPart)
    assert part.memory_size == 16 << 30


def test_a_draft_is_a_machine_that_a_step_runs_on() -> None:
    result = alone_on(machine_of(EPYC), build_network("resnet18", batch=8, training=True))
    assert result.step_time_s > 0
    on_gpu = alone_on(machine_of(EPYC, cards("Tesla T4", 1)), build_network("resnet18", batch=8, training=True))
    assert on_gpu.step_time_s < result.step_time_s


def test_estimates_say_that_they_are() -> None:
    text, _ = draft_of(EPYC, (), "")
    for key in ("memory_bandwidth", "flop_per_cycle", "caches", "memory_latency"):
        assert f'{key}: "UNVERIFIED' in text
    device = topology_from_text(text).devices[0]
    assert isinstance(device.part, CpuPart)
    assert device.part.memory_size == 24 << 30
    assert device.part.caches["l3"].shared_by_cores == 2
    assert device.part.sources["memory_bandwidth"].startswith("UNVERIFIED: as epyc-")


def test_the_command_writes_a_machine(tmp_path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    with pytest.raises(SystemExit) as done:
        main(["describe", "--out", str(file)])
    assert done.value.code == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "try: simulate --topology" in said.err
    assert any(isinstance(node.part, CpuPart) for node in load_machine(str(file)).nodes)
    with pytest.raises(SystemExit):
        main(["describe", "-q"])
    assert capsys.readouterr() == (file.read_text(), "")


def test_an_edited_draft_is_kept(tmp_path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    for words, status in (([], 0), ([], 0), (["--force"], 0)):
        with pytest.raises(SystemExit) as done:
            main(["describe", "-q", "--out", str(file), *words])
        assert done.value.code == status
    file.write_text(file.read_text() + "# corrected\n")
    with pytest.raises(SystemExit) as done:
        main(["describe", "-q", "--out", str(file)])
    assert done.value.code == 2
    told = f"validate: --out {file}: is there and differs from the draft; --force overwrites it\n"
    assert capsys.readouterr().err == told
    assert file.read_text().endswith("# corrected\n")
    with pytest.raises(SystemExit):
        main(["describe", "-q", "--out", str(file), "--force"])
    assert "# corrected" not in file.read_text()


def test_a_folder_is_no_file(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit) as done:
        main(["describe", "--out", str(tmp_path)])
    assert done.value.code == 2
    assert "is a folder; name a file" in capsys.readouterr().err


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("file", "name", "count", "reached"),
    [
        ("2gpu_nv2_stas.txt", "NVIDIA GeForce RTX 2080 Ti", 2, ["nvlink"]),
        ("2gpu_phb_stas.txt", "NVIDIA GeForce RTX 2080 Ti", 2, ["host-staged"]),
        ("4gpu_phb_single_socket_litgpt_fixture.txt", "NVIDIA RTX A6000", 4, ["host-staged"] * 3),
        ("6gpu_pix_phb_soc_tkestack.txt", "Tesla P4", 6, ["peer-to-peer", *["host-staged"] * 4]),
        ("a100x8_stas_ml_engineering.txt", "NVIDIA A100-SXM4-80GB", 8, ["nvlink"] * 7),
        ("dgx1_v100_4nic_msccl_tabs.txt", "Tesla V100-SXM2-16GB", 8, ["nvlink"] * 4 + ["host-staged"] * 3),
        ("h100x8_stas_ml_engineering.txt", "NVIDIA H100 80GB HBM3", 8, ["nvlink"] * 7),
    ],
)
def test_matrices_of_real_machines(corpus, file, name, count, reached) -> None:
    path = corpus.parent / "topo_dumps" / "nvidia-smi" / file
    if not path.exists():
        pytest.skip(f"no {file} beside the corpus")
    machine = machine_of(XEONS, cards(name, count), path.read_text(encoding="utf-8"))
    assert transports(machine) == reached


@pytest.mark.corpus
def test_the_draft_of_a_dgx_1_is_the_built_in_one(corpus) -> None:
    path = corpus.parent / "topo_dumps" / "nvidia-smi" / "dgx1_v100_4nic_msccl_tabs.txt"
    if not path.exists():
        pytest.skip("no matrix of a DGX-1 beside the corpus")
    drafted = machine_of(XEONS, cards("Tesla V100-SXM2-32GB", 8), path.read_text(encoding="utf-8"))
    built_in = load_machine("dgx-1-v100-32gb")
    routers = Router(drafted), Router(built_in)
    for a in range(8):
        for b in range(8):
            mine, theirs = (r.route(m.gpus[a], m.gpus[b]) for r, m in zip(routers, (drafted, built_in), strict=True))
            if mine.transport == "nvlink":
                assert mine.bandwidth_Bps == theirs.bandwidth_Bps
            assert mine.transport == theirs.transport


def test_two_machines_do_not_share_a_name() -> None:
    v100 = cards("Tesla V100-SXM2-16GB", 4)
    names = [topology_from_text(draft_of(*given, "")[0]).name for given in ((EPYC, ()), (XEONS, ()), (XEONS, v100))]
    assert names == ["1x-amd-epyc", "2x-xeon-e5-2698-v4", "4x-v100-sxm2-16gb-2x-xeon-e5-2698-v4"]
    long = topology_from_text(draft_of(replace(EPYC, model="An extraordinary processor " * 9), v100, "")[0]).name
    assert len(long) <= 60
    nameless = topology_from_text(draft_of(replace(EPYC, model=""), (), "")[0]).name
    assert nameless == "1x-cpu"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "design"),
    [
        ("intel", 6, 45, 7, "Sandy Bridge"),
        ("intel", 6, 79, 1, "Broadwell"),
        ("intel", 6, 85, 4, "Skylake-SP"),
        ("intel", 6, 85, 7, "Cascade Lake"),
        ("intel", 6, 106, 6, "Ice Lake"),
        ("intel", 6, 143, 8, "Sapphire Rapids"),
        ("amd", 23, 49, 0, "Rome"),
        ("amd", 25, 1, 1, "Milan"),
        ("amd", 25, 17, 1, "Genoa"),
        ("amd", 26, 2, 1, "Turin"),
        ("intel", 6, 158, 10, ""),  # a desktop's
        ("amd", 25, 33, 0, ""),
        ("amd", 6, 85, 4, ""),
        ("arm", 0, -1, -1, ""),
    ],
)
def test_the_numbers_of_a_processor_tell_its_design(vendor, family, model, stepping, design) -> None:
    processor = replace(EPYC, vendor=vendor, family=family, model_number=model, stepping=stepping)
    assert architecture(processor) == design
    if design:
        part = load_part(nearest_cpu(processor))
        assert isinstance(part, CpuPart)
        assert part.architecture == design
        largest = load_part(nearest_cpu(replace(processor, is_guest=True)))
        assert isinstance(largest, CpuPart)
        assert largest.architecture == design
        assert (largest.core_count or 0) >= (part.core_count or 0)
