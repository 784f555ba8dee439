"""A :class:`Machine`: nodes, directed links, and the capacities that flows share."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from simulator.errors import InputError, nearest
from simulator.network.repeated import Repeated
from simulator.topology.cluster import each
from simulator.topology.parts import CpuPart, NicPart, Part, SwitchPart
from simulator.topology.price import Price
from simulator.topology.schema import NO_COSTS, MessagesSpec, TransportSpec
from simulator.topology.topology import DeviceKind, Topology, Wire

__all__ = ["Hosts", "Link", "Machine", "Node", "compile_machine"]

_OF_HOST = re.compile(r"node(0|[1-9][0-9]{0,6})\.(.+)", re.ASCII)
_STAR = re.compile(r"\*(\d*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hosts:
    """``count`` equal hosts, numbered from ``first``, with ``n_own`` nodes each, numbered from ``node``."""

    first: int
    count: int
    node: int
    n_own: int

    def node_of(self, host: int) -> int:
        """Return the first node of *host*, which must be one of these hosts."""
        return self.node + (host - self.first) * self.n_own


@dataclass(frozen=True, slots=True)
class Node:
    """A device as a vertex of the link graph.  ``host`` is its machine's number, -1 for the network."""

    index: int
    name: str
    kind: DeviceKind
    part: Part
    host: int
    latency_s: float  # added to traffic that passes through
    part_name: str = ""

    @property
    def multiprocessors(self) -> str:
        """The resource name of the device's multiprocessors, of which plans use shares."""
        return f"{self.name}:multiprocessors"

    @property
    def memory(self) -> str:
        """The resource name of the device's memory bandwidth, of which plans use shares."""
        return f"{self.name}:memory"


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes, with all parallel links together.

    ``bandwidth_Bps`` is the rate of large transfers and ``nominal_Bps`` that of the data sheet, both for all ``count``
    links.  ``resource`` is the capacity it draws on.
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
        """The rate of large transfers on one of the parallel links."""
        return self.bandwidth_Bps / self.count


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """The link graph and its capacities.  Machines are equal only if they are the same object.

    ``capacity_Bps[r]`` is the capacity of the resource ``resource_names[r]``: a direction of a link, a half-duplex
    link, a socket's memory bus or a switch's fabric.  ``outgoing[v]`` lists the links that leave node ``v``.  ``gpus``
    are the ranks, in file order.

    Hosts form ``runs`` of equal ones; the network, host -1, comes last.  Within a run, corresponding elements of
    consecutive hosts are one stride apart (:class:`~simulator.network.repeated.Repeated`).
    """

    name: str
    nodes: Sequence[Node]
    links: Sequence[Link]
    link_names: Sequence[str]
    alike: Sequence[Link]  # for each link, the first equal host's with the same figures; creates no new objects
    resource_names: Sequence[str]
    capacity_Bps: tuple[float, ...]
    outgoing: Sequence[tuple[Link, ...]]
    gpus: tuple[int, ...]
    memory_bus: dict[int, int]  # CPU node -> resource
    fabric: dict[int, int]  # switch node -> resource
    half_duplex: frozenset[int]  # resources that both directions of a link share
    transport: TransportSpec
    n_hosts: int
    runs: tuple[Hosts, ...]
    link_copies: Repeated[Link, Link] = field(repr=False)
    resource_copies: Repeated[str, str] = field(repr=False)
    first: dict[str, int] = field(repr=False)  # nodes of the first host of each run and of the network, by name
    messages: MessagesSpec = NO_COSTS  # processor time of messages between hosts
    notes: tuple[str, ...] = ()  # oddities, each with its place in a file
    price_per_hour: Price | None = None  # of all hosts
    nominal: Machine | None = field(default=None, repr=False)  # without slow links and neighbours, if there are any
    down: tuple[Link, ...] = ()  # out of use for good, one direction of each, numbered as if they were among the links

    def find(self, name: str) -> Node | None:
        """Return the node called *name*, or None."""
        if "*" in name:
            return None
        index = self.first.get(name)
        match = _OF_HOST.fullmatch(name)
        if index is None and match is not None and int(match[1]) < self.n_hosts:
            run = self.run(int(match[1]))
            index = self.first.get(each(run.first) + match[2])
            index = None if index is None else index - run.node + run.node_of(int(match[1]))
        return None if index is None else self.nodes[index]

    def node(self, name: str) -> Node:
        """Return the node called *name*.  Raises InputError, with the nearest name, if there is none."""
        found = self.find(name)
        if found is None:
            known = [node.name for node in self.nodes]
            raise InputError(f"{self.name} has no device called '{name}'; {nearest(name, known)}")
        return found

    def link(self, name: str) -> Link | None:
        """Return the link called *name*, or None."""
        source = self.find(name.partition("->")[0])
        return next((link for link in self.outgoing[source.index] if link.name == name), None) if source else None

    def reverse(self, link: Link) -> Link:
        """Return the opposite direction of *link*; the two directions of a wire have adjacent numbers."""
        return self.links[link.index ^ 1]

    def like(self, host: int) -> int:
        """Return the first host equal to *host*."""
        return self.run(host).first

    def hosts_of(self, nodes: Iterable[int]) -> set[int]:
        """Return the numbers of the hosts that contain *nodes*."""
        return {self.locate(node)[1] for node in nodes}

    def locate(self, node: int) -> tuple[Hosts, int, int]:
        """Return (run of equal hosts, host number, index within the host) of *node*."""
        found = self.runs[bisect_right(self.runs, node, lo=1, key=lambda run: run.node) - 1]
        host, own = divmod(node - found.node, found.n_own)
        return found, found.first + host, own

    def sorts(self, nodes: Iterable[int]) -> dict[int, list[int]]:
        """Return *nodes* by the corresponding node of the first equal host; these all have its part."""
        found: dict[int, list[int]] = {}
        run, end = self.runs[0], -1
        for node in nodes:
            if not run.node <= node < end:
                run = self.locate(node)[0]
                end = run.node + run.count * run.n_own
            found.setdefault(run.node + (node - run.node) % run.n_own, []).append(node)
        return found

    def unlike(self, nodes: Iterable[int]) -> list[Node]:
        """Return one of *nodes* for each place in each kind of host, in order.

        Every other node has the part and kind of one of these.
        """
        return [self.nodes[index] for index in self.sorts(nodes)]

    def nodes_of(self, host: int) -> list[Node]:
        """Return the nodes of *host*, in order."""
        run = self.run(host)
        first = run.node_of(host)
        return [self.nodes[i] for i in range(first, first + run.n_own)]

    def run(self, host: int) -> Hosts:
        """Return the run of equal hosts that contains *host*."""
        last = len(self.runs) - 1  # the network's
        return self.runs[bisect_right(self.runs, host, lo=1, hi=last, key=lambda run: run.first) - 1]

    def gpus_of(self, host: int) -> list[int]:
        """Return the GPUs of *host*, in order."""
        return [node.index for node in self.nodes_of(host) if node.kind == "gpu"]


def compile_machine(topology: Topology) -> Machine:
    """Return *topology* as directed links with effective bandwidths and shared capacities."""
    runs = [*topology.runs, (-1, 1)]  # the network comes last
    of_run = {first: [device for device in topology.devices if device.node == first] for first, _ in runs}
    at = {device.name: device.node for device in topology.devices}

    def called(name: str, host: int) -> str:
        return _STAR.sub(lambda star: str(int(star[1] or 0) + host), name) if "*" in name else name

    def node(first: Node, number: int, host: int) -> Node:
        of = first.host + host
        return Node(number, called(first.name, host), first.kind, first.part, of, first.latency_s, first.part_name)

    def link(first: Link, number: int, host: int) -> Link:
        return Link(
            number,
            called(first.name, host),
            first.src + host * nodes.stride(first.src),
            first.dst + host * nodes.stride(first.dst),
            first.kind,
            first.bandwidth_Bps,
            first.nominal_Bps,
            first.latency_s,
            first.count,
            first.resource + host * names.stride(first.resource),
        )

    def leaving(first: list[int], number: int, host: int) -> tuple[Link, ...]:
        if nodes.host(number) >= 0:
            return tuple([links[index + host * links.stride(index)] for index in first])
        into = [(h, place, index) for index in first for place, h in enumerate(links.hosts(index))]
        return tuple([links[index + place * links.stride(index)] for _, place, index in sorted(into)])

    nodes = Repeated[Node, Node](node)
    links = Repeated[Link, Link](link)
    outgoing = Repeated[list[int], tuple[Link, ...]](leaving)
    names = Repeated[str, str](lambda first, _, host: called(first, host))
    capacities = Repeated[float, float](lambda first, _, __: first)
    index_of: dict[str, int] = {}
    leave: dict[str, list[int]] = {d.name: [] for d in topology.devices}
    hosts = []
    for first, n in runs:
        hosts.append(Hosts(first, n, len(nodes), len(of_run[first])))
        nodes.begin(n, first)
        outgoing.begin(n, first)
        for d in of_run[first]:
            passage_s = d.part.latency if isinstance(d.part, SwitchPart | NicPart) else 0.0
            index_of[d.name] = nodes.add(Node(0, d.name, d.kind, d.part, first, passage_s, d.part_name))
            outgoing.add(leave[d.name])

    def begin(n: int, first: int) -> None:
        names.begin(n, first)
        capacities.begin(n, first)

    def resource(name: str, capacity_Bps: float) -> int:
        capacities.add(capacity_Bps)
        return names.add(name)

    seen: dict[str, int] = {}
    half_duplex: list[int] = []
    parts = {d.name: d.part for d in topology.devices}
    merged: dict[tuple[bool, int], list[Wire]] = {}  # wires inside machines before wires to the network
    for wire in _merged(topology.wires):
        ends = at[wire.a], at[wire.b]
        merged.setdefault((min(ends) < 0, max(*ends, 0)), []).append(wire)
    for (_, first), wires in sorted(merged.items(), key=lambda found: found[0]):
        n = dict(runs)[first]
        begin(n, first)
        links.begin(n, first)
        for wire in wires:
            part = wire.part
            nominal = part.bandwidth * wire.count
            bandwidth = nominal * part.efficiency
            both = f"{wire.a}<->{wire.b}"
            both_ways = resource(both, bandwidth) if part.duplex == "half" else None
            if both_ways is not None:
                half_duplex.append(both_ways)
            for src, dst in ((wire.a, wire.b), (wire.b, wire.a)):
                name = f"{src}->{dst}"
                seen[name] = seen.get(name, 0) + 1
                if seen[name] > 1:
                    name += f"#{seen[name]}"
                uses = both_ways if both_ways is not None else resource(name, bandwidth)
                latency = part.latency + _packet_s(parts[dst], bandwidth)
                joined = index_of[src], index_of[dst]
                leave[src].append(
                    links.add(Link(0, name, *joined, part.of, bandwidth, nominal, latency, wire.count, uses))
                )
    memory_bus: dict[int, int] = {}
    fabric: dict[int, int] = {}
    for first, n in runs:
        begin(n, first)
        for d in of_run[first]:
            if isinstance(d.part, CpuPart) and d.part.memory_bandwidth:
                memory_bus[index_of[d.name]] = resource(f"{d.name}:memory", d.part.memory_bandwidth)
            if isinstance(d.part, SwitchPart) and d.part.fabric_bandwidth:
                fabric[index_of[d.name]] = resource(f"{d.name}:fabric", d.part.fabric_bandwidth)

    def spread(held: dict[int, int]) -> dict[int, int]:
        """Extend a mapping of nodes on the first hosts (and the network) to resources to all hosts."""
        steps = [(node, nodes.stride(node), nodes.hosts(node), at, names.stride(at)) for node, at in held.items()]
        found = [(host, node + i * a, at + i * b) for node, a, on, at, b in steps for i, host in enumerate(on)]
        return {node: at for _, node, at in sorted(found)}

    shared = [(at, names.stride(at), len(names.hosts(at))) for at in half_duplex]
    several = any(run.count > 1 for run in hosts)
    gpus = []
    for run in hosts:
        own = [i for i, d in enumerate(of_run[run.first]) if d.kind == "gpu"]
        gpus += [run.node + i + host * run.n_own for host in range(run.count) for i in own]
    if not several:  # as in the file, which may list hosts by turns
        gpus = [index_of[d.name] for d in topology.devices if d.kind == "gpu"]
    return Machine(
        name=topology.name,
        nodes=nodes if several else tuple(nodes),
        links=links if several else tuple(links),
        link_names=links.otherwise(lambda first, _, host: called(first.name, host)),
        alike=links.firsts(),
        resource_names=names if several else tuple(names),
        capacity_Bps=tuple(capacities.firsts()),
        outgoing=outgoing if several else tuple(outgoing),
        gpus=tuple(gpus),
        memory_bus=spread(memory_bus),
        fabric=spread(fabric),
        half_duplex=frozenset([at + i * b for at, b, n in shared for i in range(n)]),
        transport=topology.transport,
        n_hosts=topology.n_nodes,
        runs=tuple(hosts),
        link_copies=links,
        resource_copies=names,
        first=index_of,
        messages=topology.messages,
        notes=topology.notes,
        price_per_hour=topology.price_per_hour,
    )


def _packet_s(receiver: Part, bandwidth_Bps: float) -> float:
    """Return the time in s that a store-and-forward switch waits for the rest of a packet; 0 for other receivers."""
    if isinstance(receiver, SwitchPart) and receiver.forwarding == "store-and-forward":
        return receiver.packet / bandwidth_Bps
    return 0.0


def _merged(wires: tuple[Wire, ...]) -> list[Wire]:
    """Join equal wires between the same two devices into one with the summed count."""
    merged: dict[tuple[str, str, object], Wire] = {}
    for wire in wires:
        a, b = sorted((wire.a, wire.b))
        part = wire.part
        key = (a, b, (part.of, part.bandwidth, part.efficiency, part.latency, part.duplex))
        merged[key] = replace(merged[key], count=merged[key].count + wire.count) if key in merged else wire
    return list(merged.values())
