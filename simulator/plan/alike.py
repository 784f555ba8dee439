"""Flows that are alike on equal machines of a cluster: one stands for all of them (:class:`Way`, :class:`Sites`).

Which machine has how many of which flows makes its role.  What flows load is then counted role by role, in the same
order and with the same sums as machine by machine, so that the cost grows with the roles and not with the machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from simulator.network.machine import Machine
from simulator.network.route import Copied, Route

__all__ = ["Load", "Role", "Sites", "Way", "added"]


class Way:
    """Pairs of machines from one to the other of which flows alike go; one and itself where they stay inside."""

    __slots__ = ("number", "pairs", "sites")

    def __init__(self, sites: Sites, number: int, pairs: Sequence[tuple[int, int]]) -> None:
        self.sites = sites
        self.number = number
        self.pairs = pairs


class Role(NamedTuple):
    """Equal *hosts*, in order, and how many flows of each way begin (0) or end (1) at each of them."""

    hosts: Sequence[int]
    counts: dict[tuple[int, int], int]


class Load(NamedTuple):
    """What a flow with a *share* of its bytes loads: ``number`` on its own route, ``keys`` with how often, by role."""

    number: int
    share: float
    keys: Sequence[tuple[int, int]]


def added(total: float, amount: float, times: int) -> float:
    """Return *total* with *amount* added so many times, rounded as one addition after the other is."""
    for _ in range(times):
        total += amount
    return total


class Sites:
    """Equal machines of *machine*, and between which of them flows go, by ways.

    A key is a number of a link or resource on the first of the machines, plus as often as there are such numbers as
    the role counts.
    """

    def __init__(self, machine: Machine, ways: Sequence[Sequence[tuple[int, int]]]) -> None:
        self.machine = machine
        self.ways = tuple(Way(self, number, pairs) for number, pairs in enumerate(ways))
        self._first = machine.run(ways[0][0][0]).first
        self._copied: dict[Route, Copied] = {}

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """The roles of the machines, each of one or more."""
        found: dict[int, dict[tuple[int, int], int]] = {}
        for way in self.ways:
            out, into = (way.number, 0), (way.number, 1)
            for a, b in way.pairs:
                for host, end in ((a, out), (b, into)):
                    counts = found.setdefault(host, {})
                    counts[end] = counts.get(end, 0) + 1
        alike: dict[frozenset[tuple[tuple[int, int], int]], list[int]] = {}
        for host in sorted(found):
            alike.setdefault(frozenset(found[host].items()), []).append(host)
        return tuple(Role(hosts, dict(counts)) for counts, hosts in alike.items())

    @cached_property
    def _role_of(self) -> dict[int, Role]:
        return {host: role for role in self.roles for host in role.hosts}

    def role_of(self, host: int) -> Role:
        """Return the role that *host* plays; one of nothing where it takes no part."""
        return self._role_of.get(host, Role((), {}))

    @cached_property
    def _playing(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The roles that have flows of a way at an end, and how many."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, role in enumerate(self.roles):
            for at, count in role.counts.items():
                found.setdefault(at, []).append((number, count))
        return found

    def copied(self, route: Route) -> Copied:
        """Return *route* as what can be moved to other machines."""
        found = self._copied.get(route)
        if found is None:
            found = self._copied[route] = Copied(self.machine, route)
        return found

    def loads(self, route: Route, way: Way, *, of_links: bool) -> Iterator[Load]:
        """Yield what flows on *way* load that go as *route* does, which is that of one of them."""
        copied = self.copied(route)
        n = len(self.machine.links if of_links else self.machine.capacity_Bps)
        for number, end, stride, share in copied.links if of_links else copied.loads:
            if not stride:
                yield Load(number, share, ((number, len(way.pairs)),))
                continue
            on_first = number - (copied.hosts[end] - self._first) * stride
            keys = [(role * n + on_first, count) for role, count in self._playing[way.number, end]]
            yield Load(number, share, keys)

    def crosses(self, route: Route, way: Way, link: int) -> bool:
        """Return whether *link* is on one of the flows on *way* that go as *route* does."""
        copied = self.copied(route)
        for number, end, stride, _ in copied.links:
            host, off = divmod(link - number, stride) if stride else (0, link - number)
            if not off and (not stride or (way.number, end) in self.role_of(copied.hosts[end] + host).counts):
                return True
        return False

    def first_of(self, link_key: int) -> int:
        """Return the first link that *link_key* stands for."""
        zero, stride, hosts = self.spread(link_key, of_links=True)
        return zero + hosts[0] * stride

    def spread(self, key: int, *, of_links: bool) -> tuple[int, int, Sequence[int]]:
        """Return what *key* stands for: its number on a machine called 0, the stride, and the machines."""
        copies = self.machine.link_copies if of_links else self.machine.resource_copies
        role, number = divmod(key, len(copies))
        stride = copies.stride(number)
        return (number - self._first * stride, stride, self.roles[role].hosts) if stride else (number, 0, (0,))
