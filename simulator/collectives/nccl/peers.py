"""How far GPUs of a communicator copy directly over PCIe where the topology leaves it to NCCL."""

from __future__ import annotations

from dataclasses import replace

from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl.sockets import cpu_kind
from simulator.network.routing import Router
from simulator.topology.parts import GpuPart

_FEW = 2


def with_peers(group: Communicator) -> Communicator:
    """Return *group* on its machine with the peers that NCCL has there by default.

    They reach up to PXB, and between sockets too if at most two GPUs of a machine with AMD's CPUs take part
    (``src/graph/paths.cc``, ncclTopoCheckP2p, in 2.8 to 2.30).  The group itself where this changes nothing.
    """
    return group.once("nccl peers", lambda: _with_peers(group))


def _with_peers(group: Communicator) -> Communicator:
    machine, most = group.machine, max(len(ranks) for ranks in group.by_host().values())
    parts = [node.part for node in group.unlike()]
    are_peers = all(isinstance(part, GpuPart) and part.vendor == "nvidia" and part.pcie_peers for part in parts)
    if machine.transport.peer_to_peer is not None or most != _FEW or not are_peers:
        return group
    firsts = {machine.run(host).first for host in group.by_host()}
    cpus = [node for host in firsts for node in machine.nodes_of(host) if node.kind == "cpu"]
    if not cpus or any(cpu_kind(cpu) != "amd" for cpu in cpus):
        return group
    reaching = replace(machine, transport=machine.transport.model_copy(update={"peer_to_peer": "sys"}))
    router = group.router.once("nccl peers", lambda: Router(reaching))
    return Communicator(reaching, group.ranks, router)
