"""Clusters: equal machines, or groups of equal machines, joined by a network (docs/decisions/host.md)."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple, cast

from simulator.errors import InputError, mention, refused
from simulator.records import replace
from simulator.topology import Device, Topology, Wire, each
from simulator.topology.parts import LinkPart, NicPart, SwitchPart
from simulator.topology.schema import MAX_NODES, TransportSpec, summed
from simulator.units import format_bandwidth

# One-way latency of a NIC that no file describes: kernel TCP takes 10 to 30 us (kentino.com), RDMA about 1 us.
_ADDED_LATENCY_S = {"ethernet": 10e-6}


class Group(NamedTuple):
    """Equal nodes.  ``fabric``: link of their NICs, by default the cluster's; ``uplink``: of their own switch to it."""

    node: Topology
    nodes: int
    fabric: LinkPart | None = None
    uplink: LinkPart | None = None


def compose_cluster(
    groups: Sequence[Group],
    *,
    fabric: LinkPart | None = None,  # of all NICs; None: their own rate
    switch: SwitchPart | None = None,
    oversubscription: float = 1.0,  # the top switch carries one such part of all NICs' rates
) -> Topology:
    """Return *groups* on a switch that carries 1/*oversubscription* of all NICs; adds lacking NICs; or InputError."""
    first = groups[0].node
    n_nodes = sum(group.nodes for group in groups)
    for node in (group.node for group in groups):
        if node.n_nodes > 1:
            raise refused("nodes", f"{node.name} is a cluster of {node.n_nodes} nodes already")
    if not 1 <= n_nodes <= MAX_NODES:
        raise refused("nodes", f"must be from 1 to {MAX_NODES}; got {n_nodes}")
    if n_nodes == 1 and fabric is None:
        return first
    own: list[Device] = []
    between: list[Device] = []
    wires: list[Wire] = []
    total, begin = 0.0, 0
    part = switch or SwitchPart(kind="switch", of="network")
    for place, group in enumerate(groups):
        node, link = group.node, group.fabric or fabric
        prefix, network = each(begin), "network"
        devices, inside = node.devices, node.wires
        if all(device.kind != "nic" for device in devices):
            nic, slot = _added_nic(node, link)
            devices, inside = (*devices, nic), (*inside, slot)
        if group.uplink is not None:
            network = f"network{place}"
            between.append(Device(network, "network-switch", part, "", -1))
            wires.append(Wire(network, "network", group.uplink, 1))
        nics = [(d.name, d.part) for d in devices if isinstance(d.part, NicPart)]
        cables = [Wire(prefix + name, network, link or _own_link(part), 1) for name, part in nics]
        own += [replace(d, name=prefix + d.name, node=begin) for d in devices]
        wires += [replace(w, a=prefix + w.a, b=prefix + w.b) for w in inside] + cables
        total += group.nodes * sum(wire.part.bandwidth * wire.part.efficiency for wire in cables)
        begin += group.nodes
    if oversubscription > 1:
        part = part.model_copy(update={"fabric_bandwidth": total / oversubscription})
    return replace(
        first,
        name=f"{n_nodes} x {first.name}",
        description=f"{n_nodes} nodes: {first.description}",
        aliases=(),
        devices=(*own, *between, Device("network", "network-switch", part, "", -1)),
        wires=tuple(wires),
        transport=_transport([group.node for group in groups]),
        n_nodes=n_nodes,
        notes=tuple(dict.fromkeys(note for group in groups for note in group.node.notes)),
        shared_network=None if fabric else max(group.node.shared_network or 0.0 for group in groups) or None,
        price_per_hour=summed([node.price_per_hour and node.price_per_hour.times(n) for node, n, *_ in groups]),
    )


def _transport(nodes: Sequence[Topology]) -> TransportSpec:
    with_gpus = [node for node in nodes if any(d.kind == "gpu" for d in node.devices)] or list(nodes)
    first = with_gpus[0]
    levels = ("peer_to_peer", "gpudirect_rdma", "pxn", "least_channels", "most_channels", "peer_channels")
    for node, level in product(with_gpus[1:], levels):
        own, other = getattr(first.transport, level), getattr(node.transport, level)
        if own != other:
            known = f"{first.name} has {own or 'the default'}, {node.name} has {other or 'the default'}"
            raise InputError(f"transport: nodes of a cluster have the same {level}; {known}")
    return first.transport


def with_flow_note(cluster: Topology) -> Topology:
    """Return *cluster* with a note if the network of its adapters limits each TCP flow to a part of their rate."""
    for part in (device.part for device in cluster.devices):
        if isinstance(part, NicPart) and part.flow_bandwidth and part.flow_bandwidth < part.bandwidth:
            flow, whole = format_bandwidth(part.flow_bandwidth), format_bandwidth(part.bandwidth)
            option = mention("fabric", f"'{part.flow_bandwidth * 8 / 1e9:g} Gbit/s'")
            note = (
                f"one TCP flow reaches {flow} of an adapter's {whole}, and several are simulated; {option} where all "
                "packets between two nodes are one flow, as in pods behind an overlay"
            )
            return replace(cluster, notes=(*cluster.notes, note))
    return cluster


def with_rate_note(cluster: Topology, fabric: LinkPart) -> Topology:
    """Return *cluster* with a note if the *fabric* of the command line is faster than adapters of the nodes."""
    rates_Bps = [device.part.bandwidth for device in cluster.devices if isinstance(device.part, NicPart)]
    least_Bps = min(rates_Bps, default=fabric.bandwidth)
    if least_Bps >= fabric.bandwidth:
        return cluster
    rates = f"{format_bandwidth(fabric.bandwidth)} instead of {format_bandwidth(least_Bps)}"
    return replace(cluster, notes=(*cluster.notes, f"{mention('fabric')}: adapters are simulated at its rate, {rates}"))


def _own_link(nic: NicPart) -> LinkPart:
    return LinkPart.model_construct(kind="link", of=nic.network, bandwidth=nic.bandwidth, efficiency=nic.efficiency)


def _added_nic(node: Topology, fabric: LinkPart | None) -> tuple[Device, Wire]:
    if fabric is None:
        named = f"name a network with {mention('fabric')}, for example ethernet-10g"
        raise refused("nodes", f"{node.name} has no NIC; {named}")
    cpu = next((d for d in node.devices if d.kind == "cpu"), None)
    if cpu is None:
        raise refused("nodes", f"{node.name} has no CPU that a NIC could be put at")
    latency_s = _ADDED_LATENCY_S.get(fabric.of, 1e-6)
    of = cast(Any, fabric.of)
    nic = NicPart.model_construct(kind="nic", network=of, bandwidth=fabric.bandwidth, latency=latency_s)
    slot = LinkPart.model_construct(kind="link", of="pcie", bandwidth=max(fabric.bandwidth, 16e9))
    return Device("nic0", "nic", nic, "", 0), Wire("nic0", cpu.name, slot, 1)
