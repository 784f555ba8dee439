"""From a topology to a :class:`~simulator.network.machine.Machine`, whose equal hosts are made from the first."""

import re

from simulator.network.machine import Hosts, Link, Machine, Node, RunsOfElements
from simulator.records import lists_by_key, replace
from simulator.topology import Topology, Wire
from simulator.topology.parts import CpuPart, NicPart, Part, SwitchPart

_STAR = re.compile(r"\*(\d*)", re.ASCII)
_NETWORK = (-1, 1)  # the run of what belongs to no host


def compile_machine(topology: Topology) -> Machine:
    """Return *topology* as directed links with effective bandwidths and shared capacities."""
    return _Compiling(topology).machine()


def _called(name: str, host: int) -> str:
    """Return the name on the host that is *host* places after the first, where it is *name*."""
    return _STAR.sub(lambda star: str(int(star[1] or 0) + host), name) if "*" in name else name


class _Compiling:
    """A machine in the making: all is added run by run of equal hosts, as it is on their first host."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.runs = dict([*topology.runs, _NETWORK])  # hosts by the first one; the network comes last
        self.of_run = {first: [each for each in topology.devices if each.node == first] for first in self.runs}
        self.nodes = RunsOfElements[Node, Node](_node)
        self.links = RunsOfElements[Link, Link](self._link)
        self.outgoing = RunsOfElements[list[int], tuple[Link, ...]](self._leaving)
        self.names = RunsOfElements[str, str](lambda first, _, host: _called(first, host))
        self.capacities = RunsOfElements[float, float](lambda first, _, __: first)
        self.index_of: dict[str, int] = {}
        self.leave: dict[str, list[int]] = {device.name: [] for device in topology.devices}
        self.half_duplex: list[int] = []
        self.hosts = [self._add_devices(first, count) for first, count in self.runs.items()]
        self._add_wires()
        self.memory_bus: dict[int, int] = {}
        self.fabric: dict[int, int] = {}
        # The capacities inside devices: the memory of sockets and the fabric of switches.
        for first, devices in self.of_run.items():
            self._begin_resources(first)
            for device in devices:
                part, index = device.part, self.index_of[device.name]
                if isinstance(part, CpuPart) and part.memory_bandwidth:
                    self.memory_bus[index] = self._resource(f"{device.name}:memory", part.memory_bandwidth)
                if isinstance(part, SwitchPart) and part.fabric_bandwidth:
                    self.fabric[index] = self._resource(f"{device.name}:fabric", part.fabric_bandwidth)

    def _link(self, first: Link, number: int, host: int) -> Link:
        nodes, name = self.nodes, _called(first.name, host)
        src, dst = first.src + host * nodes.stride(first.src), first.dst + host * nodes.stride(first.dst)
        resource = first.resource + host * self.names.stride(first.resource)
        figures = src, dst, first.kind, first.bandwidth_Bps, first.nominal_Bps, first.latency_s, first.count, resource
        return Link(number, name, *figures)

    def _leaving(self, first: list[int], number: int, host: int) -> tuple[Link, ...]:
        links = self.links
        if self.nodes.host(number) >= 0:
            return tuple([links[index + host * links.stride(index)] for index in first])
        into = [(h, place, index) for index in first for place, h in enumerate(links.hosts(index))]
        return tuple([links[index + place * links.stride(index)] for _, place, index in sorted(into)])

    def _add_devices(self, first: int, count: int) -> Hosts:
        run = Hosts(first, count, len(self.nodes), len(self.of_run[first]))
        self.nodes.begin(count, first)
        self.outgoing.begin(count, first)
        for device in self.of_run[first]:
            passage_s = device.part.latency if isinstance(device.part, SwitchPart | NicPart) else 0.0
            made = Node(0, device.name, device.kind, device.part, first, passage_s, device.part_name)
            self.index_of[device.name] = self.nodes.add(made)
            self.outgoing.add(self.leave[device.name])
        return run

    def _add_wires(self) -> None:
        """Add the links, those inside machines before those to the network."""
        at = {device.name: device.node for device in self.topology.devices}
        parts = {device.name: device.part for device in self.topology.devices}
        wires_at = (((at[wire.a], at[wire.b]), wire) for wire in _merged(self.topology.wires))
        by_run = lists_by_key(((min(ends) < 0, max(ends)), wire) for ends, wire in wires_at)  # -1: of the network alone
        seen: dict[str, int] = {}
        for (_, first), wires in sorted(by_run.items(), key=lambda found: found[0]):
            self._begin_resources(first)
            self.links.begin(self.runs[first], first)
            for wire in wires:
                self._add_wire(wire, parts, seen)

    def _add_wire(self, wire: Wire, parts: dict[str, Part], seen: dict[str, int]) -> None:
        """Add the two links of *wire*; *seen*: how many links of each name there are."""
        part = wire.part
        nominal_Bps = part.bandwidth * wire.count
        bandwidth_Bps = nominal_Bps * part.efficiency
        both_ways = self._resource(f"{wire.a}<->{wire.b}", bandwidth_Bps) if part.duplex == "half" else None
        if both_ways is not None:
            self.half_duplex.append(both_ways)
        for src, dst in ((wire.a, wire.b), (wire.b, wire.a)):
            name = f"{src}->{dst}"
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name += f"#{seen[name]}"
            uses = both_ways if both_ways is not None else self._resource(name, bandwidth_Bps)
            latency_s, receiver = part.latency, parts[dst]
            if isinstance(receiver, SwitchPart) and receiver.forwarding == "store-and-forward":
                latency_s += receiver.packet / bandwidth_Bps  # it waits for the rest of a packet
            ends = self.index_of[src], self.index_of[dst]
            link = Link(0, name, *ends, part.of, bandwidth_Bps, nominal_Bps, latency_s, wire.count, uses)
            self.leave[src].append(self.links.add(link))

    def _begin_resources(self, first: int) -> None:
        self.names.begin(self.runs[first], first)
        self.capacities.begin(self.runs[first], first)

    def _resource(self, name: str, capacity_Bps: float) -> int:
        self.capacities.add(capacity_Bps)
        return self.names.add(name)

    def machine(self) -> Machine:
        """Return the machine."""
        topology, nodes, links, names = self.topology, self.nodes, self.links, self.names
        several = any(run.count > 1 for run in self.hosts)
        gpus = [self.index_of[device.name] for device in topology.devices if device.kind == "gpu"]
        if several:  # otherwise as in the file, which may list hosts by turns
            gpus = [number for number, first in enumerate(nodes.firsts()) if first.kind == "gpu"]
        return Machine(
            name=topology.name,
            nodes=nodes if several else tuple(nodes),
            links=links if several else tuple(links),
            link_names=links.otherwise(lambda first, _, host: _called(first.name, host)),
            alike=links.firsts(),
            resource_names=names if several else tuple(names),
            capacity_Bps=tuple(self.capacities.firsts()),
            outgoing=self.outgoing if several else tuple(self.outgoing),
            gpus=tuple(gpus),
            memory_bus=self._spread(self.memory_bus),
            fabric=self._spread(self.fabric),
            half_duplex=frozenset(
                at + place * names.stride(at) for at in self.half_duplex for place in range(len(names.hosts(at)))
            ),
            transport=topology.transport,
            n_hosts=topology.n_nodes,
            runs=tuple(self.hosts),
            link_copies=links,
            resource_copies=names,
            first=self.index_of,
            messages=topology.messages,
            shared_network=topology.shared_network,
            notes=topology.notes,
            price_per_hour=topology.price_per_hour,
        )

    def _spread(self, held: dict[int, int]) -> dict[int, int]:
        """Extend a mapping of nodes on the first hosts (and the network) to resources to all hosts."""
        nodes, names = self.nodes, self.names
        steps = [(node, nodes.stride(node), nodes.hosts(node), at, names.stride(at)) for node, at in held.items()]
        found = [(host, node + i * a, at + i * b) for node, a, on, at, b in steps for i, host in enumerate(on)]
        return {node: at for _, node, at in sorted(found)}


def _node(first: Node, number: int, host: int) -> Node:
    name, at = _called(first.name, host), first.host + host
    return Node(number, name, first.kind, first.part, at, first.latency_s, first.part_name)


def _merged(wires: tuple[Wire, ...]) -> list[Wire]:
    """Join equal wires between the same two devices into one with the summed count."""
    merged: dict[tuple[str, str, object], Wire] = {}
    for wire in wires:
        a, b = sorted((wire.a, wire.b))
        part = wire.part
        key = (a, b, (part.of, part.bandwidth, part.efficiency, part.latency, part.duplex))
        merged[key] = replace(merged[key], count=merged[key].count + wire.count) if key in merged else wire
    return list(merged.values())
