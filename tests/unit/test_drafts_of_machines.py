"""Dumps made of built-in machines, read back: the draft has their bandwidths, or says what it guesses."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from simulator.network.compiling import compile_machine
from simulator.topology import Topology
from simulator.topology.load import load_topology, topology_from_text
from tests.asked import exchange_on
from tests.dumped_machines import Dumped
from validate.cli import main
from validate.machine.describe.draft import moving_guesses
from validate.machine.describe.dumps.combine import combined
from validate.machine.describe.dumps.read import read_dump

# PIX, PXB, PHB, NODE and SYS stand in these; between 1 and 16 GPUs, with and without NVLinks and adapters.
MACHINES = (
    "10x-a100-pcie-nvlink", "10x-titanx-pascal-single-root", "2x-h100-pcie", "2x-v100-sxm2-ib", "4x-a100-nvlink",
    "4x-a100-sxm4-40gb-2xhdr", "4x-h100-sxm5-4xndr", "4x-l40s-2x400g", "4x-v100-sxm2-16gb-4xopa", "6x-l4",
    "8x-a100-pcie-80gb", "8x-h100-pcie-gen4", "8x-mi300x", "8x-p100-pcie-dual-root", "azure-nd40rs-v2",
    "dgx-1-v100-16gb", "dgx-2", "dgx-a100-40gb", "dgx-h100", "g4dn.12xlarge",
)  # fmt: skip
NEAR = 0.05


@cache
def measured(name: str) -> tuple[Topology, float, float]:
    """Return a built-in machine and its bandwidths of 1 GB in B/s: of one, and of two where it has adapters."""
    alone = load_topology(name)
    return alone, bandwidth(alone), bandwidth(load_topology(name, n_nodes=2)) if adapter_of(alone) else 0.0


def bandwidth(topology: Topology) -> float:
    return exchange_on(compile_machine(topology), "nccl", 1e9).busbw_Bps


def adapter_of(topology: Topology) -> str | None:
    return next((device.part_name for device in topology.devices if device.kind == "nic"), None)


def drafted(tmp_path: Path, topology: Topology, dump: str) -> tuple[str, list[str]]:
    """Return the draft of *dump*, which names neither GPUs nor adapters, and its remarks."""
    (tmp_path / "dump.txt").write_text(dump)
    gpu = next(device.part_name for device in topology.devices if device.kind == "gpu")
    return combined([read_dump(str(tmp_path / "dump.txt"))], gpu, adapter_of(topology))


@pytest.mark.parametrize("kind", ["matrix", "cascaded", "xml"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_dump_of_a_machine_is_the_machine(name, kind, tmp_path) -> None:
    topology, one, two = measured(name)
    dump = Dumped(topology)
    text = dump.xml() if kind == "xml" else dump.matrix(cascaded=kind == "cascaded")
    draft, said = drafted(tmp_path, topology, text)
    if topology.transport.peer_to_peer is not None:
        assert any("how far GPUs copy directly" in remark for remark in said)
        draft += f"\ntransport: {{peer_to_peer: {topology.transport.peer_to_peer}}}\n"
    assert bandwidth(topology_from_text(draft)) == pytest.approx(one, rel=NEAR)
    if two and not (name == "dgx-2" and kind == "cascaded"):  # where all is PXB, no level of switches can be seen
        assert bandwidth(topology_from_text(draft, n_nodes=2)) == pytest.approx(two, rel=NEAR)


def test_a_gpu_and_an_adapter_below_several_bridges_share_a_switch(tmp_path) -> None:
    text = "GPU0 GPU1 NIC0 CPU Affinity\nGPU0 X SYS {0} 0-31\nGPU1 SYS X SYS 32-63\nNIC0 {0} SYS X\n"
    found = []
    for word in ("PIX", "PXB"):
        (tmp_path / "topo.txt").write_text(text.format(word))
        draft, _ = combined([read_dump(str(tmp_path / "topo.txt"))], "h100-pcie", "connectx-7-ndr")
        machine = compile_machine(topology_from_text(draft, n_nodes=2))
        found.append(exchange_on(machine, "nccl", 1 << 30, gpus=(0, 2)).busbw_Bps)
    assert found[1] == pytest.approx(found[0])
    assert found[1] > 45e9


def test_chips_of_pcie_3_in_a_row_share_one_port(tmp_path) -> None:
    rows = ["X PIX PXB PXB", "PIX X PXB PXB", "PXB PXB X PIX", "PXB PXB PIX X"]
    (tmp_path / "topo.txt").write_text("\n".join(["GPU0 GPU1 GPU2 GPU3", *(f"GPU{i} {r}" for i, r in enumerate(rows))]))
    draft, _ = combined([read_dump(str(tmp_path / "topo.txt"))], "p4")
    assert "[plx0, plx2]" in draft
    assert "[plx1, plx2]" in draft
    assert "[plx2, cpu0]" in draft


@pytest.mark.parametrize(
    ("rows", "level"),
    [
        (("X CNS CNS", "CNS X CNS", "CNS CNS X"), "none"),
        (("X OK CNS", "OK X CNS", "CNS CNS X"), "pix"),
        (("X OK OK", "OK X OK", "OK OK X"), ""),
    ],
)
def test_the_driver_s_states_of_peers_say_how_far_they_reach(rows, level, tmp_path) -> None:
    topo = "GPU0 GPU1 GPU2\nGPU0 X PIX NODE\nGPU1 PIX X NODE\nGPU2 NODE NODE X\n"
    peers = " \tGPU0\tGPU1\tGPU2\n" + "".join(f" GPU{i}\t{row}\n" for i, row in enumerate(rows)) + "\nLegend:\n\n  OK\n"
    for name, text in (("topo.txt", topo), ("peers.txt", peers)):
        (tmp_path / name).write_text(text)
    draft, _ = combined([read_dump(str(tmp_path / name)) for name in ("peers.txt", "topo.txt")], "a40")
    assert (f"transport: {{peer_to_peer: {level}, " in draft) if level else ("transport" not in draft)


def test_a_cpu_beside_new_slots_has_them(tmp_path) -> None:
    (tmp_path / "topo.xml").write_text(
        '<system version="1"><cpu numaid="0" vendor="GenuineIntel" familyid="6" modelid="1">'
        '<pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x26b9" link_speed="16 GT/s" '
        'link_width="16"><gpu dev="0"/></pci></cpu><cpu numaid="1" vendor="GenuineIntel" familyid="6" modelid="1">'
        '<pci busid="0000:98:00.0" class="0x030200" vendor="0x10de" device="0x26b9" link_speed="16 GT/s" '
        'link_width="16"><gpu dev="1"/></pci></cpu></system>'
    )
    draft, _ = combined([read_dump(str(tmp_path / "topo.xml"))], "rtx-a5500")
    topology = topology_from_text(draft)
    cpus = {device.part.architecture for device in topology.devices if device.kind == "cpu"}
    assert cpus <= {"Ice Lake", "Sapphire Rapids", "Emerald Rapids"}
    assert next(wire.part.description for wire in topology.wires if wire.part.of == "socket").startswith("UPI")


def test_guesses_that_move_an_all_reduce_stand_first(tmp_path) -> None:
    """The slot of each GPU and of the adapter bound the ring over two machines; the link between sockets does not."""
    text = "GPU0 GPU1 NIC0 CPU Affinity\nGPU0 X SYS PXB 0-31\nGPU1 SYS X SYS 32-63\nNIC0 PXB SYS X\n"
    (tmp_path / "topo.txt").write_text(text)
    draft, _ = combined([read_dump(str(tmp_path / "topo.txt"))], "h100-pcie", "connectx-7-ndr")
    told = moving_guesses(draft, peers_unsaid=True)
    assert any("slots of GPUs" in each and "nvidia-smi -q" in each for each in told)
    assert not any("between sockets" in each for each in told)
    changes = [int(each.split("by ")[1].split(" %")[0]) for each in told]
    assert changes == sorted(changes, reverse=True)
    assert min(changes) >= 10


def test_a_draft_without_guesses_has_none_that_move(tmp_path) -> None:
    topology = load_topology("dgx-h100")
    draft, _ = drafted(tmp_path, topology, Dumped(topology).xml())
    assert moving_guesses(draft, peers_unsaid=False) == []


def test_the_command_puts_moving_guesses_below_its_first_line(tmp_path, capsys) -> None:
    (tmp_path / "topo.txt").write_text("GPU0 GPU1 CPU Affinity\nGPU0 X NODE 0-31\nGPU1 NODE X 0-31\n")
    with pytest.raises(SystemExit):
        main(["describe", "--from", str(tmp_path / "topo.txt"), "--gpu", "a40"])
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith(
        "# UNVERIFIED: slots of GPUs: guessed; another guess changes an all-reduce by "
    )
    assert err.splitlines()[0] == out.splitlines()[1].removeprefix("# ")
    assert topology_from_text(out).devices
