"""Roles of equal machines in rings and trees: :class:`Equal`."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.algorithms.binary_tree import two_trees
from simulator.collectives.communicator import Communicator
from simulator.network.machine import Machine
from simulator.plan.alike import Pairs, Sites


class Equal:
    """Equal machines with equal ranks, grouped by role; one machine stands for all with the same role.

    In rings, all machines have the same role: ``within`` is the way inside each, and ``onward`` the way to the next.
    In a double binary tree, the role of a machine is its number of neighbours: ``inside`` has a way for each role,
    ``between`` one for each pair of roles that are joined.  In a direct exchange, flows go ``inside_each`` machine and
    ``between_any`` two.
    """

    def __init__(self, machine: Machine, hosts: Sequence[int]) -> None:
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
        """Return the equal machines of *group*, found once for the same machines.

        Return None for a single machine, for machines that differ, and if messages cost processor time, which each host
        spends separately.
        """
        if group.machine.messages.message or group.machine.messages.round:
            return None
        hosts = tuple(group.equal_hosts())
        return group.router.once(("equal", hosts), lambda: cls(group.machine, hosts)) if hosts else None

    def node(self, node: int, host: int) -> int:
        """Return the counterpart of *node* on the machine *host*."""
        run, _, own = self._machine.locate(node)
        return run.node_of(host) + own
