"""A group of ranks on a machine, with a cache of its routes, rings and trees: :class:`Communicator`.

Roles of equal machines in rings and trees are in :class:`Equal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from simulator.kept import Kept
from simulator.network.machine import Machine, Node
from simulator.network.routing import Router
from simulator.plan.alike import Pairs, Sites


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

        def find() -> dict[int, list[int]]:
            hosts: dict[int, list[int]] = {}
            for rank, node in enumerate(self.ranks):
                hosts.setdefault(self.machine.locate(node)[1], []).append(rank)
            return hosts

        return self.once("hosts", find)

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
        from simulator.collectives.algorithms.binary_tree import two_trees

        self._machine = machine
        n = len(hosts)
        edges = [edge for tree in two_trees(n) for c, p in tree.edges() for edge in ((c, p), (p, c))]
        degree = [0] * n
        for a, _ in edges:
            degree[a] += 1
        inside: dict[int, list[tuple[int, int]]] = {}
        between: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for host, many in zip(hosts, degree, strict=True):
            inside.setdefault(many, []).append((host, host))
        for a, b in edges:
            between.setdefault((degree[a], degree[b]), []).append((hosts[a], hosts[b]))
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
