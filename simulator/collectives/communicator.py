"""A group of ranks on a machine, with a cache of its routes, rings and trees: :class:`Communicator`.

Roles of equal machines in rings and trees are in :class:`Equal`, what a strategy plans in :class:`Request`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from typing import Protocol

from simulator.kept import Kept
from simulator.network.machine import Machine, Node
from simulator.network.routing import Router
from simulator.plan.alike import Pairs, Sites
from simulator.plan.plan import Plan, PlanBuilder
from simulator.records import dataclass, field
from simulator.spelling import mention, spelt
from simulator.sums import lists_by_key
from simulator.topology.parts import CpuPart, GpuPart
from simulator.workload import Collective


class Communicator(Kept):
    """A group of ranks: rank i is the node ``ranks[i]`` of ``machine``, a GPU or a CPU.

    Routes, rings, trees and NCCL's channels do not depend on message sizes; each is found on first use and cached.
    Subgroups are cached here too.
    """

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
    """Equal machines with equal ranks, grouped by role; one machine stands for all with the same role.

    In rings, all machines have the same role: ``within`` is the way inside each, and ``onward`` the way to the next.
    In a double binary tree, the role of a machine is its number of neighbours: ``inside`` has a way for each role,
    ``between`` one for each pair of roles that are joined.  In a direct exchange, flows go ``inside_each`` machine and
    ``between_any`` two.
    """

    def __init__(self, machine: Machine, hosts: Sequence[int]) -> None:
        from simulator.collectives.binary_tree import two_trees

        self._machine = machine
        n = len(hosts)
        edges = [edge for tree in two_trees(n) for c, p in tree.edges() for edge in ((c, p), (p, c))]
        degree = [0] * n
        for a, _ in edges:
            degree[a] += 1
        inside = lists_by_key((many, (host, host)) for host, many in zip(hosts, degree, strict=True))
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
    """A collective of a group of ranks, to be planned.

    ``root`` is a rank.  ``size_bytes`` is nccl-tests' size (see :mod:`simulator.workload`).  ``pairs`` are
    the (source, target) ranks of a send-recv; if empty, each rank sends to the next.  ``gpus_per_process`` is the
    number of GPUs for which one host thread launches kernels.
    """

    group: Communicator
    collective: Collective
    size_bytes: float
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    gpus_per_process: int = 1

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

    def by_host(self) -> dict[int, list[int]]:
        """Return the ranks (not nodes) of each machine, in order, by host number."""
        return self.group.by_host()

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
    """A strategy of this package: ``write`` adds a request of two ranks or more to a plan.

    It is refused beyond ``most`` ranks (0: no limit) and for collectives that are not in ``forms`` (None: it has all),
    of which ``cannot`` says why, as a pattern.  Strategies of one name are the same.
    """

    name: str
    summary: str
    write: Callable[[PlanBuilder, Request], None] = field(compare=False)
    most: int = 0
    forms: Container[str] | None = field(default=None, compare=False)
    cannot: str = ""

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable if the strategy does not fit *request*."""
        builder = PlanBuilder()
        if request.n_ranks > 1:
            if self.most:
                request.refuse_beyond(self.most)
            if self.forms is not None and request.collective not in self.forms:
                raise Unsuitable(self.cannot.format(request.collective))
            self.write(builder, request)
        return builder.build()
