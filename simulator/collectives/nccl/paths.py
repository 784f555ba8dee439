"""One machine as NCCL sees it: planned bandwidths, and paths between devices (docs/decisions/collectives.md)."""

from collections.abc import Iterable, Mapping
from functools import cache

from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.tables import cpu_kind, planned_socket
from simulator.network.machine import Link, Machine, Node
from simulator.questions.where import NCCL_TODAY, Version
from simulator.records import dataclass, sums_by_key
from simulator.topology.parts import GPU_LINKS, NETWORK_LINKS, GpuPart, NicPart, Part

UNKNOWN_CAPABILITY = 80  # GPUs without one, and those of other vendors, are tuned as an A100
rank_of = {path_type: i for i, path_type in enumerate(t.PATH_TYPES)}
_LOC, _NVL, _NVB, _C2C, _PIX, _PXB, _P2C, _PXN, _PHB, _SYS, _NET = range(11)
_SWITCH = -1  # all NVLink switches of a machine are one node


@dataclass(frozen=True, slots=True)
class DevicePath:
    """A path: its class (index into PATH_TYPES), MB/s, a channel's share of each link, and the GPU it passes."""

    kind: int
    bandwidth: int
    hops: tuple[int, ...]
    loads: tuple[tuple[int, float], ...]
    via: int | None = None


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """GPUs and network devices of one machine that take part, with the paths between them, and links' MB/s."""

    gpus: tuple[int, ...]
    nets: tuple[int, ...]
    capacity: tuple[int, ...]
    paths: Mapping[tuple[int, int], DevicePath]
    total: Mapping[int, int]  # by GPU: MB/s of all its NVLinks, or of its widest host link if that is more
    has_switch: bool

    def __hash__(self) -> int:
        return hash((self.gpus, self.nets, self.capacity, tuple(self.paths.items()), tuple(self.total.items())))


def capability(part: Part | None) -> int:
    """Return NCCL's number for a GPU's compute capability, such as 70 for 7.0."""
    text = part.compute_capability if isinstance(part, GpuPart) else None
    if text is None:
        return UNKNOWN_CAPABILITY
    major, minor = text.split(".")
    return int(major) * 10 + int(minor)


@dataclass(frozen=True, slots=True)
class _Edge:
    link: int
    src: int
    dst: int
    kind: int


_Way = tuple[int, int, tuple[_Edge, ...]]  # class, bottleneck in MB/s, links


class Sight:
    """NCCL's view of *nodes* of one host for any GPUs, through which alone it routes; adapters on a *network*."""

    def __init__(
        self,
        machine: Machine,
        nodes: Iterable[Node],
        *,
        network: bool,
        version: Version = NCCL_TODAY,
        gpus: tuple[int, ...] | None = None,
    ) -> None:
        self._nodes = list(nodes)
        of_kind = {kind: [node for node in self._nodes if node.kind == kind] for kind in ("gpu", "cpu", "nic")}
        self._machine, self._version = machine, version
        self._gpus = tuple(node.index for node in of_kind["gpu"]) if gpus is None else gpus
        self._cpus = [node.index for node in of_kind["cpu"]]
        self._capacity: list[int] = []
        self._out: dict[int, list[_Edge]] = {}
        self._twin: dict[int, int] = {}
        self._from = cache(self._explored)  # each start is explored once
        self._rate = self._nets(of_kind["nic"], len(of_kind["gpu"])) if network else {}
        for node in self._nodes:
            for link in machine.outgoing[node.index]:
                if link.index % 2 == 0 and machine.nodes[link.dst].host == node.host:
                    self._add(link)
        for a in self._cpus:  # all sockets are joined pairwise, whatever the topology says
            for b in self._cpus:
                if a < b and all(edge.dst != b for edge in self._out.get(a, ())):
                    self._join(a, b, _SYS, *(planned_socket(machine.nodes[cpu], None, version) for cpu in (a, b)))
        self._ports = {net: (self._link(rate), self._link(rate)) for net, rate in self._rate.items()}
        # Paths never enter a network device; paths to it are those from it, reversed.
        self._onward = {a: [e for e in edges if e.dst not in self._rate] for a, edges in self._out.items()}

    def _nets(self, nics: list[Node], n_gpus: int) -> dict[int, int]:
        leader: dict[int, int] = {}
        rates: list[tuple[int, int]] = []
        for nic in nics:
            assert isinstance(nic.part, NicPart)
            links = self._machine.outgoing[nic.index]
            rate_Bps = sum(link.nominal_Bps for link in links if link.kind in NETWORK_LINKS) or nic.part.bandwidth
            parent = next((link.dst for link in links if link.kind == "pcie"), None)
            joins = nic.part.network == "efa" and len(nics) > n_gpus and parent is not None
            rates.append((leader.setdefault(parent or 0, nic.index) if joins else nic.index, round(rate_Bps / 1e6)))
        return sums_by_key(rates)

    def _link(self, megabytes: int) -> int:
        self._capacity.append(megabytes)
        return len(self._capacity) - 1

    def _join(self, a: int, b: int, kind: int, there: float, back: float) -> None:
        forth, reverse = self._link(round(there * 1000)), self._link(round(back * 1000))
        self._twin |= {forth: reverse, reverse: forth}
        self._out.setdefault(a, []).append(_Edge(forth, a, b, kind))
        self._out.setdefault(b, []).append(_Edge(reverse, b, a, kind))

    def _add(self, link: Link) -> None:
        ends = [self._machine.nodes[link.src], self._machine.nodes[link.dst]]
        unseen = ((end.kind == "gpu" and end.index not in self._gpus) for end in ends)
        if any(unseen) or any(end.kind == "nic" and end.index not in self._rate for end in ends):
            return
        a, b = (_SWITCH if end.kind == "nvlink-switch" else end.index for end in ends)
        if a == b:
            return
        if link.kind in GPU_LINKS:
            width = min(_nvlink(end, link) for end in ends if end.kind == "gpu")
            self._join(a, b, _NVL, width, width)
        elif link.kind == "c2c":
            width = link.bandwidth_Bps / 1e9
            self._join(a, b, _C2C, width, width)
        elif link.kind == "pcie":
            width = t.planned_pcie(link.nominal_Bps / link.count) * link.count
            self._join(a, b, _PIX, width, width)
        elif link.kind == "socket":
            self._join(a, b, _SYS, *(planned_socket(end, link, self._version) for end in ends))

    def of(self, gpus: tuple[int, ...]) -> SeenMachine:
        """Return the view with the given participating *gpus*."""
        if gpus != self._gpus and any(
            self._kind(gpu) == self._kind(edge.dst) for gpu in self._gpus for edge in self._out.get(gpu, ())
        ):  # GPUs are linked directly
            own = Sight(self._machine, self._nodes, network=bool(self._rate), version=self._version, gpus=gpus)
            return own.of(gpus)
        paths: dict[tuple[int, int], DevicePath] = {}
        for gpu in gpus:
            found = self._from(gpu)
            for other in (other for other in gpus if other != gpu and other in found):
                way, level = found[other], self._machine.peer_level(*(self._machine.nodes[end] for end in (gpu, other)))
                reaches = way[0] <= _C2C or _allowed(level, way[0]) or not self._cpus
                paths[gpu, other] = self._path(gpu, way if reaches else self._over_cpu(gpu, other, way))
        for net in self._rate:
            found = self._from(net)
            for gpu in gpus:
                if gpu in found:
                    paths[net, gpu], paths[gpu, net] = self._direct(net, gpu, found[gpu])
        owners = {net: self._owner(net, gpus, paths) for net in self._rate}
        owned = ((gpu, net, owner) for net, owner in owners.items() if owner is not None for gpu in gpus)
        relayed = {(gpu, net): _relayed(gpu, owner, net, paths) for gpu, net, owner in owned}
        paths |= {ends: path for ends, path in relayed.items() if path is not None}
        edges_of = {gpu: self._out.get(gpu, ()) for gpu in gpus}
        totals = {}
        for gpu, edges in edges_of.items():
            nvlink = sum(self._capacity[edge.link] for edge in edges if edge.kind == _NVL)
            totals[gpu] = max([nvlink, *(self._capacity[edge.link] for edge in edges if edge.kind in (_PIX, _C2C))])
        has_switch = any(edge.dst == _SWITCH for edges in edges_of.values() for edge in edges)
        return SeenMachine(gpus, tuple(self._rate), tuple(self._capacity), paths, totals, has_switch)

    def _kind(self, node: int) -> str:
        return "nvlink-switch" if node == _SWITCH else self._machine.nodes[node].kind

    def _explored(self, start: int) -> dict[int, _Way]:
        """Return the best path from *start* to each node: the best class, then the widest, then the shortest."""
        best: dict[int, _Way] = {start: (_LOC, round(t.LOCAL * 1000), ())}
        frontier = [start]
        while frontier:
            following: dict[int, None] = {}
            for here in frontier:
                kind, bandwidth, edges = best[here]
                length = len(edges) + 1
                for edge in self._onward.get(here, ()):
                    width = min(bandwidth, self._capacity[edge.link])
                    old = best.get(edge.dst)
                    worth = (old[0], -old[1], len(old[2])) if old is not None else None
                    if worth is not None and (kind, -width, length) >= worth:  # its class can only be worse
                        continue
                    own = self._class_of(start, edges, edge)
                    if own is None:
                        continue
                    reached = max(kind, own)
                    if worth is None or (reached, -width, length) < worth:
                        best[edge.dst] = (reached, width, (*edges, edge))
                        following[edge.dst] = None
            frontier = list(following)
        return best

    def _class_of(self, start: int, edges: tuple[_Edge, ...], edge: _Edge) -> int | None:
        """Return the class of *edge* after *edges*; None if no path goes on so: through GPUs only by two NVLinks."""
        here, there = self._kind(edge.src), self._kind(edge.dst)
        if edge.dst == start or any(edge.dst == old.src for old in edges) or (here == "nic" and edges):
            return None
        if here == "gpu" and edges:
            return _NVB if there == "gpu" and len(edges) == 1 and edges[0].kind == edge.kind == _NVL else None
        if edge.kind != _PIX:
            return edge.kind
        return _PHB if "cpu" in (here, there) else _PXB if here == there == "pcie-switch" else _PIX

    def _path(self, start: int, found: _Way, kind: int | None = None) -> DevicePath:
        path_type = found[0] if kind is None else kind
        edges = found[2]
        nodes = self._machine.nodes
        from_gpu = self._kind(start) == "gpu"
        through_intel = any(self._kind(e.dst) == "cpu" and cpu_kind(nodes[e.dst]) == "intel" for e in edges)
        share = t.INTEL_P2P_OVERHEAD if path_type == _PHB and from_gpu and through_intel else 1.0
        loads: dict[int, float] = {}
        for edge in edges:
            loads[edge.link] = loads.get(edge.link, 0.0) + (share if edge.kind == _PIX else 1.0)
            if not from_gpu and self._kind(edge.dst) == "gpu" and capability(nodes[edge.dst].part) < 80:
                back = self._twin[edge.link]  # reads over PCIe cost older GPUs requests in the other direction
                loads[back] = loads.get(back, 0.0) + 1 / 8
        via = edges[0].dst if path_type == _NVB else None
        return DevicePath(path_type, found[1], tuple(edge.link for edge in edges), tuple(loads.items()), via)

    def _over_cpu(self, src: int, dst: int, otherwise: _Way) -> _Way:
        reached = self._from(src)
        near = [cpu for cpu in self._cpus if cpu in reached]
        if not near:
            return otherwise
        cpu = min(near, key=lambda c: (reached[c][0], -reached[c][1], len(reached[c][2]), c))
        onward = self._from(cpu)
        if dst not in onward:
            return otherwise
        first, second = reached[cpu], onward[dst]
        return max(first[0], second[0], _PHB), min(first[1], second[1]), first[2] + second[2]

    def _direct(self, net: int, gpu: int, found: _Way) -> tuple[DevicePath, DevicePath]:
        part = self._machine.nodes[net].part
        free = isinstance(part, NicPart) and part.gpudirect
        kind = found[0]
        if free and kind == _PHB and any(edge.kind == _C2C for edge in found[2]):
            kind = _P2C
        elif not (free and _allowed(self._machine.transport.gpudirect_rdma, kind)):
            found = self._over_cpu(net, gpu, found)
            kind = max(found[0], _PHB)
        inward, outward = self._ports[net]
        into = self._path(net, found, kind)
        back = tuple(self._twin[edge.link] for edge in reversed(found[2]))
        width = min(found[1], self._rate[net])
        there = DevicePath(kind, width, (inward, *into.hops), ((inward, 1.0), *into.loads))
        return there, DevicePath(kind, width, (*back, outward), (*((link, 1.0) for link in back), (outward, 1.0)))

    def _owner(self, net: int, gpus: tuple[int, ...], paths: Mapping[tuple[int, int], DevicePath]) -> int | None:
        """Return the GPU that *net* belongs to; devices equally near to several GPUs are assigned in turn."""
        reach = {g: (p.kind, -p.bandwidth) for g in gpus if (p := paths.get((g, net))) is not None}
        if not reach:
            return None
        best = min(reach.values())
        near = [gpu for gpu, distance in reach.items() if distance == best]
        alike = [n for n in self._rate if (p := paths.get((near[0], n))) is not None and p.kind == best[0]]
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
    part = gpu.part
    if link.kind == "xgmi" or not isinstance(part, GpuPart) or part.compute_capability is None:
        return link.bandwidth_Bps / 1e9
    return t.planned_nvlink(capability(part)) * link.count
