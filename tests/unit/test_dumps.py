"""Topologies from dumps: NCCL's XML, hwloc's, matrices, lspci trees and logs, alone and combined."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulator.api import load_machine
from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.topology.load import foreign_kind, load_topology, topology_from_text
from tests.asked import exchange_on
from validate.cli import main
from validate.machine.describe.dumps.combine import combined
from validate.machine.describe.dumps.read import read_dump
from validate.machine.describe.dumps.tree import model_in

DUMPS = Path(os.environ.get("TOPOCAST_DUMPS", Path(__file__).parents[3] / "shared" / "topo_dumps"))

NV12 = "\n".join(
    ["\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m",
     "GPU0\t X \tNV12\tPIX\t0-31\t0", "GPU1\tNV12\t X \tSYS\t32-63\t1", "NIC0\tPIX\tSYS\t X \t",
     "", "Legend:", "", "  X    = Self", "NIC Legend:", "", "  NIC0: mlx5_0", ""]
)  # fmt: skip
LISTED = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)\nGPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)\n"
NCCL_XML = """<!-- a licence
may stand here -->
<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="4">
      <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x20b0"
        link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80"><nvlink target="0000:c1:00.0" count="4" tclass="0x068000"/>
          <nvlink target="0000:c2:00.0" count="8" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:12:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:20:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:21:00.0" class="0x030200" vendor="0x10de" device="0x20b0"
        link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80"><nvlink target="fffffff:ff:ff.0" count="12" tclass="0x068000"/></gpu>
      </pci>
    </pci>
  </cpu>
</system>
"""
HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0">
  <object type="Package" os_index="0">
   <info name="CPUVendor" value="GenuineIntel"/><info name="CPUFamilyNumber" value="6"/>
   <info name="CPUModelNumber" value="106"/>
   <info name="CPUModel" value="Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"/>
   <object type="NUMANode" os_index="0"/>
   <object type="L3Cache"><object type="Core"><object type="PU"/><object type="PU"/></object></object>
   <object type="Bridge" bridge_type="0-1">
    <object type="Bridge" bridge_type="1-1" pci_busid="0000:30:02.0" pci_type="0604 [8086:347a] [0000:0000] 04"
      pci_link_speed="31.507692">
     <object type="Bridge" bridge_type="1-1" pci_busid="0000:31:00.0" pci_type="0604 [1000:c010] [0000:0000] b0"
      pci_link_speed="31.507692">
      <object type="PCIDev" pci_busid="0000:32:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1"
      pci_link_speed="31.507692"/>
      <object type="PCIDev" pci_busid="0000:33:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1"
      pci_link_speed="31.507692"/>
      <object type="PCIDev" pci_busid="0000:34:00.0" pci_type="0207 [15b3:101b] [15b3:0007] 00"
      pci_link_speed="31.507692">
       <object type="OSDev" name="ib0" osdev_type="2"/><object type="OSDev" name="mlx5_0" osdev_type="3"/>
      </object>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1">
   <info name="CPUModel" value="Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"/>
   <object type="Core"><object type="PU"/><object type="PU"/></object>
  </object>
 </object>
</topology>
"""
LSPCI = """\
-+-[0000:80]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
 |           \\-02.0-[81-85]----00.0-[82-85]--+-00.0-[83]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
 |                                           +-10.0-[84]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
 |                                           \\-14.0-[85]--+-00.0  Mellanox Technologies MT28908 Family [ConnectX-6]
 |                                                       \\-00.1  Intel Corporation Ethernet Controller I350
 \\-[0000:00]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
             +-02.0-[01]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
             \\-1f.0  Intel Corporation C621 LPC Controller
"""
LOG = "\n".join(
    f"node:41:52 [0] NCCL INFO {line}"
    for line in (
        "NCCL version 2.21.5+cuda12.4",
        "=== System : maxBw 40.0 totalBw 40.0 ===",
        "CPU/0-0 (1/1/2)",
        "+ SYS[20.0] - CPU/0-1",
        "+ PCI[12.0] - GPU/0-6000 (0)",
        "              + NVL[40.0] - GPU/0-7000",
        "+ PCI[12.0] - NIC/0-8000",
        "              + NET[12.5] - NET/0-0 (0/1/12.500000)",
        "CPU/0-1 (1/1/2)",
        "+ SYS[20.0] - CPU/0-0",
        "+ PCI[12.0] - GPU/0-7000 (1)",
        "              + NVL[40.0] - GPU/0-6000",
        "==========================================",
    )
)


def described(tmp_path: Path, *texts: str, gpu: str | None = None, nic: str | None = None) -> tuple[Machine, list[str]]:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"dump{number}.txt")
        files[-1].write_text(text)
    draft, remarks = combined([read_dump(str(file)) for file in files], gpu, nic)
    return compile_machine(topology_from_text(draft)), remarks


def joined(machine: Machine) -> set[str]:
    return {link.name.replace("->", "-") for link in machine.links if link.index % 2 == 0}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (NV12, "topo"), (LISTED, "gpu-list"), (NCCL_XML, "nccl-xml"), (HWLOC, "hwloc-xml"), (LSPCI, "lspci"),
        (LOG, "nccl-log"), ("<html/>", "xml"), ("0 2\n2 0\n", "link-classes"), ("1 2\n2 1\n", None),
        ("schema_version: 1\n", None), ("", None), ("# GPU0 X\nname: GPU0\n", None),
    ],
)  # fmt: skip
def test_a_dump_is_known_by_its_own_lines(text, kind) -> None:
    assert foreign_kind(text) == kind


def test_a_matrix_and_a_name_are_a_machine(tmp_path) -> None:
    machine, remarks = described(tmp_path, NV12, gpu="a100-sxm4-40gb")
    assert {node.part_name for node in machine.nodes if node.kind == "gpu"} == {"a100-sxm4-40gb"}
    assert {"gpu0-gpu1", "gpu0-cpu0", "gpu1-cpu1"} <= joined(machine)
    assert any("NIC0; name the model, as in --nic connectx-7-ndr" in remark for remark in remarks)


def test_a_matrix_names_the_place_of_an_adapter(tmp_path) -> None:
    machine, remarks = described(tmp_path, NV12, gpu="a100-sxm4-40gb", nic="connectx-6-hdr")
    assert {"gpu0-plx0", "nic0-plx0", "plx0-cpu0", "gpu1-cpu1"} <= joined(machine)
    assert not any("left out" in remark for remark in remarks)


def test_an_adapter_hangs_at_the_socket_of_the_nearest_gpu(tmp_path) -> None:
    text = NV12.replace("NV12\tPIX", "NV12\tSYS").replace("X \tSYS\t32", "X \tNODE\t32")
    text = text.replace("NIC0\tPIX\tSYS", "NIC0\tSYS\tNODE")
    machine, _ = described(tmp_path, text, gpu="a100-sxm4-40gb", nic="connectx-6-hdr")
    assert "nic0-cpu1" in joined(machine)


def test_a_listing_names_the_gpus_of_a_matrix(tmp_path) -> None:
    machine, _ = described(tmp_path, NV12, LISTED)
    assert machine.node("gpu1").part_name == "a100-sxm4-40gb"


def test_links_tell_boards_of_one_name_apart(tmp_path) -> None:
    rows = [f"GPU{i} " + " ".join("X" if i == j else "NV18" for j in range(8)) for i in range(8)]
    matrix = "\n".join([" ".join(f"GPU{i}" for i in range(8)), *rows])
    machine, _ = described(tmp_path, matrix, gpu="h100")
    assert machine.node("gpu0").part_name == "h100-sxm5-80gb"
    with pytest.raises(InputError, match="a100-sxm4-40gb or a100-sxm4-80gb; say which"):
        described(tmp_path, matrix.replace("NV18", "NV12"), gpu="a100")
    with pytest.raises(InputError, match="no GPU is called 'h1000'; did you mean 'h100'"):
        described(tmp_path, matrix, gpu="h1000")


def test_nccl_s_xml_says_tree_links_and_rates(tmp_path) -> None:
    machine, _ = described(tmp_path, NCCL_XML)
    assert {"gpu0-plx0", "nic0-plx0", "plx0-cpu0", "gpu1-cpu1", "gpu0-gpu1"} <= joined(machine)
    assert {link.count for link in machine.links if link.kind == "nvlink"} == {12}  # 4 and 8 over two switches
    assert {node.part_name for node in machine.nodes if node.kind == "nic"} == {"connectx-6-hdr"}
    assert machine.node("cpu0").part_name.startswith("epyc-7")
    up = next(link for link in machine.links if link.name == "plx0->cpu0")
    assert up.bandwidth_Bps > 20e9  # not the few lanes of a virtual bridge


def test_more_parts_of_a_host_than_two_are_two_sockets(tmp_path) -> None:
    cpus = "".join(
        f'<cpu numaid="{n}" vendor="AuthenticAMD" familyid="175" modelid="1">'
        f'<pci busid="0000:{n}0:00.0" class="0x0302" vendor="0x10de" device="0x20b5" '
        'link_speed="16 GT/s" link_width="16"/></cpu>'
        for n in range(4)
    )
    machine, remarks = described(tmp_path, f"<system version='1'>{cpus}</system>")
    assert {"gpu0-cpu0", "gpu1-cpu0", "gpu2-cpu1", "gpu3-cpu1"} <= joined(machine)
    assert sum(node.kind == "cpu" for node in machine.nodes) == 2
    assert any("no file says NVLinks" in remark for remark in remarks)


def test_links_that_no_file_says_are_those_of_a_built_in_machine(tmp_path) -> None:
    pcis = "".join(
        f'<pci busid="0000:{n}0:00.0" class="0x030200" vendor="0x10de" device="0x1db1" '
        'link_speed="8 GT/s" link_width="16"/>'
        for n in range(8)
    )
    machine, remarks = described(tmp_path, f"<system version='1'><cpu numaid='0'>{pcis}</cpu></system>")
    mine, built_in = exchange_on(machine, "ring", 1e9), exchange_on(load_machine("dgx-1-v100-16gb"), "ring", 1e9)
    assert mine.sync_time_s == pytest.approx(built_in.sync_time_s)
    assert any(remark.startswith("UNVERIFIED: no file says NVLinks; they are those of") for remark in remarks)


def test_hwloc_says_host_switches_and_devices(tmp_path) -> None:
    machine, _ = described(tmp_path, HWLOC)
    assert {"gpu0-plx0", "gpu1-plx0", "nic0-plx0", "plx0-cpu0", "cpu0-cpu1"} <= joined(machine)
    assert machine.node("gpu0").part_name == "a100-pcie-80gb"
    assert machine.node("cpu1").part_name == "xeon-platinum-8360y"
    assert machine.node("nic0").part_name == "connectx-6-hdr"
    machine, _ = described(tmp_path, HWLOC.replace("15b3:101b", "15b3:1019"))  # by its device ID, not by its slot
    assert machine.node("nic0").part_name in ("connectx-4-edr", "connectx-5-edr")


NVLINK = """
 <distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth">
  <indexes length="20">OSDev:81 OSDev:82 </indexes><indexes length="9">PCIDev:83 </indexes>
  <u64values length="9">0 50000 300000 </u64values><u64values length="9">50000 0 0 300000 0 0 </u64values>
 </distances2hetero>
</topology>"""


def test_hwloc_says_nvlinks_by_their_rate(tmp_path) -> None:
    text = HWLOC.replace("</topology>", NVLINK).replace("10de:20b5", "10de:1db1")
    gpus = text.split('[10de:1533] a1"')
    for number in (1, 2):
        gpus[number] = gpus[number].replace(
            "/>",
            f'><object type="OSDev" gp_index="8{number}" name="nvml{number}"><info name="GPUModel" value="A-H"/>'
            "</object></object>",
            1,
        )
    text = '[10de:1533] a1"'.join(gpus)
    machine, _ = described(tmp_path, text.replace("PCIDev:83", "PCIDev:84"))
    assert {node.part_name for node in machine.nodes if node.kind == "gpu"} == {"v100-sxm2-16gb"}  # by its PCI ID
    assert {link.count for link in machine.links if link.kind == "nvlink"} == {2}  # of 25 GB/s each
    switch = '<object type="PCIDev" gp_index="83" pci_busid="0000:61:00.0" pci_type="0680 [10de:1ac2] [0000:0000] a1"/>'
    text = text.replace("0 50000 300000", "0 0 150000").replace("50000 0 0 300000 0 0", "0 0 150000 150000 150000 0")
    machine, _ = described(
        tmp_path, text.replace('<object type="Package" os_index="1">', switch + '<object type="Package" os_index="1">')
    )
    assert {link.count for link in machine.links if link.kind == "nvlink"} == {6}


def test_a_gpu_that_is_not_built_in_is_not_lost(tmp_path) -> None:
    text = (
        LSPCI.replace("[A100 PCIe 80GB]", "[Imaginary 9000]")
        .replace("C621 LPC Controller", "x")
        .replace("Ethernet Controller I350", "y")
    )
    text = text.replace("00.0  Intel Corporation Ice Lake", "00.0  NVIDIA Corporation Device 22a3")
    machine, remarks = described(tmp_path, text.replace("[ConnectX-6]", "[NVSwitch]"))
    assert [node.part_name for node in machine.nodes if node.kind == "gpu"] == ["imaginary-9000"] * 3
    assert any("2 devices of NVIDIA that lspci has no name for" in remark for remark in remarks)


def test_lspci_s_tree_is_read_by_its_columns(tmp_path) -> None:
    machine, remarks = described(tmp_path, LSPCI)
    assert [node.part_name for node in machine.nodes if node.kind == "gpu"] == ["a100-pcie-80gb"] * 3
    assert {"gpu0-cpu0", "gpu1-plx0", "gpu2-plx0", "nic0-plx0", "plx0-cpu0"} <= joined(machine)
    assert sum(node.kind == "nic" for node in machine.nodes) == 1  # the 1 Gbit/s card is left out
    assert any("at which socket" in remark for remark in remarks)
    words = ["GPU0 GPU1 GPU2 CPU Affinity", "GPU0 X SYS SYS 0-9", "GPU1 SYS X PIX 10-19", "GPU2 SYS PIX X 10-19"]
    machine, remarks = described(tmp_path, LSPCI, "\n".join(words))
    assert {"gpu0-cpu0", "gpu1-plx0", "nic0-plx0", "plx0-cpu1"} <= joined(machine)
    assert not any("at which socket" in remark for remark in remarks)


def test_a_log_s_rates_are_links(tmp_path) -> None:
    machine, _ = described(tmp_path, LOG, gpu="v100-sxm2-16gb")
    assert {"gpu0-gpu1", "gpu0-cpu0", "gpu1-cpu1", "nic0-cpu0", "cpu0-cpu1"} <= joined(machine)
    assert {link.count for link in machine.links if link.kind == "nvlink"} == {2}
    assert machine.node("cpu0").part.vendor == "intel"


def test_a_log_without_a_drawing_names_its_gpus(tmp_path) -> None:
    lines = [
        f"n:1:2 [{i}] NCCL INFO comm 0x5 rank {i} nranks 8 cudaDev {i} nvmlDev {i} busId {i + 1}a000 - Init COMPLETE"
        for i in range(8)
    ]
    machine, remarks = described(tmp_path, "\n".join(lines), gpu="h100-sxm5-80gb")
    assert len(machine.gpus) == 8
    assert any("they are those of dgx-h100" in remark for remark in remarks)
    with pytest.raises(InputError, match="NCCL_DEBUG_SUBSYS=INIT,GRAPH"):
        described(tmp_path, "n:1:2 [0] NCCL INFO Bootstrap : Using eth0")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330]", "h100-sxm5-80gb"),
        ("NVIDIA Corporation GV100GL [Tesla V100 SXM2 16GB]", "v100-sxm2-16gb"),
        ("NVIDIA Corporation TU104GL [Tesla T4]", "t4"),
        ("NVIDIA Corporation Device 9999", ""),
    ],
)
def test_the_pci_database_s_names_are_parts(words, part) -> None:
    assert model_in(words) == part


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<system><cpu>", r"dump0.txt:1:14: is not valid XML: no element found"),
        ('<!DOCTYPE s [<!ENTITY a "aa">]>\n<system/>', r"dump0.txt:1:\d+: declares an entity; a dump has none"),
        ("<system>" + "<pci>" * 300 + "</pci>" * 300 + "</system>", r"nested deeper than 200"),
        ("<html/>", r"dump0.txt:1:1: 'html' is not the root of NCCL's XML \(system\) or hwloc's \(topology\)"),
        ('<system><cpu numaid="0x"/></system>', r"dump0.txt:1:1: cpu numaid: '0x' is not a number"),
        ('<system><cpu numaid="0"><pci busid="a"/></cpu></system>', r"dump0.txt: its devices have no class"),
        (NCCL_XML.replace("0000:21:00.0", "0000:11:00.0"), r"two devices have the bus id '0000:11:00.0'"),
        (NCCL_XML.replace('count="4"', 'count="40"').replace('count="12"', 'count="48"'), "GPU0 has 48 NVLinks, where"),
        (
            "-[0000:00]-+-00.0  Intel\n" + "".join(f"{' ' * i}\\-00.0-[{i % 256:02x}]--\n" for i in range(1, 3000)),
            r"dump0.txt:1:1: bridges are nested deeper than 64",
        ),
        (
            "-[0000:00]-+-00.0\n" + " +-01.0 NVIDIA Corporation GH100 [H100 SXM5 80GB]\n" * 50_000,
            r"dump0.txt:1:1: more than 512 GPUs and adapters; one machine is needed",
        ),
        (" ".join(f"GPU{i}" for i in range(600)) + "\nGPU0 X\n", r"it names 600 GPUs and adapters; one machine is"),
        ("<!--" * 2_000_000, r"dump0.txt:1:\d+: is not valid XML"),
        ("some notes\n", r"dump0.txt:1:1: is none of: NCCL's topology XML"),
        ("GPU0 GPU1\nGPU0 X NV2\n", r"dump0.txt:1:1: there is no row of GPU1"),
        ("GPU 1: NVIDIA A100 (UUID: x)\n", r"dump0.txt:1:1: the GPUs are not numbered from 0"),
        (NV12, r"dump0.txt: does not say which GPUs these are; name them, as in --gpu h100"),
    ],
)
def test_what_is_wrong_with_a_dump_is_one_line(tmp_path, text, said) -> None:
    with pytest.raises(InputError, match=said) as told:
        described(tmp_path, text)
    assert "\n" not in str(told.value)


def test_dumps_that_name_gpus_of_different_generations_are_refused(tmp_path) -> None:
    gpus = ("NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB")
    names = [f"GPU 0: {name} (UUID: x)\nGPU 1: {name} (UUID: y)\n" for name in gpus]
    said = r"dump1.txt: shows GPUs of nvidia Volta GV100, but .*dump0.txt shows nvidia Ampere GA100; give dumps of one"
    with pytest.raises(InputError, match=said):
        described(tmp_path, names[0], names[1])


def test_dumps_of_two_machines_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"shows 3 GPUs, but .*dump0.txt shows 2; give dumps of one machine"):
        described(tmp_path, NV12, LSPCI)


def test_names_in_a_dump_reach_no_terminal(tmp_path) -> None:
    evil = NCCL_XML.replace("mlx5_0", "&#x9b;31m\u202e").replace("200000", "")
    file = tmp_path / "x.xml"
    file.write_text(evil, encoding="utf-8")
    text, _ = combined([read_dump(str(file))])
    assert text.isascii() or all(c.isprintable() or c == "\n" for c in text)


def test_links_through_switches_are_not_added_up(tmp_path: Path) -> None:
    names = " ".join(f"GPU{i}" for i in range(4))
    rows = "\n".join(f"GPU{i} " + " ".join("X" if a == i else "NV18" for a in range(4)) for i in range(4))
    with pytest.raises(InputError, match="GPU0 has 18 NVLinks to each other GPU, where a100-sxm4-40gb has at most 12"):
        described(tmp_path, f"{names}\n{rows}\n", gpu="a100-sxm4-40gb")
    with pytest.raises(InputError, match="GPU0 has 18 NVLinks, where"):
        described(tmp_path, NV12.replace("NV12", "NV18"), gpu="a100-sxm4-40gb")


def test_a_dump_given_as_a_topology_points_to_describe(tmp_path) -> None:
    file = tmp_path / "ndv4-topo.xml"
    for text in (NCCL_XML, NV12, LSPCI, LOG, LISTED):
        file.write_text(text)
        with pytest.raises(
            InputError,
            match=r"not a topology; draft one with 'validate describe --from .*ndv4-topo.xml --out machine.yaml'",
        ):
            load_topology(str(file))


def test_the_command_drafts_and_says_what_is_missing(tmp_path, capsys) -> None:
    (tmp_path / "topo.txt").write_text(NV12)
    out = tmp_path / "mine.yaml"
    assert (
        status_of("describe", "--from", str(tmp_path / "topo.txt"), "--gpu", "a100-sxm4-40gb", "--out", str(out)) == 0
    )
    assert "figures are estimates: see UNVERIFIED" in capsys.readouterr().err
    assert load_topology(str(out)).n_nodes == 1
    assert status_of("describe", "--gpu", "h100") == 2
    assert "--gpu: applies to dumps of another machine" in capsys.readouterr().err
    assert status_of("describe", "--from", str(tmp_path / "topo.txt"), "--nic", "connectx-7") == 2
    assert "--nic: no adapter is called 'connectx-7'; did you mean" in capsys.readouterr().err


def status_of(*arguments: str) -> object:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code


@pytest.mark.parametrize(
    ("processors", "cpu"),
    [
        (("0-19,40-59", "20-39,60-79"), "xeon-e5-2698-v4"),  # a DGX-1: 20 cores, 40 threads
        (("0-19", "20-39"), "xeon-platinum-8168"),  # Azure's guest, 20 processors a socket
        (("0-23,48-71", "24-47,72-95"), "xeon-platinum-8175m"),  # p3dn.24xlarge
        (("0-6", "7-13"), "xeon-platinum-8168"),  # no built-in machine has these: the first of all
    ],
)
def test_processors_beside_the_gpus_say_which_of_the_machines_like_it(processors, cpu, tmp_path) -> None:
    rows = [" ".join(f"GPU{i}" for i in range(8)) + " CPU Affinity"]
    rows += [f"GPU{i} {' '.join('X' if i == j else 'NV1' for j in range(8))} {processors[i // 4]}" for i in range(8)]
    path = tmp_path / "topo.txt"
    path.write_text("\n".join(rows), encoding="utf-8")
    text, _ = combined([read_dump(str(path))], "v100-sxm2-32gb")
    assert f"cpu[0-1]: {{part: {cpu}, " in text


# The dump, what it lacks, the built-in machine of the same name, and whether adapters are compared.
PUBLISHED = [
    ("nccl-xml/H100-topology.xml", None, None, "dgx-h100", True),
    ("nccl-xml/ndv2-topo.xml", "v100-sxm2-32gb", None, "azure-nd40rs-v2", False),
    ("nccl-xml/ndv4-topo.xml", "a100-sxm4-40gb", None, "azure-nd-a100-v4", True),
    ("nccl-xml/p4d-24xl-topo.xml", None, None, "p4d.24xlarge", True),
    ("nccl-xml/rccl-topo_8p_940.xml", None, None, "8x-mi300x", True),
    ("nccl-log/h200_vm_pxb_nccltests256_system.log", "h200-sxm", None, "dgx-h200", True),
    ("nvidia-smi/h100x8_stas_ml_engineering.txt", "h100", None, "dgx-h100", False),
    ("nvidia-smi/a100x8_stas_ml_engineering.txt", "a100-sxm4-80gb", None, "dgx-a100-80gb", False),
    ("nvidia-smi/dgx1_v100_4nic_msccl_tabs.txt", "v100-sxm2-16gb", "connectx-4-edr", "dgx-1-v100-16gb", True),
    ("nvidia-smi/p3.16xlarge_mxnet_p2p_matrix.txt", "v100-sxm2-16gb", None, "p3.16xlarge", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gpu", "nic", "built_in", "networked"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_dumps_are_the_built_in_machines(name, gpu, nic, built_in, networked) -> None:
    if not (DUMPS / name).exists():
        pytest.skip(f"no {DUMPS / name}; TOPOCAST_DUMPS names the folder of dumps")
    text, _ = combined([read_dump(str(DUMPS / name))], gpu, nic)
    for strategy in ("ring", "nccl"):
        mine = exchange_on(compile_machine(topology_from_text(text)), strategy, 1e9)
        theirs = exchange_on(load_machine(built_in), strategy, 1e9)
        assert mine.sync_time_s == pytest.approx(theirs.sync_time_s, rel=1e-6), strategy
    if networked:
        mine = exchange_on(compile_machine(topology_from_text(text, n_nodes=2)), "nccl", 1e9)
        theirs = exchange_on(load_machine(built_in, n_nodes=2), "nccl", 1e9)
        assert mine.sync_time_s == pytest.approx(theirs.sync_time_s, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_every_published_xml_is_a_machine_or_says_what_it_lacks(number, tmp_path) -> None:
    files = sorted((DUMPS / "nccl-xml").glob("*.xml")) if DUMPS.exists() else []
    if len(files) <= number:
        pytest.skip(f"no twelve XML files in {DUMPS}; TOPOCAST_DUMPS names the folder of dumps")
    dump = read_dump(str(files[number]))
    if not dump.gpus:
        with pytest.raises(InputError, match="nothing says which of them are GPUs"):
            combined([dump])
        return
    named = all(gpu.model for gpu in dump.tree.gpus()) if dump.tree else False
    text, _ = combined([dump], None if named else "v100-sxm2-16gb")
    machine = compile_machine(topology_from_text(text))
    assert len(machine.gpus) == dump.gpus
    assert exchange_on(machine, "nccl", 1e8).busbw_Bps > 1e9
