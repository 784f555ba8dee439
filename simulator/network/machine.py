"""A :class:`Machine`: nodes, directed links and the capacities that flows share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from simulator.errors import InputError, nearest
from simulator.topology.parts import CpuPart, NicPart, Part, SwitchPart
from simulator.topology.schema import TransportSpec
from simulator.topology.topology import DeviceKind, Topology, Wire

__all__ = ["Copy", "Link", "Machine", "Node", "compile_machine"]


@dataclass(frozen=True, slots=True)
class Node:
    """A device as a vertex of the link graph.  ``host`` is the machine it is in, -1 for the network."""

    index: int
    name: str
    kind: DeviceKind
    part: Part
    host: int
    latency_s: float  # added to what passes through
    part_name: str = ""

    @property
    def multiprocessors(self) -> str:
        """The name of what computes on it, as a resource of which plans use shares."""
        return f"{self.name}:multiprocessors"

    @property
    def memory(self) -> str:
        """The name of the bandwidth of its memory, likewise."""
        return f"{self.name}:memory"


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes, all parallel links together.

    ``bandwidth_Bps`` is what large transfers reach; ``nominal_Bps`` what the data sheet
    says; both for all ``count`` links.  ``resource`` is the capacity that it draws on.
    """

    index: int
    name: str
    src: int
    dst: int
    kind: str
    bandwidth_Bps: float
    nominal_Bps: float
    latency_s: float
    count: int
    resource: int

    @property
    def unit_Bps(self) -> float:  # noqa: N802  units keep their case
        """What one of the parallel links reaches."""
        return self.bandwidth_Bps / self.count


@dataclass(frozen=True, slots=True)
class Copy:
    """How a machine of a cluster is like the first: each node, link and resource of that, and which it is here."""

    nodes: dict[int, int]
    links: dict[int, int]
    resources: dict[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """The link graph and its capacities.  Two machines are the same only where they are one object.

    ``capacity_Bps[r]`` belongs to the resource called ``resource_names[r]``: a direction of
    a link, a half-duplex link, a socket's memory bus or a switch's fabric.  ``outgoing[v]``
    lists the links that leave node ``v``.  ``gpus`` are the ranks, in the order of the file.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    resource_names: tuple[str, ...]
    capacity_Bps: tuple[float, ...]
    outgoing: tuple[tuple[Link, ...], ...]
    gpus: tuple[int, ...]
    memory_bus: dict[int, int]  # CPU node -> resource
    fabric: dict[int, int]  # switch node -> resource
    half_duplex: frozenset[int]  # resources that both directions of a link share
    transport: TransportSpec
    n_hosts: int
    index_of: dict[str, int] = field(repr=False)
    copies: dict[int, Copy] = field(repr=False)  # by host: those that are like host 0

    def node(self, name: str) -> Node:
        """Return the node called *name*.  Raises InputError where there is none; names the nearest."""
        if name not in self.index_of:
            raise InputError(f"{self.name} has no device called '{name}'; {nearest(name, self.index_of)}")
        return self.nodes[self.index_of[name]]

    def reverse(self, link: Link) -> Link:
        """Return the other direction of *link*; the two directions of a wire stand side by side."""
        return self.links[link.index ^ 1]

    def gpus_of(self, host: int) -> list[int]:
        """Return the GPUs of machine *host*, in order."""
        return [gpu for gpu in self.gpus if self.nodes[gpu].host == host]


def compile_machine(topology: Topology) -> Machine:
    """Return *topology* as directed links with effective bandwidths and shared capacities."""
    passages_s = [d.part.latency if isinstance(d.part, SwitchPart | NicPart) else 0.0 for d in topology.devices]
    nodes = tuple(
        Node(i, d.name, d.kind, d.part, d.node, passages_s[i], d.part_name) for i, d in enumerate(topology.devices)
    )
    index_of = {node.name: node.index for node in nodes}
    links: list[Link] = []
    names: list[str] = []
    capacities: list[float] = []

    def resource(name: str, capacity_Bps: float) -> int:
        names.append(name)
        capacities.append(capacity_Bps)
        return len(names) - 1

    seen: dict[str, int] = {}
    half_duplex: list[int] = []
    for wire in _merged(topology.wires):
        part = wire.part
        nominal = part.bandwidth * wire.count
        bandwidth = nominal * part.efficiency
        ends = (index_of[wire.a], index_of[wire.b])
        shared = resource(f"{wire.a}<->{wire.b}", bandwidth) if part.duplex == "half" else None
        if shared is not None:
            half_duplex.append(shared)
        for src, dst in (ends, ends[::-1]):
            name = f"{nodes[src].name}->{nodes[dst].name}"
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name += f"#{seen[name]}"
            own = shared if shared is not None else resource(name, bandwidth)
            latency = part.latency + _packet_s(nodes[dst], bandwidth)
            links.append(Link(len(links), name, src, dst, part.of, bandwidth, nominal, latency, wire.count, own))
    memory_bus: dict[int, int] = {}
    fabric: dict[int, int] = {}
    for node in nodes:
        if isinstance(node.part, CpuPart) and node.part.memory_bandwidth:
            memory_bus[node.index] = resource(f"{node.name}:memory", node.part.memory_bandwidth)
        if isinstance(node.part, SwitchPart) and node.part.fabric_bandwidth:
            fabric[node.index] = resource(f"{node.name}:fabric", node.part.fabric_bandwidth)
    outgoing: list[list[Link]] = [[] for _ in nodes]
    for link in links:
        outgoing[link.src].append(link)
    return Machine(
        name=topology.name,
        nodes=nodes,
        links=tuple(links),
        resource_names=tuple(names),
        capacity_Bps=tuple(capacities),
        outgoing=tuple(tuple(out) for out in outgoing),
        gpus=tuple(node.index for node in nodes if node.kind == "gpu"),
        memory_bus=memory_bus,
        fabric=fabric,
        half_duplex=frozenset(half_duplex),
        transport=topology.transport,
        n_hosts=topology.n_nodes,
        index_of=index_of,
        copies=_copies(nodes, links, memory_bus, fabric, frozenset(half_duplex)),
    )


def _copies(
    nodes: Sequence[Node],
    links: Sequence[Link],
    memory_bus: dict[int, int],
    fabric: dict[int, int],
    half: frozenset[int],
) -> dict[int, Copy]:
    """Return the hosts whose nodes and inner links stand in the order of those of host 0 and are equal to them."""
    inside: dict[int, list[Node]] = {}
    wired: dict[int, list[Link]] = {}
    for node in nodes:
        inside.setdefault(node.host, []).append(node)
    for link in links:
        if nodes[link.src].host == nodes[link.dst].host:
            wired.setdefault(nodes[link.src].host, []).append(link)

    def figures(host: int) -> list[object]:
        base = inside[host][0].index
        return [
            *((node.index - base, node.kind, id(node.part), node.latency_s) for node in inside[host]),
            *(
                (k.src - base, k.dst - base, k.kind, k.bandwidth_Bps, k.latency_s, k.count, k.resource in half)
                for k in wired.get(host, ())
            ),
        ]

    found: dict[int, Copy] = {}
    first = figures(0) if len(inside) > 1 and 0 in inside else []
    for host, own in inside.items():
        if host <= 0 or figures(host) != first:
            continue
        copy = Copy({a.index: b.index for a, b in zip(inside[0], own, strict=True)}, {}, {})
        for a, b in zip(wired.get(0, ()), wired.get(host, ()), strict=True):
            copy.links[a.index] = b.index
            copy.resources[a.resource] = b.resource
        for of in (memory_bus, fabric):
            copy.resources.update({of[a]: of[b] for a, b in copy.nodes.items() if a in of})
        found[host] = copy
    return found


def _packet_s(receiver: Node, bandwidth_Bps: float) -> float:
    """Time that a store-and-forward switch waits for the rest of a packet."""
    part = receiver.part
    if isinstance(part, SwitchPart) and part.forwarding == "store-and-forward":
        return part.packet / bandwidth_Bps
    return 0.0


def _merged(wires: tuple[Wire, ...]) -> list[Wire]:
    """Join equal wires between the same two devices into one with their summed count."""
    merged: dict[tuple[str, str, object], Wire] = {}
    for wire in wires:
        a, b = sorted((wire.a, wire.b))
        part = wire.part
        key = (a, b, (part.of, part.bandwidth, part.efficiency, part.latency, part.duplex))
        merged[key] = replace(merged[key], count=merged[key].count + wire.count) if key in merged else wire
    return list(merged.values())
