"""A :class:`Machine`: nodes, directed links, and the capacities that flows share; equal hosts are made on demand."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from simulator.errors import InputError, nearest
from simulator.records import dataclass, field, lists_by_key
from simulator.topology import each
from simulator.topology.parts import DeviceKind, GpuPart, Part
from simulator.topology.schema import NO_COSTS, MessagesSpec, PeerLevel, Price, TransportSpec

F = TypeVar("F")
T = TypeVar("T")
U = TypeVar("U")


class RunsOfElements(Sequence[T], Generic[F, T]):
    """Elements in runs of equal hosts; *make* returns one of: the first host's, its number, the host's offset."""

    def __init__(self, make: Callable[[F, int, int], T]) -> None:
        self._make = make
        self._runs: list[tuple[int, int, list[F]]] = []  # first number, count of hosts, the first host's elements
        self._hosts: list[int] = []  # the first host of each run
        self._made: dict[int, T] = {}

    def begin(self, hosts: int, first: int = 0) -> None:
        """Begin a run of *hosts* equal hosts; *first* is the number of the first one."""
        self._runs.append((len(self), hosts, []))
        self._hosts.append(first)

    def add(self, first: F) -> int:
        """Add an element of the *first* host to the run; return its number."""
        start, _, run = self._runs[-1]
        run.append(first)
        return start + len(run) - 1

    def firsts(self) -> list[F]:
        """Return, for every element, the first host's element in that place."""
        return [first for _, hosts, run in self._runs for first in run * hosts]

    def stride(self, number: int) -> int:
        """Return the difference to the number of the next host's element; 0 if there is only one host."""
        _, hosts, run = self._runs[self._at(number)]
        return len(run) if hosts > 1 else 0

    def hosts(self, number: int) -> range:
        """Return the hosts that have an element corresponding to *number*."""
        at = self._at(number)
        return range(self._hosts[at], self._hosts[at] + self._runs[at][1])

    def host(self, number: int) -> int:
        """Return the host of element *number*."""
        at = self._at(number)
        start, _, run = self._runs[at]
        return self._hosts[at] + (number - start) // len(run)

    def otherwise(self, make: Callable[[F, int, int], U]) -> "RunsOfElements[F, U]":
        """Return a sequence of the same shape with elements created by *make*."""
        other = RunsOfElements(make)
        other._runs, other._hosts = self._runs, self._hosts
        return other

    def _at(self, number: int) -> int:
        """Return the index of the run that contains element *number*.  Raises IndexError if there is none."""
        for at in reversed(range(len(self._runs))):
            if self._runs[at][0] <= number and self._runs[at][2]:
                return at
        raise IndexError(number)

    def __len__(self) -> int:
        start, hosts, run = self._runs[-1] if self._runs else (0, 0, [])
        return start + hosts * len(run)

    def __getitem__(self, number: int) -> T:  # type: ignore[override]  # nobody slices
        made = self._made.get(number)
        if made is None:
            start, hosts, run = self._runs[self._at(number)]
            host, place = divmod(number - start, len(run))
            if host >= hosts:
                raise IndexError(number)
            made = self._made[number] = self._make(run[place], number, host)
        return made


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
    """One direction between two nodes; the rates, large transfers' and the data sheet's, are of all ``count`` links."""

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
    """The link graph and its capacities; equal only if it is the same object.  Equal hosts form ``runs``."""

    name: str
    nodes: Sequence[Node]
    links: Sequence[Link]
    link_names: Sequence[str]
    alike: Sequence[Link]  # for each link, the first equal host's with the same figures; creates no new objects
    resource_names: Sequence[str]
    capacity_Bps: tuple[float, ...]  # of links' directions, half-duplex links, memory buses and fabrics
    outgoing: Sequence[tuple[Link, ...]]  # by node: the links that leave it
    gpus: tuple[int, ...]  # the ranks, in file order
    memory_bus: dict[int, int]  # CPU node -> resource
    fabric: dict[int, int]  # switch node -> resource
    half_duplex: frozenset[int]  # resources that both directions of a link share
    transport: TransportSpec
    n_hosts: int
    runs: tuple[Hosts, ...]  # the network's, host -1, comes last
    link_copies: RunsOfElements[Link, Link] = field(repr=False)
    resource_copies: RunsOfElements[str, str] = field(repr=False)
    first: dict[str, int] = field(repr=False)  # nodes of the first host of each run and of the network, by name
    messages: MessagesSpec = NO_COSTS  # processor time of messages between hosts
    shared_network: float | None = None  # share by which other jobs may lower the rates between hosts
    notes: tuple[str, ...] = ()  # oddities, each with its place in a file
    price_per_hour: Price | None = None  # of all hosts
    nominal: "Machine | None" = field(default=None, repr=False)  # without slow links and neighbours, if there are any
    down: tuple[Link, ...] = ()  # down for good, one direction of each, numbered as if they were among the links

    def peer_level(self, *gpus: Node) -> PeerLevel:
        """Return how far *gpus* copy directly over PCIe: as the topology says, else pxb where drivers let all."""
        if self.transport.peer_to_peer is not None:
            return self.transport.peer_to_peer
        return "pxb" if all(not isinstance(gpu.part, GpuPart) or gpu.part.pcie_peers for gpu in gpus) else "none"

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
        """Return one of *nodes* for each place in each kind of host, in order; others are like one of these."""
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


def near_each_other(machine: Machine, hosts: Sequence[int]) -> list[int]:
    """Return *hosts* switch by switch, each followed by the one left with the fewest hops; else in order."""
    network = machine.runs[-1]
    own = range(network.node, network.node + network.n_own)
    switches = [node for node in own if machine.nodes[node].kind == "network-switch"]
    if len(switches) < 2:
        return list(hosts)
    wanted, links = set(hosts), ((switch, link) for switch in switches for link in machine.outgoing[switch])
    above = lists_by_key((machine.nodes[link.dst].host, switch) for switch, link in links)
    below = lists_by_key((above[host][0], host) for host in above if host in wanted)
    left = dict.fromkeys(below)
    found = [host for host in hosts if host not in above]
    at = next(iter(left), None)
    while at is not None:
        del left[at]
        found += sorted(below[at], key=hosts.index)
        at = _nearest(machine, at, left)
    return found


def _nearest(machine: Machine, switch: int, left: dict[int, None]) -> int | None:
    """Return the switch of *left* with the fewest hops from *switch*, the first of several; None if none is left."""
    seen, frontier = {switch}, [switch]
    while frontier:
        reached = {link.dst for at in frontier for link in machine.outgoing[at]} - seen
        seen |= reached
        frontier = sorted(node for node in reached if machine.nodes[node].kind == "network-switch")
        near = next((each for each in left if each in reached), None)
        if near is not None:
            return near
    return next(iter(left), None)
