"""Ways of NCCL's kernels: hops of rings, chains inside a machine, links to NVLink switches, and chunks of NVLS.

Chunks are as in NVIDIA/nccl@5067397c ``src/enqueue.cc`` (calcCollChunking): in each round, each channel moves one chunk
per head.  If a buffer fills few rounds of all channels and heads, NCCL uses smaller chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from simulator.collectives.communicator import Equal
from simulator.collectives.nccl import tables as t
from simulator.collectives.request import Request, Unsuitable
from simulator.collectives.search.rings import FoundRing
from simulator.network.route import MovableRoute, Route, route_along
from simulator.plan.alike import PairGroup


def largest_chunk(*, tree: bool, n_hosts: int, on_efa: bool) -> int:
    """Return the chunk size for large buffers, in bytes: compiled into NCCL, or set by the EFA plugin."""
    if on_efa:
        return t.NVLS_CHUNK_EFA
    return t.NVLS_TREE_CHUNK_FAR if tree and n_hosts >= t.NVLS_TREE_FAR_HOSTS else t.NVLS_CHUNK


def rounds_from(size_bytes: float, at_once: int, largest: int, *, tree: bool) -> Sequence[tuple[float, float]]:
    """Return (bytes, rounds) for *size_bytes*, then for each larger size at which NCCL switches to larger chunks.

    *at_once*: chunks in flight, one per channel and head.
    *largest*: chunk size for large buffers, in bytes.

    The number of rounds drops where chunks grow, but measured times have no step there; the caller takes the shortest
    time of all entries.
    """
    chunk = largest
    found: list[tuple[float, float]] = []
    for rounds, smaller in t.NVLS_TREE_CHUNKS if tree else t.NVLS_CHUNKS:
        limit = float(rounds * at_once * chunk)
        if chunk > smaller and size_bytes < limit:
            found.insert(0, (limit, limit / (at_once * chunk)))
            chunk = smaller
    return [(size_bytes, size_bytes / (at_once * chunk)), *found]


class Ways:
    """The routes of one collective; if machines are equal, the first machine's represent all."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.hosts = list(request.by_host().values())
        self.equal = Equal.of(request.group)
        self._to_switches: dict[int, list[tuple[MovableRoute, ...]]] = {}  # by GPU of the first equal host

    def open(self, ring: FoundRing) -> list[Route]:
        """Return a ring's hops without the one into the root (broadcast) or out of it (reduce)."""
        root = self.request.ranks[self.request.root]
        if self.request.collective == "broadcast":
            return [route for route in ring.routes if route.dst != root]
        return [route for route in ring.routes if route.src != root]

    def round(self, ring: FoundRing, *, rooted: bool) -> list[tuple[Route, PairGroup | None]]:
        """Return a ring's hops; if machines are equal, those of the first machine with the ways they represent."""
        if not self.equal or rooted:
            return [(route, None) for route in ring.routes]
        on_first = len(self.hosts[0])
        ways = [self.equal.within] * (on_first - 1) + [self.equal.onward]
        return list(zip(ring.routes[:on_first], ways, strict=True))

    def inside(self) -> list[tuple[int, PairGroup | None]]:
        """Return the participating nodes; if machines are equal, those of one machine per role in the trees."""
        if not self.equal:
            return [(node, None) for node in self.request.ranks]
        own = [self.request.ranks[rank] for rank in self.hosts[0]]
        return [(self.equal.node(node, way.pairs[0][0]), way) for node in own for way in self.equal.inside]

    def chains(self, ring: FoundRing) -> list[list[int]]:
        """Split a ring into its runs of ranks on the same machine; if machines are equal, return only the first."""
        if self.equal:
            return [list(ring.order[: len(self.hosts[0])])]
        host = [self.request.machine.nodes[self.request.ranks[r]].host for r in ring.order]
        chains: list[list[int]] = []
        for i, rank in enumerate(ring.order):
            if i and host[i] == host[i - 1]:
                chains[-1].append(rank)
            else:
                chains.append([rank])
        return chains

    def heads(self, ranks: list[int]) -> list[int]:
        """Return a machine's *ranks*: one nearest to each NIC, then a second one, ..., then those near none."""
        rank_at = {self.request.ranks[rank]: rank for rank in ranks}
        owners = self.request.router.owners(rank_at).values()
        turns = [rank_at[node] for turn in zip_longest(*owners) for node in turn if node is not None]
        return list(dict.fromkeys([*turns, *ranks]))

    def to_switches(self, gpu: int) -> list[tuple[Route, Route]]:
        """Return the routes (up, down) between a GPU and each of its NVLink switches; raises Unsuitable without any."""
        machine = self.request.machine
        run, host, own = machine.locate(gpu)
        first = run.node + own
        if first not in self._to_switches:
            links = [link for link in machine.outgoing[first] if machine.nodes[link.dst].kind == "nvlink-switch"]
            self._to_switches[first] = [
                tuple(
                    MovableRoute(machine, route_along(machine, [way], "nvl", "nvls"))
                    for way in (up, machine.reverse(up))
                )
                for up in links
            ]
        if not self._to_switches[first]:
            raise Unsuitable("NVLS needs an NVLink switch")
        return [(up.at(host), down.at(host)) for up, down in self._to_switches[first]]
