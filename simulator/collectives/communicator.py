"""A group of ranks on a machine, with all that is found once for it: :class:`Communicator`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, cast

from simulator.network.machine import Machine, Node
from simulator.network.routing import Router

if TYPE_CHECKING:
    from simulator.collectives.request import Strategy
    from simulator.plan.plan import Fragment
    from simulator.workload.collective import Collective

__all__ = ["Communicator"]

T = TypeVar("T")


class Communicator:
    """Ranks that exchange: rank i is the node ``ranks[i]`` of ``machine``, a GPU or a CPU.

    Routes, rings, trees and NCCL's channels are found when they are first asked for, whatever the sizes
    that are exchanged; groups that are a part of this one keep theirs here too.
    """

    def __init__(self, machine: Machine, ranks: Sequence[int], router: Router | None = None) -> None:
        self.machine = machine
        self.ranks = tuple(ranks)
        self.router = router or Router(machine)
        self._found: dict[Hashable, object] = {}

    @property
    def n_ranks(self) -> int:
        """How many take part."""
        return len(self.ranks)

    @property
    def nominal(self) -> Communicator:
        """The same ranks as links say what they carry, whatever they give; itself where they give that."""
        machine = self.machine.nominal
        if machine is None:
            return self
        router = self.router.once("nominal", lambda: Router(machine))
        return self.once("nominal", lambda: Communicator(machine, self.ranks, router))

    def by_host(self) -> dict[int, list[int]]:
        """Return the ranks (not nodes) by machine, in order."""
        return self.once("hosts", self._by_host)

    def _by_host(self) -> dict[int, list[int]]:
        hosts: dict[int, list[int]] = {}
        for rank, node in enumerate(self.ranks):
            hosts.setdefault(self.machine.locate(node)[1], []).append(rank)
        return hosts

    def unlike(self) -> list[Node]:
        """Return one of its nodes for each place in each sort of machine: all others have its part and kind."""
        return self.once("unlike", lambda: self.machine.unlike(self.ranks))

    def nodes_along(self, order: Sequence[int]) -> tuple[int, ...]:
        """Return the nodes of the ranks in *order*, which is kept; found once for one object."""
        return self.once(("along", id(order)), lambda: (order, tuple([self.ranks[rank] for rank in order])))[1]

    def equal_hosts(self) -> list[int]:
        """Return its machines, in order, where there are several, all equal, and the same of each take part.

        No machine where they differ, or ranks do not stand machine by machine in order.
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
        """Return the group of some of its *ranks*, renumbered from 0; the same one each time."""
        nodes = tuple(self.ranks[rank] for rank in ranks)
        return self.once(("part", nodes), lambda: Communicator(self.machine, nodes, self.router))

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what *find* returned when *key* was first asked for."""
        if key not in self._found:
            self._found[key] = find()
        return cast(T, self._found[key])

    def collective(
        self, op: Collective, size_bytes: float, strategy: str | Strategy = "nccl", *, loads_on: Sequence[int] = ()
    ) -> Fragment:
        """Return the collective *op* of *size_bytes* as a part of a larger plan; the same one each time.

        *op*, *size_bytes*: as nccl-tests counts them (:mod:`simulator.workload.collective`).
        *strategy*: how it is done, by name or as an object.
        *loads_on*: the GPUs whose multiprocessors and memory it takes from what they compute; links are always loaded.

        Raises Unsuitable where the strategy does not fit.
        """
        from simulator.collectives.fragment import fragment_of

        key = ("collective", op, size_bytes, strategy, tuple(loads_on))
        return self.once(key, lambda: fragment_of([self], op, size_bytes, strategy, loads_on))
