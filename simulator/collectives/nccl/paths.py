"""One machine as NCCL sees it: links at planning bandwidths, and the path between any two devices.

After NVIDIA/nccl@5067397c ``src/graph/topo.cc`` (bandwidths of links) and ``src/graph/paths.cc`` (paths and their
classes).  Bandwidths are whole MB/s, so that sums are exact.

Where the topology lacks a figure that NCCL would read:

* NVLink of a GPU without ``compute_capability``, xGMI and C2C have the bandwidth of large transfers.
* Between CPUs of unknown vendor, NCCL assumes an unlimited link; here the topology's socket link
  counts, if there is one.
* EFA adapters at one switch act as one network device if there are more adapters than GPUs, as
  aws-ofi-nccl groups them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.sockets import cpu_kind, planned_socket
from simulator.network.machine import Link, Machine, Node
from simulator.questions.nccl import Version
from simulator.questions.where import NCCL_TODAY
from simulator.records import dataclass
from simulator.topology.parts import NETWORK_LINKS, GpuPart, NicPart

UNKNOWN_CAPABILITY = 80  # GPUs without one, and those of other vendors, are tuned as an A100
rank_of = {path_type: i for i, path_type in enumerate(t.PATH_TYPES)}
_LOC, _NVL, _NVB, _C2C, _PIX, _PXB, _P2C, _PXN, _PHB, _SYS, _NET = range(11)
_SWITCH = -1  # all NVLink switches of a machine are one node


@dataclass(frozen=True, slots=True)
class DevicePath:
    """A path between two devices: its class (index into PATH_TYPES), bottleneck in MB/s, and links.

    ``loads`` gives, for each directed link, the fraction of a channel's speed that it carries.  ``via`` is the GPU
    through which the path passes, if any.
    """

    kind: int
    bandwidth: int
    hops: tuple[int, ...]
    loads: tuple[tuple[int, float], ...]
    via: int | None = None


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """The participating GPUs and network devices of one machine, with all paths between them.

    ``paths[a, b]`` joins two GPUs, or a GPU and a network device in either direction; it is absent if there is no path.
    ``capacity`` is in MB/s, by directed link.
    """

    gpus: tuple[int, ...]
    nets: tuple[int, ...]
    capacity: tuple[int, ...]
    paths: Mapping[tuple[int, int], DevicePath]
    total: Mapping[int, int]  # by GPU: MB/s of all its NVLinks, or of its widest host link if that is more
    has_switch: bool


def capability(node: Node) -> int:
    """Return NCCL's number for a GPU's compute capability, such as 70 for 7.0."""
    text = node.part.compute_capability if isinstance(node.part, GpuPart) else None
    if text is None:
        return UNKNOWN_CAPABILITY
    major, minor = text.split(".")
    return int(major) * 10 + int(minor)


class Sight:
    """NCCL's view of the machine formed by *nodes*, for any set of participating GPUs.

    NCCL does not see GPUs outside the communicator, and does not route through them either.  If no two GPUs are linked
    directly, no path passes through a GPU; paths then do not depend on which GPUs take part, and are searched once.

    *machine*: the machine that holds the nodes.
    *nodes*: all devices of one host.
    *network*: whether network devices count, as they do if several machines take part.
    *version*: whose figures of links between sockets count.
    """

    def __init__(
        self, machine: Machine, nodes: Iterable[Node], *, network: bool, version: Version = NCCL_TODAY
    ) -> None:
        self._machine, self._nodes, self._network, self._version = machine, list(nodes), network, version
        gpus = tuple(node.index for node in self._nodes if node.kind == "gpu")
        self._whole = _Builder(machine, self._nodes, gpus, network, version)
        self._leads_through = self._whole.joins_gpus()

    def of(self, gpus: tuple[int, ...]) -> SeenMachine:
        """Return the view with the given participating *gpus*."""
        if self._leads_through:
            return _Builder(self._machine, self._nodes, gpus, self._network, self._version).seen(gpus)
        return self._whole.seen(gpus)


@dataclass(frozen=True, slots=True)
class _Edge:
    link: int
    src: int
    dst: int
    kind: int


_Way = tuple[int, int, tuple[_Edge, ...]]  # class, bottleneck in MB/s, links


class _Builder:
    def __init__(
        self, machine: Machine, nodes: list[Node], gpus: tuple[int, ...], network: bool, version: Version
    ) -> None:
        self.machine, self.version = machine, version
        self.gpus = gpus
        self.cpus = [node.index for node in nodes if node.kind == "cpu"]
        self.capacity: list[int] = []
        self.out: dict[int, list[_Edge]] = {}
        self.twin: dict[int, int] = {}
        self._from = cache(self._explored)  # each start is explored once
        self.ports: dict[int, tuple[int, int]] = {}  # network device -> its port's two directions
        self.rate = self._nets(nodes) if network else {}
        for node in nodes:
            for link in machine.outgoing[node.index]:
                if link.index % 2 == 0 and machine.nodes[link.dst].host == node.host:
                    self._add(link)
        for a in self.cpus:  # all sockets are joined pairwise, whatever the topology says
            for b in self.cpus:
                if a < b and all(edge.dst != b for edge in self.out.get(a, ())):
                    self._join(a, b, _SYS, self._between(machine.nodes[a]), self._between(machine.nodes[b]))
        for net, rate in self.rate.items():
            self.ports[net] = (self._link(rate), self._link(rate))
        # Paths never enter a network device; paths to it are those from it, reversed.
        self.onward = {a: [e for e in edges if e.dst not in self.rate] for a, edges in self.out.items()}

    def joins_gpus(self) -> bool:
        """Return whether any two GPUs are linked directly."""
        return any(self._kind(gpu) == self._kind(edge.dst) for gpu in self.gpus for edge in self.out.get(gpu, ()))

    def _nets(self, nodes: list[Node]) -> dict[int, int]:
        """Return the rate of each network device, in MB/s."""
        nics = [node for node in nodes if node.kind == "nic"]
        n_gpus = sum(node.kind == "gpu" for node in nodes)
        leader: dict[int, int] = {}
        rates: dict[int, int] = {}
        for nic in nics:
            assert isinstance(nic.part, NicPart)
            wires = [link.nominal_Bps for link in self.machine.outgoing[nic.index] if link.kind in NETWORK_LINKS]
            rate = round((sum(wires) or nic.part.bandwidth) / 1e6)
            first = nic.index
            if nic.part.network == "efa" and len(nics) > n_gpus:
                parents = [link.dst for link in self.machine.outgoing[nic.index] if link.kind == "pcie"]
                first = leader.setdefault(parents[0], nic.index) if parents else nic.index
            rates[first] = rates.get(first, 0) + rate
        return rates

    def _link(self, megabytes: int) -> int:
        self.capacity.append(megabytes)
        return len(self.capacity) - 1

    def _join(self, a: int, b: int, kind: int, there: int, back: int) -> None:
        forth, reverse = self._link(there), self._link(back)
        self.twin[forth], self.twin[reverse] = reverse, forth
        self.out.setdefault(a, []).append(_Edge(forth, a, b, kind))
        self.out.setdefault(b, []).append(_Edge(reverse, b, a, kind))

    def _add(self, link: Link) -> None:
        ends = [self.machine.nodes[link.src], self.machine.nodes[link.dst]]
        if any(end.kind == "gpu" and end.index not in self.gpus for end in ends):
            return
        if any(end.kind == "nic" and end.index not in self.rate for end in ends):
            return
        a, b = (_SWITCH if end.kind == "nvlink-switch" else end.index for end in ends)
        if a == b:
            return
        if link.kind in ("nvlink", "xgmi"):
            speeds = [round(_nvlink(end, link) * 1000) for end in ends if end.kind == "gpu"]
            self._join(a, b, _NVL, min(speeds), min(speeds))
        elif link.kind == "c2c":
            speed = round(link.bandwidth_Bps / 1e6)
            self._join(a, b, _C2C, speed, speed)
        elif link.kind == "pcie":
            speed = round(t.planned_pcie(link.nominal_Bps / link.count) * link.count * 1000)
            self._join(a, b, _PIX, speed, speed)
        elif link.kind == "socket":
            self._join(a, b, _SYS, self._between(ends[0], link), self._between(ends[1], link))

    def _between(self, cpu: Node, link: Link | None = None) -> int:
        """Return the planning bandwidth in MB/s from *cpu* to another socket."""
        return round(1000 * planned_socket(cpu, link, self.version))

    # -- paths ---------------------------------------------------------------------

    def seen(self, gpus: tuple[int, ...]) -> SeenMachine:
        """Return the view with the given *gpus*, which must be all GPUs if any two are linked directly."""
        paths: dict[tuple[int, int], DevicePath] = {}
        for gpu in gpus:
            found = self._from(gpu)
            for other in gpus:
                if other != gpu and other in found:
                    paths[gpu, other] = self._peer(gpu, found[other])
        for net in self.rate:
            found = self._from(net)
            for gpu in gpus:
                if gpu in found:
                    paths[net, gpu], paths[gpu, net] = self._direct(net, gpu, found[gpu])
        owners = {net: self._owner(net, gpus, paths) for net in self.rate}
        paths |= {
            (gpu, net): path
            for net, owner in owners.items()
            for gpu in gpus
            if owner is not None and (path := _relayed(gpu, owner, net, paths)) is not None
        }
        totals = {}
        has_switch = False
        for gpu in gpus:
            edges = self.out.get(gpu, ())
            nvlink = sum(self.capacity[edge.link] for edge in edges if edge.kind == _NVL)
            host = [self.capacity[edge.link] for edge in edges if edge.kind in (_PIX, _C2C)]
            totals[gpu] = max([nvlink, *host])
            has_switch = has_switch or any(edge.dst == _SWITCH for edge in edges)
        return SeenMachine(gpus, tuple(self.rate), tuple(self.capacity), paths, totals, has_switch)

    def _kind(self, node: int) -> str:
        return "nvlink-switch" if node == _SWITCH else self.machine.nodes[node].kind

    def _explored(self, start: int) -> dict[int, _Way]:
        """Return the best path from *start* to each node: the best class, then the widest, then the shortest."""
        best: dict[int, _Way] = {start: (_LOC, round(t.LOCAL * 1000), ())}
        frontier = [start]
        while frontier:
            following: dict[int, None] = {}
            for here in frontier:
                kind, bandwidth, edges = best[here]
                length = len(edges) + 1
                for edge in self.onward.get(here, ()):
                    width = min(bandwidth, self.capacity[edge.link])
                    old = best.get(edge.dst)
                    worth = (old[0], -old[1], len(old[2])) if old is not None else None
                    if worth is not None and (kind, -width, length) >= worth:  # its class can only be worse
                        continue
                    if not self._passes(start, edges, edge):
                        continue
                    reached = max(kind, self._class_of(start, here, edge, len(edges)))
                    if worth is None or (reached, -width, length) < worth:
                        best[edge.dst] = (reached, width, (*edges, edge))
                        following[edge.dst] = None
            frontier = list(following)
        return best

    def _passes(self, start: int, edges: tuple[_Edge, ...], edge: _Edge) -> bool:
        """Return whether a path may continue over *edge*: it passes through a GPU only by NVLink to a neighbour."""
        here = self._kind(edge.src)
        if edge.dst == start or any(edge.dst == old.src for old in edges) or (here == "nic" and edges):
            return False
        if here == "gpu" and edges:
            return edge.kind == _NVL and self._kind(edge.dst) == "gpu" and len(edges) == 1 and edges[0].kind == _NVL
        return True

    def _class_of(self, start: int, here: int, edge: _Edge, length: int) -> int:
        if edge.kind == _PIX:
            ends = {self._kind(here), self._kind(edge.dst)}
            if "cpu" in ends:
                return _PHB
            return _PXB if ends == {"pcie-switch"} else _PIX
        if edge.kind == _NVL and here != start and self._kind(here) == "gpu" and length:
            return _NVB
        return edge.kind

    def _path(self, start: int, found: _Way, kind: int | None = None) -> DevicePath:
        """Return the path with its load on each link."""
        path_type = found[0] if kind is None else kind
        edges = found[2]
        nodes = self.machine.nodes
        from_gpu = self._kind(start) == "gpu"
        through_intel = any(self._kind(e.dst) == "cpu" and cpu_kind(nodes[e.dst]) == "intel" for e in edges)
        share = t.INTEL_P2P_OVERHEAD if path_type == _PHB and from_gpu and through_intel else 1.0
        loads: dict[int, float] = {}
        for edge in edges:
            loads[edge.link] = loads.get(edge.link, 0.0) + (share if edge.kind == _PIX else 1.0)
            if not from_gpu and self._kind(edge.dst) == "gpu" and capability(nodes[edge.dst]) < 80:
                back = self.twin[edge.link]  # reads over PCIe cost older GPUs requests in the other direction
                loads[back] = loads.get(back, 0.0) + 1 / 8
        via = edges[0].dst if path_type == _NVB else None
        return DevicePath(path_type, found[1], tuple(edge.link for edge in edges), tuple(loads.items()), via)

    def _peer(self, gpu: int, found: _Way) -> DevicePath:
        """Return the path to another GPU; it passes through host memory if direct peer access is not allowed."""
        dst = found[2][-1].dst
        level = self.machine.peer_level(self.machine.nodes[gpu], self.machine.nodes[dst])
        if found[0] <= _C2C or _allowed(level, found[0]) or not self.cpus:
            return self._path(gpu, found)
        return self._path(gpu, self._over_cpu(gpu, dst, found))

    def _over_cpu(self, src: int, dst: int, otherwise: _Way) -> _Way:
        reached = self._from(src)
        near = [cpu for cpu in self.cpus if cpu in reached]
        if not near:
            return otherwise
        cpu = min(near, key=lambda c: (reached[c][0], -reached[c][1], len(reached[c][2]), c))
        onward = self._from(cpu)
        if dst not in onward:
            return otherwise
        first, second = reached[cpu], onward[dst]
        return max(first[0], second[0], _PHB), min(first[1], second[1]), first[2] + second[2]

    def _direct(self, net: int, gpu: int, found: _Way) -> tuple[DevicePath, DevicePath]:
        """Return the paths from a network device to a GPU and back, including the device's port."""
        part = self.machine.nodes[net].part
        free = isinstance(part, NicPart) and part.gpudirect
        c2c = any(edge.kind == _C2C for edge in found[2])
        kind = found[0]
        if free and c2c and kind == _PHB:
            kind = _P2C
        elif not (free and _allowed(self.machine.transport.gpudirect_rdma, kind)):
            found = self._over_cpu(net, gpu, found)
            kind = max(found[0], _PHB)
        inward, outward = self.ports[net]
        into = self._path(net, found, kind)
        back = tuple(self.twin[edge.link] for edge in reversed(found[2]))
        width = min(found[1], self.rate[net])
        return (
            DevicePath(kind, width, (inward, *into.hops), ((inward, 1.0), *into.loads)),
            DevicePath(kind, width, (*back, outward), (*((link, 1.0) for link in back), (outward, 1.0))),
        )

    def _owner(self, net: int, gpus: tuple[int, ...], paths: Mapping[tuple[int, int], DevicePath]) -> int | None:
        """Return the GPU that *net* belongs to; devices equally near to several GPUs are assigned in turn."""
        reach = {g: (p.kind, -p.bandwidth) for g in gpus if (p := paths.get((g, net))) is not None}
        if not reach:
            return None
        best = min(reach.values())
        near = [gpu for gpu, distance in reach.items() if distance == best]
        kind = paths[near[0], net].kind
        alike = [n for n in self.rate if (p := paths.get((near[0], n))) is not None and p.kind == kind]
        return near[alike.index(net) % len(near)]


def _relayed(gpu: int, peer: int, net: int, paths: Mapping[tuple[int, int], DevicePath]) -> DevicePath | None:
    """Return the path from *gpu* to *net* by NVLink through *peer* (PXN), or None if the direct one is better."""
    own, theirs, hop = paths.get((gpu, net)), paths.get((peer, net)), paths.get((gpu, peer))
    if gpu == peer or own is None or theirs is None or hop is None or hop.kind > _NVL or theirs.kind > _P2C:
        return None
    if theirs.bandwidth <= own.bandwidth and own.kind <= _PXN:
        return None
    width = min(hop.bandwidth, theirs.bandwidth)
    return DevicePath(_PXN, width, hop.hops + theirs.hops, hop.loads + theirs.loads)


def _allowed(level: str, kind: int) -> bool:
    return level != "none" and kind <= rank_of[level]  # type: ignore[index]


def _nvlink(gpu: Node, link: Link) -> float:
    """Return the planning bandwidth in GB/s of the parallel links represented by *link*."""
    part = gpu.part
    if link.kind == "xgmi" or not isinstance(part, GpuPart) or part.compute_capability is None:
        return link.bandwidth_Bps / 1e9
    return t.planned_nvlink(capability(gpu)) * link.count
