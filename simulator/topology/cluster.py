"""Compose equal machines over a network."""

from __future__ import annotations

from typing import Any, cast

from simulator.errors import InputError
from simulator.topology.parts import LinkPart, NicPart, SwitchPart
from simulator.topology.topology import Device, Topology, Wire

__all__ = ["compose_cluster", "node_prefix"]

MAX_NODES = 4096  # 32,768 GPUs: what is simulated in minutes
# Of a NIC that no file describes, one way: kernel TCP takes 10 to 30 us (kentino.com), RDMA about 1 us.
_ADDED_LATENCY_S = {"ethernet": 10e-6}


def node_prefix(node: int) -> str:
    """Return what stands before the names of a cluster's devices: ``node3.``."""
    return f"node{node}."


def compose_cluster(
    node: Topology,
    *,
    n_nodes: int,
    fabric: LinkPart | None = None,
    switch: SwitchPart | None = None,
    oversubscription: float = 1.0,
    name: str = "",
    description: str = "",
    aliases: tuple[str, ...] = (),
    file: str = "",
) -> Topology:
    """Return *n_nodes* of *node*, every NIC linked to one network switch.

    Where the node has no NIC, one is put at its first CPU at the rate of *fabric*.  The
    links to the network run at the rate of *fabric*, or of the NIC where it is None.  An
    *oversubscription* of k lets the network carry 1/k of what all NICs send at once.

    Raises InputError where there is nothing to link the nodes with.
    """
    if node.n_nodes > 1:
        raise InputError(f"--nodes: {node.name} is a cluster of {node.n_nodes} nodes already")
    if not 1 <= n_nodes <= MAX_NODES:
        raise InputError(f"--nodes: must be from 1 to {MAX_NODES}; got {n_nodes}")
    if n_nodes == 1 and fabric is None:
        return node
    devices, wires = list(node.devices), list(node.wires)
    nics = [d for d in devices if d.kind == "nic"]
    if not nics:
        nic, wire = _added_nic(node, fabric)
        devices.append(nic)
        wires.append(wire)
        nics = [nic]
    all_devices: list[Device] = []
    all_wires: list[Wire] = []
    uplinks: list[Wire] = []
    for i in range(n_nodes):
        prefix = node_prefix(i)
        all_devices += [Device(prefix + d.name, d.kind, d.part, d.part_name, i) for d in devices]
        all_wires += [Wire(prefix + w.a, prefix + w.b, w.part, w.count) for w in wires]
        uplinks += [Wire(prefix + d.name, "network", fabric or _own_link(d), 1) for d in nics]
    part = switch or SwitchPart(kind="switch", of="network")
    total = sum(wire.part.bandwidth * wire.part.efficiency for wire in uplinks)
    if oversubscription > 1:
        part = part.model_copy(update={"fabric_bandwidth": total / oversubscription})
    all_devices.append(Device("network", "network-switch", part, "", -1))
    return Topology(
        name=name or f"{n_nodes} x {node.name}",
        description=description or f"{n_nodes} nodes: {node.description}",
        aliases=aliases,
        devices=tuple(all_devices),
        wires=tuple(all_wires + uplinks),
        transport=node.transport,
        n_nodes=n_nodes,
        file=file or node.file,
    )


def _own_link(nic: Device) -> LinkPart:
    part = nic.part
    assert isinstance(part, NicPart)
    return LinkPart.model_construct(kind="link", of=part.network, bandwidth=part.bandwidth, efficiency=part.efficiency)


def _added_nic(node: Topology, fabric: LinkPart | None) -> tuple[Device, Wire]:
    if fabric is None:
        raise InputError(f"--nodes: {node.name} has no NIC; name a network with --fabric, for example ethernet-10g")
    cpu = next((d for d in node.devices if d.kind == "cpu"), None)
    if cpu is None:
        raise InputError(f"--nodes: {node.name} has no CPU that a NIC could be put at")
    latency_s = _ADDED_LATENCY_S.get(fabric.of, 1e-6)
    network = cast(Any, fabric.of)
    nic = NicPart.model_construct(kind="nic", network=network, bandwidth=fabric.bandwidth, latency=latency_s)
    slot = LinkPart.model_construct(kind="link", of="pcie", bandwidth=max(fabric.bandwidth, 16e9))
    return Device("nic0", "nic", nic, "", 0), Wire("nic0", cpu.name, slot, 1)
