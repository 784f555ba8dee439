"""Copies between GPUs over PCIe: directly through a CPU, through its memory, and between sockets."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl.cost import NcclConstants
from simulator.collectives.nccl.graph import with_peers
from simulator.collectives.nccl.tables import peers_between_sockets_bps
from simulator.constants import DEFAULT
from simulator.network.machine import Machine
from simulator.questions.where import Software, Version
from simulator.topology.catalogue import load_part
from simulator.topology.parts import NETWORK_LINKS, GpuPart
from tests.asked import exchange_on
from tests.machines import machine_from

SHARED = DEFAULT(NcclConstants)
LARGE = 1 << 30
BOX = """
schema_version: 1
name: box
devices:
  gpu[0-7]: {{part: {gpu}}}
  cpu[0-1]: {{part: {cpu}}}
links:
  - {{between: ["gpu[0-7]", "cpu[0,0,0,0,1,1,1,1]"], part: {slot}}}
  - {{between: [cpu0, cpu1], part: {socket}}}
"""
BRIDGES = """meshes:
  - part: nvlink3-bridge-ga102
    matrix: |
      gpu0 X 4 - - - - - -
      gpu1 4 X - - - - - -
      gpu2 - - X 4 - - - -
      gpu3 - - 4 X - - - -
      gpu4 - - - - X 4 - -
      gpu5 - - - - 4 X - -
      gpu6 - - - - - - X 4
      gpu7 - - - - - - 4 X
"""


def box(level: str | None = None, *, bridges: bool = False, **parts: str) -> Machine:
    """Return eight GPUs, four at each of two sockets, that copy directly as far as *level* (None: left out)."""
    known = {"gpu": "a40", "cpu": "epyc-7302", "slot": "pcie4-x16", "socket": "xgmi-socket"} | parts
    text = BOX.format(**known) + (BRIDGES if bridges else "")
    return machine_from(text + (f"transport: {{peer_to_peer: {level}}}\n" if level else ""))


def rate_of(machine: Machine, gpus: tuple[int, ...], version: Version = (2, 30), size: float = LARGE) -> float:
    return exchange_on(machine, "nccl", size, gpus=gpus, software=Software(nccl=version)).busbw_Bps


def rate_of_link(machine: Machine, kind: str) -> float:
    return next(link.bandwidth_Bps for link in machine.links if link.kind == kind)


def test_copies_through_a_cpu_reach_more_of_pcie_directly_than_through_memory() -> None:
    direct, staged = box("phb"), box("none")
    for machine, share in ((direct, SHARED.peer_share), (staged, SHARED.pcie_share)):
        assert rate_of(machine, (0, 1)) == pytest.approx(share * rate_of_link(machine, "pcie"), rel=0.01)
    assert SHARED.peer_share > SHARED.pcie_share


def test_channels_bound_what_goes_through_memory() -> None:
    machine = box("none", gpu="h100-pcie", cpu="xeon-platinum-8480c", slot="pcie5-x16", socket="upi-16-x3")
    found = exchange_on(machine, "nccl", LARGE, gpus=(0, 1, 2, 3))
    channels = next(int(note.split(", ")[-1].split()[0]) for note in found.notes if note.startswith("chosen"))
    assert found.busbw_Bps == pytest.approx(channels * SHARED.staged_channel_Bps, rel=0.01)
    assert found.busbw_Bps < SHARED.pcie_share * rate_of_link(machine, "pcie")


@pytest.mark.parametrize(
    ("cpu", "socket", "gpus", "reaches"),
    [
        ("epyc-7302", "xgmi-socket", (0, 1), True),
        ("epyc-7302", "xgmi-socket", (0, 4), True),
        ("epyc-7302", "xgmi-socket", (0, 1, 2), False),
        ("xeon-platinum-8380", "upi-11.2-x3", (0, 1), False),
    ],
)
def test_two_gpus_beside_amd_s_cpus_are_peers_by_nccl_s_default(cpu, socket, gpus, reaches) -> None:
    machine = box(cpu=cpu, socket=socket)
    group = Communicator(machine, [machine.gpus[gpu] for gpu in gpus])
    used = with_peers(group)
    ends = machine.gpus[gpus[0]], machine.gpus[gpus[1]]
    assert (used.router.route(*ends).transport == "peer-to-peer") is reaches
    assert (
        with_peers(Communicator(box("none", cpu=cpu, socket=socket), group.ranks)).machine.transport.peer_to_peer
        == "none"
    )


def test_direct_copies_between_sockets_share_what_they_reach_there() -> None:
    machine = box("sys")
    cpu = machine.node("cpu0")
    assert rate_of(machine, (0, 4)) == pytest.approx(peers_between_sockets_bps(cpu), rel=0.01)
    assert rate_of(box("none"), (0, 1, 4, 5), (2, 8)) < rate_of_link(machine, "socket")


def test_four_bridged_pairs_are_as_measured() -> None:
    """NVIDIA/nccl-tests#74: direct copies help in a socket, to 36.6 GB/s and more, and hurt between sockets."""
    version, size = (2, 8), 32 << 20
    inside = {level: rate_of(box(level, bridges=True), (0, 1, 2, 3), version, size) for level in ("none", "pxb", "phb")}
    assert inside["none"] == inside["pxb"] < inside["phb"]
    assert inside["phb"] / 1e9 == pytest.approx(36.6, rel=0.25)
    across = {level: rate_of(box(level, bridges=True), tuple(range(8)), version, size) for level in ("phb", "sys")}
    assert across["sys"] < across["phb"]


def test_gpus_of_two_sockets_had_more_channels_than_those_of_one() -> None:
    """NVIDIA/nccl#1130: 35 GB/s in six channels over four GPUs of two sockets, 24 in four over those of one."""
    machine = box("none", gpu="h100-pcie", cpu="xeon-platinum-8480c", slot="pcie5-x16", socket="upi-16-x3")
    across, inside = (rate_of(machine, gpus, (2, 19)) / 1e9 for gpus in ((0, 1, 6, 7), (0, 1, 2, 3)))
    assert across == pytest.approx(35, rel=0.25)
    assert inside == pytest.approx(24, rel=0.25)
    assert across > 1.2 * inside


def test_two_gpus_at_two_turin_sockets_are_as_measured() -> None:
    """NVIDIA/nccl#2036: 32.2 GB/s between RTX PRO 6000 at two EPYC 9575F."""
    machine = box(gpu="h100-pcie", cpu="epyc-9575f", slot="pcie5-x16", socket="xgmi-socket-32g")
    assert rate_of(machine, (0, 4)) / 1e9 == pytest.approx(32.2, rel=0.1)


@pytest.mark.parametrize("gpu", ["rtx-2080-ti", "rtx-3090", "rtx-4090", "rtx-5090", "titan-rtx"])
def test_boards_for_gamers_have_no_peers_over_pcie_unless_the_file_says_so(gpu) -> None:
    part = load_part(gpu)
    assert isinstance(part, GpuPart)
    assert not part.pcie_peers
    ends = {level: box(level, gpu=gpu) for level in (None, "phb")}
    for level, machine in ends.items():
        group = Communicator(machine, machine.gpus[:2])
        route = with_peers(group).router.route(*machine.gpus[:2])
        assert route.transport == ("peer-to-peer" if level else "host-staged")


def test_a_bridge_joins_boards_for_gamers() -> None:
    bridged = box(gpu="rtx-3090", bridges=True)
    assert Communicator(bridged, bridged.gpus[:2]).router.route(*bridged.gpus[:2]).transport == "nvlink"


def test_memory_that_a_gpu_shares_with_its_cpu_stages_nothing() -> None:
    """DGX Spark measures 18.9 to 21 GB/s over 200 Gbit/s (NVIDIA/dgx-spark-playbooks)."""
    machine = load_machine("dgx-spark", n_nodes=2)
    wire_Bps = min(link.bandwidth_Bps for link in machine.links if link.kind in NETWORK_LINKS)
    found_Bps = rate_of(machine, (0, 1))
    assert found_Bps == pytest.approx(SHARED.network_share * wire_Bps, rel=0.01)
    assert found_Bps / 1e9 == pytest.approx(20.0, rel=0.25)
