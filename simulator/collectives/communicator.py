"""Groups of ranks on a machine, what they ask, and groups at once (docs/decisions/collectives.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from simulator.errors import mention, spelt
from simulator.kept import Kept
from simulator.network.machine import Machine, Node
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.plan.flow import Alike, PairGroup, Pairs, Sites
from simulator.plan.plan import Flow, Fragment, Plan, PlanBuilder, merge
from simulator.records import dataclass, field, lists_by_key, sums_by_key
from simulator.topology.parts import CpuPart, GpuPart
from simulator.workload import Collective


class Communicator(Kept):
    """Ranks on a machine: rank i is the node ``ranks[i]``.  What does not depend on sizes is found once, and kept."""

    def __init__(self, machine: Machine, ranks: Sequence[int], router: Router | None = None) -> None:
        super().__init__()
        self.machine = machine
        self.ranks = tuple(ranks)
        self.router = router or Router(machine)

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    @property
    def nominal(self) -> Communicator:
        """The same ranks on the machine without slowed links or neighbours; the group itself if there are none."""
        machine = self.machine.nominal
        if machine is None:
            return self
        router = self.router.once("nominal", lambda: Router(machine))
        return self.once("nominal", lambda: Communicator(machine, self.ranks, router))

    def by_host(self) -> dict[int, list[int]]:
        """Return the ranks (not nodes) of each machine, in order, by host number."""
        pairs = ((self.machine.locate(node)[1], rank) for rank, node in enumerate(self.ranks))
        return self.once("hosts", lambda: lists_by_key(pairs))

    def taking_part(self) -> dict[int, tuple[list[int], int, tuple[int, ...]]]:
        """Return each machine's ranks, first node, and a key: its first equal's number, then each rank's offset."""

        def find() -> dict[int, tuple[list[int], int, tuple[int, ...]]]:
            found = {}
            for host, ranks in self.by_host().items():
                run = self.machine.run(host)
                first = run.node_of(host)
                found[host] = ranks, first, (run.first, *[self.ranks[rank] - first for rank in ranks])
            return found

        return self.once("taking part", find)

    def unlike(self) -> list[Node]:
        """Return one of the group's nodes for each place in each kind of machine; others are like one of these."""
        return self.once("unlike", lambda: self.machine.unlike(self.ranks))

    def nodes_along(self, order: Sequence[int]) -> tuple[int, ...]:
        """Return the nodes of the ranks in *order*, cached by the identity of *order*, which is kept alive."""
        return self.once(("along", id(order)), lambda: (order, tuple([self.ranks[rank] for rank in order])))[1]

    def equal_hosts(self) -> list[int]:
        """Return the hosts of several equal machines with the same GPUs, ranks numbered by machine; else none."""
        are_equal = len(self.by_host()) > 1 and len({key for _, _, key in self.taking_part().values()}) == 1
        return list(self.by_host()) if are_equal and all(a < b for a, b in pairwise(self.ranks)) else []

    def part(self, ranks: Sequence[int]) -> Communicator:
        """Return the subgroup of the given *ranks*, renumbered from 0; the same object each time."""
        nodes = tuple(self.ranks[rank] for rank in ranks)
        return self.once(("part", nodes), lambda: Communicator(self.machine, nodes, self.router))


class Equal:
    """Equal machines, one for all of its role: one role in rings, of neighbours in trees, one in direct exchange."""

    def __init__(self, machine: Machine, hosts: Sequence[int]) -> None:
        from simulator.collectives.schedules import two_trees

        self._machine = machine
        edges = [edge for tree in two_trees(len(hosts)) for c, p in tree.edges() for edge in ((c, p), (p, c))]
        degree = Counter(a for a, _ in edges)
        inside = lists_by_key((degree[place], (host, host)) for place, host in enumerate(hosts))
        between = lists_by_key(((degree[a], degree[b]), (hosts[a], hosts[b])) for a, b in edges)
        self.sites = Sites(machine, [*inside.values(), *between.values()])
        self.inside = self.sites.ways[: len(inside)]
        self.between = self.sites.ways[len(inside) :]
        following = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
        self.round = Sites(machine, [[(host, host) for host in hosts], list(following)])
        self.within, self.onward = self.round.ways
        self.direct = Sites(machine, [[(host, host) for host in hosts], Pairs(hosts, hosts)])
        self.inside_each, self.between_any = self.direct.ways

    @classmethod
    def of(cls, group: Communicator) -> Equal | None:
        """Return *group*'s equal machines, found once; None for one, unlike ones, or if messages cost processors."""
        if group.machine.messages.message or group.machine.messages.round:
            return None
        hosts = tuple(group.equal_hosts())
        return group.router.once(("equal", hosts), lambda: cls(group.machine, hosts)) if hosts else None

    def node(self, node: int, host: int) -> int:
        """Return the counterpart of *node* on the machine *host*."""
        run, _, own = self._machine.locate(node)
        return run.node_of(host) + own


# The most ranks that are simulated, by how many flows each rank has at once.  Keeps a run to seconds and 500 MB.
MAX_RANKS = {"one": 16_384, "two": 8_192, "many": 4_096}
MAX_DIRECT_RANKS = 256  # with a flow for each pair


class Unsuitable(Exception):  # noqa: N818  an answer, not an error
    """The strategy does not fit the machine, the ranks or the collective; ``why``, which errors spell, says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return spelt(self.why)


@dataclass(frozen=True, slots=True)
class Request:
    """A collective of a group of ranks, to be planned."""

    group: Communicator
    collective: Collective
    size_bytes: float  # nccl-tests' (see :mod:`simulator.workload`)
    root: int = 0  # a rank
    pairs: tuple[tuple[int, int], ...] = ()  # (source, target) ranks of a send-recv; if none, each to the next
    gpus_per_process: int = 1  # for which one host thread launches kernels

    @property
    def machine(self) -> Machine:
        """The group's machine."""
        return self.group.machine

    @property
    def router(self) -> Router:
        """The machine's router."""
        return self.group.router

    @property
    def ranks(self) -> tuple[int, ...]:
        """The node of each rank, rank 0 first."""
        return self.group.ranks

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.group.ranks)

    def memory_s(self, node: int, n_bytes: float) -> float:
        """Return the seconds in which *node* moves *n_bytes* of its memory; 0 if its bandwidth is unknown."""
        part = self.machine.nodes[node].part
        bandwidth = part.memory_bandwidth if isinstance(part, GpuPart | CpuPart) else None
        return n_bytes / bandwidth if bandwidth else 0.0

    def refuse_beyond(self, most: int) -> None:
        """Raise :class:`Unsuitable` for more than *most* ranks."""
        if self.n_ranks > most:
            text = f"{self.n_ranks:,} ranks are more than it is simulated for (up to {most:,})"
            parts = (node.part for node in self.group.unlike())
            runs = not any(isinstance(part, GpuPart) and part.vendor == "other" for part in parts)
            raise Unsuitable(f"{text}; {mention('strategy', 'nccl')} does it" if runs else text)

    def refuse_too_many(self) -> None:
        """Raise :class:`Unsuitable` if a flow for each pair of ranks would need too much memory."""
        if self.n_ranks > MAX_DIRECT_RANKS:
            most = f"more than is simulated (up to {MAX_DIRECT_RANKS} ranks)"
            raise Unsuitable(f"a flow between any two of {self.n_ranks} ranks is {most}")


class Strategy(Protocol):
    """A way to run collectives.  ``name`` is its name on the command line, ``summary`` a description of one line."""

    name: str
    summary: str

    def plan(self, request: Request) -> Plan:
        """Return the plan for *request*.  Raises Unsuitable if the strategy does not fit it."""
        ...


@dataclass(frozen=True, slots=True)
class Planned:
    """A strategy: ``write`` adds a request to a plan; ``most``: a key of MAX_RANKS; it ``cannot`` do but ``forms``."""

    name: str
    summary: str
    write: Callable[[PlanBuilder, Request], None] = field(compare=False)
    most: str = field(default="", compare=False)
    forms: Container[str] | None = field(default=None, compare=False)
    cannot: str = field(default="", compare=False)

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable if the strategy does not fit *request*."""
        builder = PlanBuilder()
        if request.n_ranks > 1:
            if self.most:
                request.refuse_beyond(MAX_RANKS[self.most])
            if self.forms is not None and request.collective not in self.forms:
                raise Unsuitable(self.cannot.format(request.collective))
            self.write(builder, request)
        return builder.build()


class GpuLoads:
    """The loads on each GPU of *plan*, which *bundle* runs; counted on first use."""

    def __init__(self, bundle: ConcurrentGroups, plan: Plan) -> None:
        self.machine, self._bundle, self._plan = bundle.groups[0].machine, bundle, plan

    @cached_property
    def _moved(self) -> tuple[dict[int, float], dict[Alike, list[tuple[Route, PairGroup, float]]]]:
        """The bytes that cross the ports of each node; and the ways of flows that stand for several, with theirs."""
        parts = ((part, task.repeat) for task in self._plan.tasks for part in task.parts)
        flows = [(part, part.bytes * part.count * repeat) for part, repeat in parts if isinstance(part, Flow)]
        own = ((each.route, n_bytes) for each, n_bytes in flows if each.at is None)
        single = sums_by_key((node, n_bytes) for route, n_bytes in own for node in {route.src, route.dst})
        together = ((each.route, each.at, n_bytes) for each, n_bytes in flows if each.at is not None)
        return single, lists_by_key((at.sites, (route, at, n_bytes)) for route, at, n_bytes in together)

    @property
    def kind(self) -> Hashable:
        """What :meth:`place` depends on: for equal kinds it is equal."""
        single, several = self._moved
        return id(self._bundle.stand_ins), bool(single), *several

    def place(self, node: int) -> Hashable:
        """Return a key that *node* shares only with nodes of equal load."""
        single, several = self._moved
        node = self._bundle.stand_ins.get(node, node)
        return node if single else tuple([sites.place(node) for sites in several])

    def on(self, node: int) -> tuple[float, float]:
        """Return the share of *node*'s multiprocessors that channels take, and the seconds of its memory."""
        node = self._bundle.stand_ins.get(node, node)
        part = self.machine.nodes[node].part
        single = self._moved[0].get(node, 0.0)
        crossing = sum((at.get(sites.place(node), 0.0) for sites, at in self._crossing_at), single)
        if not isinstance(part, GpuPart) or not crossing:
            return 0.0, 0.0
        channels = int(self._plan.facts.get("channels", 0))
        taken = min(1.0, channels / part.sm_count) if part.sm_count else 0.0
        return taken, crossing / part.memory_bandwidth if part.memory_bandwidth else 0.0

    def most(self, nodes: Iterable[int]) -> tuple[float, float]:
        """Return the greatest share, and the most seconds, of :meth:`on` any of *nodes*."""
        found = [self.on(node) for node in {self.place(node): node for node in nodes}.values()]
        return max(share for share, _ in found), max(seconds for _, seconds in found)

    @cached_property
    def _crossing_at(self) -> list[tuple[Alike, dict[Hashable, float]]]:
        """The bytes of flows that stand for several which cross the ports of a node, by its place in their sites."""
        found = []
        for sites, flows in self._moved[1].items():
            ends = ((sites.ends(route, at), n_bytes) for route, at, n_bytes in flows)
            found.append((sites, sums_by_key((place, n * n_bytes) for at, n_bytes in ends for place, n in at.items())))
        return found


class ConcurrentGroups:
    """Disjoint *groups* that exchange at once, for *others* like them; with equal ``lie`` they take equally long."""

    def __init__(
        self, groups: Sequence[Communicator], lie: Hashable = None, others: Sequence[Sequence[int]] = ()
    ) -> None:
        self.groups, self.lie, self._others = tuple(groups), lie, others

    @property
    def n_ranks(self) -> int:
        """The number of ranks in each group."""
        return self.groups[0].n_ranks

    def all_nodes(self) -> list[Sequence[int]]:
        """Return the nodes of each group, also of the bundles for which this one stands."""
        size, own = self.n_ranks, [group.ranks for group in self.groups]
        return [*own, *(nodes[i : i + size] for nodes in self._others for i in range(0, len(nodes), size))]

    @cached_property
    def stand_ins(self) -> dict[int, int]:
        """By node of the other bundles: the node of this one that does the same."""
        own = [node for group in self.groups for node in group.ranks]
        return {node: first for nodes in self._others for node, first in zip(nodes, own, strict=True)}

    def collective(
        self, op: Collective, size_bytes: float, strategy: Strategy, *, loads_on: Mapping[int, float] | None = None
    ) -> FragmentLoads:
        """Return *op* in all groups at once, kept, with bytes of memory traffic *loads_on* GPUs; raises Unsuitable."""
        first, *others = self.groups
        asked = tuple(g.ranks for g in others), op, size_bytes, strategy
        plan = first.once(("plan", *asked), lambda: planned(self.groups, op, size_bytes, strategy))
        key = ("bundle", *asked, id(self) if self._others else None)  # kept alive by the loads
        found = first.once(key, lambda: FragmentLoads(plan, gpu_loads=GpuLoads(self, plan)))
        return found if not loads_on else first.once((*key, tuple(loads_on.items())), lambda: found.loading(loads_on))


@dataclass(frozen=True, eq=False)
class FragmentLoads(Fragment):
    """A collective that loads some GPUs; ``gpu_loads`` has its loads on any."""

    gpu_loads: GpuLoads = field(kw_only=True)

    def loading(self, nodes: Mapping[int, float]) -> FragmentLoads:
        """Return the same collective, which loads *nodes*, as of :meth:`ConcurrentGroups.collective`."""
        machine = self.gpu_loads.machine
        found = [(machine.nodes[node], passes, *self.gpu_loads.on(node)) for node, passes in nodes.items()]
        loads = tuple((node.multiprocessors, taken) for node, _, taken, _ in found if taken)
        used_s = tuple((node.memory, passes * seconds) for node, passes, _, seconds in found if seconds)
        return FragmentLoads(self.plan, loads, used_s, gpu_loads=self.gpu_loads)


def planned(groups: Sequence[Communicator], op: Collective, size_bytes: float, strategy: Strategy) -> Plan:
    """Return the plan of *op* by *strategy* in all *groups* at once, as :meth:`ConcurrentGroups.collective`."""
    if op == "send-recv" and len(groups) > 1 and groups[0].n_ranks == 2:  # pairs: one exchange among all
        whole = Communicator(groups[0].machine, [rank for group in groups for rank in group.ranks], groups[0].router)
        pairs = tuple((i ^ swap, i ^ 1 ^ swap) for i in range(0, whole.n_ranks, 2) for swap in (0, 1))
        return strategy.plan(Request(whole, op, size_bytes, pairs=pairs))
    return merge([strategy.plan(Request(group, op, size_bytes)) for group in groups])
