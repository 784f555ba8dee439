"""The graph with which NCCL would plan, and the rings of its channels (docs/decisions/collectives.md)."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import permutations

from simulator.collectives.communicator import Communicator, Request
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.paths import SeenMachine, Sight, capability, rank_of
from simulator.collectives.nccl.search import ChannelSolution, hops_round, solution
from simulator.collectives.nccl.tables import CpuKind, cpu_kind
from simulator.collectives.nccl.tuning import CommGraph
from simulator.collectives.search import separate_rings
from simulator.collectives.search.rings import Ends, FoundRing, find_rings
from simulator.network.machine import Machine, Node
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.questions.collective import Protocol
from simulator.questions.where import NCCL_TODAY, Version, has
from simulator.records import replace, sums_by_key
from simulator.topology.parts import GpuPart, NicPart, Part


def with_peers(group: Communicator) -> Communicator:
    """Return *group* with the peers of ncclTopoCheckP2p: up to PXB, or for two GPUs at AMD's CPUs between sockets."""
    return group.once("nccl peers", lambda: _with_peers(group))


def _with_peers(group: Communicator) -> Communicator:
    machine, most = group.machine, max(len(ranks) for ranks in group.by_host().values())
    parts = [node.part for node in group.unlike()]
    are_peers = all(isinstance(part, GpuPart) and part.vendor == "nvidia" and part.pcie_peers for part in parts)
    if machine.transport.peer_to_peer is not None or most != 2 or not are_peers:
        return group
    firsts = {machine.run(host).first for host in group.by_host()}
    cpus = [node for host in firsts for node in machine.nodes_of(host) if node.kind == "cpu"]
    if not cpus or any(cpu_kind(cpu) != "amd" for cpu in cpus):
        return group
    reaching = replace(machine, transport=machine.transport.model_copy(update={"peer_to_peer": "sys"}))
    return Communicator(reaching, group.ranks, group.router.once("nccl peers", lambda: Router(reaching)))


def _of_version(name: str, version: Version) -> Hashable:
    """Return the key of what depends on how *version* sees a machine; the name itself for today's."""
    seen = has(version, "sockets"), has(version, "amd_sockets")
    return name if all(seen) else (name, seen)


def _picked(group: Communicator) -> list[tuple[int, tuple[int, ...], int]]:
    """Return (first equal machine, its corresponding GPUs, node offset to them) for each machine of the group."""
    picked = []
    for _, first, (model, *offsets) in group.taking_part().values():
        node = group.machine.run(model).node
        picked.append((model, tuple(sorted(node + offset for offset in offsets)), first - node))
    return picked


def comm_graph(group: Communicator, version: Version = NCCL_TODAY) -> CommGraph:
    """Return the graph that NCCL's *version* would find for the group's ranks; searched once."""
    return group.once(_of_version("nccl graph", version), lambda: _searched(group, version))


def _searched(group: Communicator, version: Version) -> CommGraph:
    machine, n_nodes = group.machine, len(group.by_host())
    several = n_nodes > 1
    picked = list(dict.fromkeys((host, gpus) for host, gpus, _ in _picked(group)))
    nodes_of = {host: machine.nodes_of(host) for host, _ in picked}
    nodes = [node for own in nodes_of.values() for node in own]
    capabilities = [capability(machine.nodes[gpu].part) for _, gpus in picked for gpu in gpus]
    lowest = min(capabilities)
    # All machines must agree: the minimum of each figure counts.
    found = [_found(group, nodes_of[host], gpus, lowest, version, several=several) for host, gpus in picked]
    n_channels, speed = min(f.n_channels for f in found), min(f.speed for f in found)
    kinds = {cpu_kind(node) for node in nodes if node.kind == "cpu"}
    cpu: CpuKind = kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "other"
    channels = min(2 * n_channels, t.MAX_CHANNELS)
    if lowest >= 90 and several and speed > 45 and channels < 16:
        channels *= 2
    nics = [node.part for node in nodes if isinstance(node.part, NicPart)]
    return CommGraph(
        n_ranks=group.n_ranks,
        n_nodes=n_nodes,
        n_channels=n_channels,
        bw_intra_GBps=speed,
        bw_inter_GBps=speed,
        type_intra=t.PATH_TYPES[max(f.kind_intra for f in found)],
        type_inter=t.PATH_TYPES[max(f.kind_inter for f in found)],
        compute_capability_min=lowest,
        compute_capability_max=max(capabilities),
        cpu=cpu,
        comm_channels=min(max(channels, machine.transport.least_channels), machine.transport.most_channels),
        most_channels=machine.transport.most_channels,
        peer_channels=machine.transport.peer_channels,
        nic_latency_us=1e6 * max((nic.plugin_latency for nic in nics), default=0.0) if several else 0.0,
        algorithms=next((nic.algorithms for nic in nics if nic.algorithms), None) if several else None,
        flags_beside_data=all(nic.in_order for nic in nics),
        has_nvlink_switch=any(node.kind == "nvlink-switch" for node in nodes),
        same_channels=all(f.same for f in found),
        tree_bw_intra_GBps=min(f.tree_intra for f in found) if several else None,
        nvls_channels=min(f.nvls[0] for f in found),
        nvls_bw_intra_GBps=min(f.nvls[1] for f in found),
        nvls_bw_inter_GBps=min(f.nvls[2] for f in found),
    )


def _found(
    group: Communicator, nodes: Sequence[Node], gpus: tuple[int, ...], lowest: int, version: Version, *, several: bool
) -> ChannelSolution:
    """Return the search's result for the participating *gpus* of the host with *nodes*; cached for all groups."""

    def search() -> ChannelSolution:
        seen = _seen(group, nodes, gpus, version, several=several)
        found = solution(seen, lowest, several=several)
        parts = (group.machine.nodes[gpu].part for gpu in gpus)
        return in_orders_of_rccl(seen, found) if all(is_amd(part) for part in parts) and not several else found

    return group.router.once((_of_version("nccl search", version), nodes[0].host, gpus, lowest, several), search)


def _seen(
    group: Communicator, nodes: Sequence[Node], gpus: tuple[int, ...], version: Version, *, several: bool
) -> SeenMachine:
    key = _of_version("sight", version), nodes[0].host, several
    return group.router.once(key, lambda: Sight(group.machine, nodes, network=several, version=version)).of(gpus)


def fewest_nvlinks(group: Communicator) -> int:
    """Return the fewest NVLinks, as NCCL counts them, between two GPUs of *group* on one machine; 0 for other paths."""
    host, gpus, _ = max(_picked(group), key=lambda picked: len(picked[1]))
    each = t.planned_nvlink(capability(group.machine.nodes[gpus[0]].part))
    seen = _seen(group, group.machine.nodes_of(host), gpus, NCCL_TODAY, several=len(group.by_host()) > 1)
    paths = [seen.paths.get(pair) for pair in permutations(gpus, 2)]
    counts = (max(1, int(p.bandwidth / 1000 / each)) if p and t.PATH_TYPES[p.kind] == "nvl" else 0 for p in paths)
    return min(counts, default=0)


# A hop through a neighbour is a write into the neighbour's memory and a read from there
# (src/transport/p2p.cc, P2P_INTERMEDIATE).  A read request of 16 B (one flit) fetches 64 B, and shares the opposite
# direction with writes; 128 B written take 8 flits of data and one of header (Foley and Danskin, IEEE Micro 37(2),
# 2017).
_ASKING = (16 / 64) / (9 / 8)


def channel_rings(group: Communicator, version: Version = NCCL_TODAY) -> list[FoundRing]:
    """Return the distinct rings of NCCL's channels, one a NIC over machines, with the bandwidth of each at once."""
    if len(group.by_host()) > 1:
        ends = Ends(nearest=has(version, "search"), lent=has(version, "pxn") and group.machine.transport.pxn)
        return find_rings(group, both_directions=False, in_order=True, ends=ends)
    return list(group.once(_of_version("nccl rings", version), lambda: _rings_inside(group, version)))


def relays_of(machine: Machine, rings: Sequence[FoundRing]) -> dict[tuple[int, int], int]:
    """Return the first neighbour through which *rings* join each pair of GPUs, the same in both directions."""
    links = machine.links
    found: dict[tuple[int, int], int] = {}
    for route in (route for ring in rings for route in ring.routes if route.transport == "nvlink-relay"):
        via = next(links[i].dst for i, _ in route.links if links[i].src == route.src)
        found.setdefault((route.src, route.dst), via)
        found.setdefault((route.dst, route.src), via)
    return found


def way(router: Router, relays: Mapping[tuple[int, int], int], src: int, dst: int) -> Route:
    """Return NCCL's route between two GPUs: through the neighbour in *relays* if any, else the router's."""
    via = relays.get((src, dst))
    return router.route(src, dst) if via is None else _relayed(router, src, via, dst)


def _rings_inside(group: Communicator, version: Version) -> list[FoundRing]:
    ((host, gpus, by),) = _picked(group)
    lowest = min(capability(group.machine.nodes[gpu].part) for gpu in gpus)
    found = _found(group, group.machine.nodes_of(host), gpus, lowest, version, several=False)
    rank_of = {node: rank for rank, node in enumerate(group.ranks)}
    vias = {(src + by, dst + by): via + by for src, via, dst in found.relayed}
    counted = Counter(tuple(gpu + by for gpu in order) for order in found.orders)
    rings = []
    for order, n in counted.items():
        routes = tuple(way(group.router, vias, a, b) for a, b in hops_round(order))
        kind = "nvlink-relay" if any(hop in vias for hop in hops_round(order)) else routes[0].path_class
        rings.append(FoundRing(tuple(rank_of[node] for node in order), float(n), routes, kind, found.whole))
    ways = ((ring.bandwidth_Bps, route) for ring in rings for route in ring.routes)  # if channels carry equally much
    loads = sums_by_key((resource, rate * share) for rate, route in ways for resource, share in route.loads)
    each_Bps = min(group.machine.capacity_Bps[resource] / load for resource, load in loads.items())
    return [replace(ring, bandwidth_Bps=ring.bandwidth_Bps * each_Bps) for ring in rings]


def _relayed(router: Router, src: int, via: int, dst: int) -> Route:
    through = router.relay(src, via, dst)
    asking = router.direct(dst, via)
    assert through is not None
    assert asking is not None
    links, loads = (
        sums_by_key([*writing, *((index, _ASKING * share) for index, share in more)])
        for writing, more in ((through.links, asking.links), (through.loads, asking.loads))
    )
    return replace(through, links=tuple(sorted(links.items())), loads=tuple(sorted(loads.items())))


_DIRECT_RANKS = 8  # the programs of MSCCL for one machine, and the kernels of later versions, are for eight ranks alone
_OWN_KERNELS: Version = (2, 28)  # "Removed MSCCL and MSCCL++ collective integration" (CHANGELOG.md, 2.28.3)
_GATHERED: Version = (2, 24)  # "Added MSCCL support for AllGather" (CHANGELOG.md, 2.24.3)
_PROGRAM_ELEMENTS = 256  # a program divides a buffer into so many chunks of whole elements (nchunksperloop)
_LARGEST_LL = (1 << 20) - 1  # of allreduce-allpairs-8n-ll-64tb; allreduce-allpairs-8n-simple goes on
_LARGEST_PROGRAM = {"all-reduce": 20 << 20, "all-gather": 16 << 20}
_LARGEST_KERNEL = {"CDNA3": 8 << 20, "CDNA4": 128 << 20}  # ddaVmmMax of gfx942 and gfx950, both collectives
_ELEMENT_BYTES = 4  # as nccl-tests' default; of smaller ones a program takes smaller buffers too


def is_amd(part: Part | None) -> bool:
    """Return whether *part* is a GPU by AMD, on which RCCL runs."""
    return isinstance(part, GpuPart) and part.vendor == "amd"


def in_orders_of_rccl(seen: SeenMachine, found: ChannelSolution) -> ChannelSolution:
    """Return *found*, or rings that share no link, if more, where equally fast links join all GPUs directly."""
    paths = [seen.paths.get(pair) for pair in permutations(seen.gpus, 2)]
    alike = {(path.kind, path.bandwidth) if path is not None else (rank_of["sys"], 0) for path in paths}
    if [kind for kind, _ in alike] != [rank_of["nvl"]]:
        return found
    orders = tuple(tuple(seen.gpus[i] for i in order) for order in separate_rings(len(seen.gpus)))
    if len(orders) <= len(set(found.orders)):
        return found
    each = max(1, found.n_channels // len(set(found.orders)))
    return replace(found, orders=orders, n_channels=each * len(orders))


def direct_protocol(request: Request, version: Version) -> Protocol | None:
    """Return the protocol with which all GPUs of *request* exchange directly; None if RCCL takes a ring or a tree."""
    largest = _LARGEST_PROGRAM.get(request.collective)
    parts = (node.part for node in request.group.unlike())
    chips = {part.architecture if isinstance(part, GpuPart) and is_amd(part) else None for part in parts}
    if largest is None or len(chips) != 1 or chips.isdisjoint(_LARGEST_KERNEL):
        return None
    if request.n_ranks != _DIRECT_RANKS or len(request.group.by_host()) > 1 or request.gpus_per_process > 1:
        return None
    size = request.size_bytes
    if version >= _OWN_KERNELS:
        largest = _LARGEST_KERNEL[str(chips.pop())]
    elif size % (_PROGRAM_ELEMENTS * _ELEMENT_BYTES) or (request.collective == "all-gather" and version < _GATHERED):
        return None
    if not 0 < size <= largest or not all(request.router.direct(a, b) for a, b in permutations(request.ranks, 2)):
        return None
    return "LL" if size <= _LARGEST_LL else "Simple"
