"""A :class:`Machine`: nodes, directed links, and the capacities that flows share."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.errors import InputError, nearest
from simulator.network.repeated import Repeated
from simulator.topology.cluster import each
from simulator.topology.parts import Part
from simulator.topology.schema import NO_COSTS, MessagesSpec, Price, TransportSpec
from simulator.topology.topology import DeviceKind

_OF_HOST = re.compile(r"node(0|[1-9][0-9]{0,6})\.(.+)", re.ASCII)


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
