"""Outputs of rocm-smi, amd-smi, ibstat, nvidia-smi -q, lspci -vv and lstopo, read as parts of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.topology.load import foreign_kind, load_topology, topology_from_text
from simulator.topology.parts import GpuPart
from tests.dumped_machines import Dumped
from validate.machine.describe.dumps.combine import combined
from validate.machine.describe.dumps.read import read_dump


def drafted(tmp_path: Path, *texts: str, gpu: str | None = None) -> tuple[Machine, list[str], str]:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    draft, remarks = combined([read_dump(str(tmp_path / f"{number}.txt")) for number in range(len(texts))], gpu)
    return compile_machine(topology_from_text(draft)), remarks, draft


def joined(machine: Machine) -> set[str]:
    return {link.name.replace("->", "-") for link in machine.links if link.index % 2 == 0}


def square(names: list[str], cell: str, own: str, start: str = "") -> str:
    rows = [f"{name}   " + "   ".join(own if name == other else cell for other in names) for name in names]
    return "\n".join([f"{start}       " + "   ".join(names), *rows])


NAMES = [f"GPU{i}" for i in range(8)]
ROCM = "\n".join(
    [
        "============================ ROCm System Management Interface ============================",
        "=============================== Weight between two GPUs ================================",
        square(NAMES, "15", "0"),
        "=============================== Hops between two GPUs ==================================",
        square(NAMES, "1", "0"),
        "=============================== Link Type between two GPUs ===============================",
        square(NAMES, "XGMI", "0"),
        "",
        "======================================= Numa Nodes =======================================",
        *(f"GPU[{i}]\t\t: (Topology) Numa {what}: {i // 4}" for i in range(8) for what in ("Node", "Affinity")),
        "================================== End of ROCm SMI Log ===================================",
    ]
)
BUSES = [f"0000:{i:02x}:00.0" for i in range(16, 24)]
AMD_SMI = f"""ACCESS TABLE:
{square(BUSES, "ENABLED", "ENABLED")}

HOPS TABLE:
{square(BUSES, "1", "0")}

LINK TYPE TABLE:
{square(BUSES, "XGMI", "SELF")}

NUMA BW TABLE:
{square(BUSES, "50000-50000", "N/A")}
"""


@pytest.mark.parametrize("text", [ROCM, AMD_SMI])
def test_amd_s_tables_are_a_mesh(text, tmp_path) -> None:
    assert foreign_kind(text) == "amd"
    machine, remarks, draft = drafted(tmp_path, text, gpu="mi300x")
    assert sum(link.kind == "xgmi" for link in machine.links) == 8 * 7
    assert ("cpu[0-1]" in draft) == (text is ROCM)
    assert any("xGMI links between two GPUs as in 8x-mi300x" in remark for remark in remarks)


def test_amd_s_gpus_without_xgmi_are_at_their_sockets(tmp_path) -> None:
    text = ROCM.replace("XGMI", "PCIE")
    machine, _, _ = drafted(tmp_path, text, gpu="mi210")
    assert {"gpu0-cpu0", "gpu7-cpu1"} <= joined(machine)
    assert not any(link.kind == "xgmi" for link in machine.links)


IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tCA type: MT4125
\tNumber of ports: 1
\tPort 1:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: 40
\t\tLink layer: Ethernet
"""
TOPO = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tSYS\tPXB\tSYS\t0-31\nGPU1\tSYS\t X \tSYS\tPXB\t32-63\n"
    "NIC0\tPXB\tSYS\t X \tSYS\nNIC1\tSYS\tPXB\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)


def test_ibstat_says_rates_of_the_adapters_in_a_matrix(tmp_path) -> None:
    machine, remarks, _ = drafted(tmp_path, TOPO, IBSTAT, gpu="h100-pcie")
    assert [node.part_name for node in machine.nodes if node.kind == "nic"] == ["connectx-7-ndr"]
    assert {"gpu0-plx0", "nic0-plx0"} <= joined(machine)
    assert any("left out, because their speed is unknown: NIC1" in remark for remark in remarks)


QUERY = """
==============NVSMI LOG==============

Attached GPUs                             : 2
""" + "".join(
    f"""GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA A100 80GB PCIe
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
    FB Memory Usage
        Total                             : 81920 MiB
    GPU Power Readings
        Current Power Limit               : 200.00 W
        Default Power Limit               : 300.00 W
    Max Clocks
        Graphics                          : 1410 MHz
"""
    for bus in ("17", "CA")
)


def test_nvidia_smi_says_lanes_and_limits_of_power(tmp_path) -> None:
    machine, _, draft = drafted(tmp_path, QUERY)
    assert [link.nominal_Bps for link in machine.links if link.kind == "pcie"] == pytest.approx([15.754e9] * 4)
    parts = [node.part for node in machine.nodes if node.kind == "gpu"]
    assert [isinstance(part, GpuPart) and part.board_power for part in parts] == [200.0, 200.0]
    assert 'part: "a100-pcie-80gb-200w"' in draft
    _, _, usual = drafted(tmp_path, QUERY.replace("200.00", "300.00"))
    assert "200w" not in usual


LSPCI = """17:00.0 PCI bridge: Intel Corporation Device 352a (prog-if 00 [Normal decode])
\tNUMA node: 0
\tBus: primary=17, secondary=18, subordinate=1b, sec-latency=0
\t\tLnkCap:\tPort #1, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x16
18:00.0 PCI bridge: Broadcom / LSI PEX88000 managed PCI-E 4.0 Switch (rev b0) (prog-if 00 [Normal decode])
\tBus: primary=18, secondary=19, subordinate=1b, sec-latency=0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
19:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16
19:01.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
ca:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tNUMA node: 1
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x16
"""


def test_lspci_says_widths_as_negotiated_and_sockets(tmp_path) -> None:
    assert foreign_kind(LSPCI) == "lspci-vv"
    machine, _, draft = drafted(tmp_path, LSPCI)
    assert {"gpu0-plx0", "gpu1-plx0", "plx0-cpu0", "gpu2-cpu1"} <= joined(machine)
    slots = {link.name: link.nominal_Bps for link in machine.links}
    assert slots["gpu0->plx0"] == pytest.approx(31.508e9)
    assert slots["gpu1->plx0"] == pytest.approx(slots["plx0->cpu0"]) == pytest.approx(15.754e9)
    assert "a100-pcie-80gb" in draft


def bridge(bus: int, below: int) -> str:
    return f"{bus:02x}:00.0 PCI bridge: A\n\tBus: primary={bus:02x}, secondary={below:02x}, subordinate=ff\n"


def test_bridges_of_lspci_that_hold_each_other_are_no_machine(tmp_path) -> None:
    with pytest.raises(InputError, match="no GPU"):
        drafted(tmp_path, bridge(1, 2) + bridge(2, 1))
    with pytest.raises(InputError, match="nested deeper"):
        drafted(tmp_path, "".join(bridge(bus, bus + 1) for bus in range(200)))


LSTOPO = """Machine (1008GB total)
  Package L#0
    NUMANode L#0 (P#0 504GB)
    HostBridge
      PCIBridge
        PCI 03:00.0 (VGA)
      PCIBridge
        PCIBridge
          PCIBridge
            PCI 31:00.0 (3D)
              CoProc(CUDA) "cuda0"
          PCIBridge
            PCI 32:00.0 (InfiniBand)
              Net "ib0"
              OpenFabrics "mlx5_0"
  Package L#1
    HostBridge
      PCIBridge
        PCI b1:00.0 (3D)
          GPU(NVML) "nvml1"
"""


def test_lstopo_s_text_is_a_tree(tmp_path) -> None:
    assert foreign_kind(LSTOPO) == "lstopo"
    machine, _, _ = drafted(tmp_path, LSTOPO, IBSTAT, gpu="h100-pcie")
    assert {"gpu0-plx0", "nic0-plx0", "plx0-cpu0", "gpu1-cpu1"} <= joined(machine)
    assert [node.part_name for node in machine.nodes if node.kind == "nic"] == ["connectx-7-ndr"]


def test_a_table_that_is_cut_off_is_one_line(tmp_path) -> None:
    for text in (ROCM[: ROCM.index("GPU5   XGMI")], "LINK TYPE TABLE:\n"):
        with pytest.raises(InputError, match=r"0.txt:1:1: no whole table of link types"):
            drafted(tmp_path, text, gpu="mi300x")


def test_mi300x_s_mesh_is_that_of_the_built_in_machine(tmp_path) -> None:
    machine, _, _ = drafted(tmp_path, ROCM, gpu="mi300x")
    own = Dumped(load_topology("8x-mi300x"))
    assert sum(own.nvlinks.values()) == sum(link.count for link in machine.links if link.kind == "xgmi")
