"""Equal flows between twins, of which one represents all: :class:`Twins`.

Twins are nodes with equal links to the same neighbour and no others, such as the hosts below one switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.network.machine import Machine
from simulator.network.route import Route
from simulator.plan.alike import Load, Pairs, Way


class Twins:
    """Sets of twins of *machine*, with a way from each set to each.

    Exchanging twins maps the machine to itself.  So where flows go from all of a set to all of another, or of the same
    set, all of them have the same rate under max-min fairness, and the links of a set have equal loads.  A key is the
    number of a link or resource of the set's first twin, or of one that is not a twin's.
    """

    is_uniform = True

    def __init__(self, machine: Machine, sets: Sequence[Sequence[int]]) -> None:
        self._machine = machine
        self._set_of = {node: number for number, nodes in enumerate(sets) for node in nodes}
        self._alike: dict[bool, dict[int, list[int]]] = {True: {}, False: {}}  # by a number of the first twin
        for nodes in sets:
            for of_links, found in self._alike.items():
                for numbers in zip(*(self._own(node, of_links) for node in nodes), strict=True):
                    found[numbers[0]] = list(numbers)
        self._first = {
            of_links: {number: first for first, numbers in found.items() for number in numbers}
            for of_links, found in self._alike.items()
        }
        pairs = [Pairs(here, there) for here in sets for there in sets if here is not there or len(here) > 1]
        self.ways = tuple(Way(self, number, each) for number, each in enumerate(pairs))

    def _own(self, node: int, of_links: bool) -> list[int]:
        """Return the links of *node* or, if not *of_links*, their resources: each way out followed by the way in."""
        links = [each for link in self._machine.outgoing[node] for each in (link, self._machine.reverse(link))]
        return [link.index if of_links else link.resource for link in links]

    def loads(self, route: Route, way: Way, *, of_links: bool) -> Iterator[Load]:
        """Yield the loads of the flows on *way*, given the *route* of one of them."""
        assert isinstance(way.pairs, Pairs)
        n = len(way.pairs)
        times = {
            number: n // len(twins)
            for node, twins in ((route.src, way.pairs.sources), (route.dst, way.pairs.targets))
            for number in self._own(node, of_links)
        }
        found: dict[int, Load] = {}
        for number, share in route.links if of_links else route.loads:
            key = self._first[of_links].get(number, number)
            also = found[key].share if key in found else 0.0  # the same half-duplex link at both ends
            found[key] = Load(number, share + also, ((key, times.get(number, n)),))
        yield from found.values()

    def crosses(self, route: Route, way: Way, link: int) -> bool:
        """Return whether any of the flows on *way* crosses *link*, given the *route* of one of them."""
        first = self._first[True].get(link, link)
        return any(key == first for load in self.loads(route, way, of_links=True) for key, _ in load.keys)

    def apart(self, route: Route, way: Way) -> Iterator[Route]:
        """Yield the routes of the flows on *way*, given the *route* of one of them."""
        for src, dst in way.pairs:
            shares = []
            for of_links, given in ((True, route.links), (False, route.loads)):
                own = dict(zip(self._own(route.src, of_links), self._own(src, of_links), strict=True))
                own |= zip(self._own(route.dst, of_links), self._own(dst, of_links), strict=True)
                shares.append(tuple(sorted((own.get(number, number), share) for number, share in given)))
            yield replace(route, src=src, dst=dst, links=shares[0], loads=shares[1])

    def times_at(self, route: Route, way: Way, node: int) -> int:  # noqa: ARG002  the same for all routes
        """Return how many of the flows on *way* start or end at *node*."""
        return sum(times for own, _, times in way.ends() if own == node)

    def place(self, node: int) -> int:
        """Return the number of the set of *node*; -1 if it is in none."""
        return self._set_of.get(node, -1)

    def first_of(self, link_key: int) -> int:
        """Return *link_key*: keys are numbers."""
        return link_key

    def spread(self, key: int, *, of_links: bool) -> tuple[int, int, Sequence[int]]:
        """Return the links or resources that *key* represents: (0, 1, their numbers)."""
        return 0, 1, self._alike[of_links].get(key, (key,))
