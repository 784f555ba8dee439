"""A group of ranks on a machine, with a cache of its routes, rings and trees: :class:`Communicator`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TypeVar, cast

from simulator.network.machine import Machine, Node
from simulator.network.routing import Router

T = TypeVar("T")


class Communicator:
    """A group of ranks: rank i is the node ``ranks[i]`` of ``machine``, a GPU or a CPU.

    Routes, rings, trees and NCCL's channels do not depend on message sizes; each is found on first use and cached.
    Subgroups are cached here too.
    """

    def __init__(self, machine: Machine, ranks: Sequence[int], router: Router | None = None) -> None:
        self.machine = machine
        self.ranks = tuple(ranks)
        self.router = router or Router(machine)
        self._found: dict[Hashable, object] = {}

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
        return self.once("hosts", self._by_host)

    def _by_host(self) -> dict[int, list[int]]:
        hosts: dict[int, list[int]] = {}
        for rank, node in enumerate(self.ranks):
            hosts.setdefault(self.machine.locate(node)[1], []).append(rank)
        return hosts

    def unlike(self) -> list[Node]:
        """Return one of the group's nodes for each place in each kind of machine.

        Every other node has the same part and kind as one of these.
        """
        return self.once("unlike", lambda: self.machine.unlike(self.ranks))

    def nodes_along(self, order: Sequence[int]) -> tuple[int, ...]:
        """Return the nodes of the ranks in *order*, cached by the identity of *order*, which is kept alive."""
        return self.once(("along", id(order)), lambda: (order, tuple([self.ranks[rank] for rank in order])))[1]

    def equal_hosts(self) -> list[int]:
        """Return the host numbers, in order, of several equal machines with the same GPUs taking part.

        Return an empty list if machines or their participating nodes differ, or if ranks are not numbered machine by
        machine.
        """
        return self.once("equal hosts", self._equal_hosts)

    def _equal_hosts(self) -> list[int]:
        hosts = self.by_host()
        runs = {self.machine.run(host) for host in hosts}
        if len(hosts) < 2 or len(runs) > 1 or any(a >= b for a, b in pairwise(self.ranks)):
            return []
        (run,) = runs
        firsts = ((run.node_of(host), ranks) for host, ranks in hosts.items())
        picked = {tuple([self.ranks[rank] - first for rank in ranks]) for first, ranks in firsts}
        return list(hosts) if len(picked) == 1 else []

    def part(self, ranks: Sequence[int]) -> Communicator:
        """Return the subgroup of the given *ranks*, renumbered from 0; the same object each time."""
        nodes = tuple(self.ranks[rank] for rank in ranks)
        return self.once(("part", nodes), lambda: Communicator(self.machine, nodes, self.router))

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return the value of *find()* from the first call with this *key*."""
        if key not in self._found:
            self._found[key] = find()
        return cast(T, self._found[key])
