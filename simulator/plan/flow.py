"""What a flow carries, what limits it, and of equal flows the one for all (docs/decisions/engine.md)."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import NamedTuple

from simulator.network.machine import Machine
from simulator.network.route import MovableRoute, Route
from simulator.records import lists_by_key, replace, sums_by_key

Region = tuple[tuple[Fraction, Fraction], ...]
"""Intervals of the buffer, as (start, stop) fractions of it."""

WHOLE: Region = ((Fraction(0), Fraction(1)),)


class FlowData(NamedTuple):
    """The data of one flow; the receiver adds it if ``reduce``, and stores it otherwise."""

    region: Region
    reduce: bool = False


Carries = Callable[[int], Sequence[FlowData]]
"""Returns the data of each flow, in the order of the activity's flows, given the repetition (from 0)."""


def block(number: int, count: int) -> Region:
    """Return part *number* (from 0) of *count* equal parts of the buffer."""
    return ((Fraction(number, count), Fraction(number + 1, count)),)


def joined_regions(regions: Iterable[Region]) -> Region:
    """Return the intervals of all *regions*, in order; adjacent ones are merged."""
    found: list[tuple[Fraction, Fraction]] = []
    for start, stop in (stretch for region in regions for stretch in region):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def cut(region: Region, start: Fraction, stop: Fraction) -> Region:
    """Return the part of *region* between the fractions *start* and *stop* of its total length."""
    whole = sum((b - a for a, b in region), Fraction(0))
    low, high = start * whole, stop * whole
    found, passed = [], Fraction(0)
    for a, b in region:
        first, last = max(low - passed, Fraction(0)), min(high - passed, b - a)
        if first < last:
            found.append((a + first, a + last))
        passed += b - a
    return tuple(found)


def together(carries: Sequence[Carries | None]) -> Carries | None:
    """Return the data of several activities merged into one, in order; None if any of them is unknown."""
    known = [each for each in carries if each is not None]
    if len(known) < len(carries):
        return None
    return lambda repetition: [carried for each in known for carried in each(repetition)]


_NOTHING: Mapping[int, float] = {}


class LinkLimit(NamedTuple):
    """Seconds that a link on ``resource`` takes at least: ``fixed_s``, and ``full_s`` at its rate ``rate_Bps``."""

    resource: int
    fixed_s: float
    full_s: float
    rate_Bps: float

    def seconds(self, lost_Bps: Mapping[int, float]) -> float:
        """Return its seconds with *lost_Bps* less; 0 for a link that gives nothing, which stops what waits for it."""
        lost = lost_Bps.get(self.resource)
        if lost is None:
            return self.fixed_s + self.full_s
        left_Bps = self.rate_Bps - lost
        return self.fixed_s + self.full_s * self.rate_Bps / left_Bps if left_Bps > 0.0 else 0.0


class Filling(NamedTuple):
    """The seconds in which first chunks fill a pipeline: ``share`` of the slowest link's, of equal ones by host."""

    share: float
    links: tuple[tuple[LinkLimit, int, Sequence[int]], ...]

    def seconds(self, lost_Bps: Mapping[int, float]) -> float:
        """Return the seconds that it takes when capacities give *lost_Bps* less."""
        longest_s = 0.0
        for limit, stride, hosts in self.links:
            slowed = 0
            for resource in lost_Bps:
                host, off = divmod(resource - limit.resource, stride) if stride else (0, resource - limit.resource)
                if not off and hosts[0] + host in hosts:
                    slowed += 1
                    longest_s = max(longest_s, limit._replace(resource=resource).seconds(lost_Bps))
            if slowed < len(hosts):
                longest_s = max(longest_s, limit.seconds(_NOTHING))
        return self.share * longest_s


class FlowLimits(NamedTuple):
    """Limits of a flow of ``wire_bytes`` in all rounds: its own rate, and each of ``links``, ``filling`` longer."""

    own_Bps: float
    wire_bytes: float
    links: tuple[LinkLimit, ...]
    filling: Filling = Filling(0.0, ())

    def cap_Bps(self, lost_Bps: Mapping[int, float]) -> float:  # noqa: N802  units keep their case
        """Return the largest rate while resources give *lost_Bps* less than they have, in B/s."""
        longest_s = max((limit.seconds(lost_Bps) for limit in self.links), default=0.0)
        longest_s += self.filling.seconds(lost_Bps)
        return min(self.own_Bps, self.wire_bytes / longest_s) if longest_s > 0.0 else self.own_Bps


class Pairs(Sequence[tuple[int, int]]):
    """The ordered pairs of different *sources* and *targets*, made on demand; the two are equal or disjoint."""

    def __init__(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self.sources, self.targets, self._same = sources, targets, tuple(sources) == tuple(targets)

    def __len__(self) -> int:
        return len(self.sources) * (len(self.targets) - self._same)

    def __getitem__(self, at: int) -> tuple[int, int]:  # type: ignore[override]  # nobody slices
        source, target = divmod(range(len(self))[at], len(self.targets) - self._same)
        return self.sources[source], self.targets[target + (self._same and target >= source)]

    def ends(self) -> Iterator[tuple[int, int, int]]:
        """Yield (host, end, number of pairs with that end there)."""
        for end, (own, others) in enumerate(((self.sources, self.targets), (self.targets, self.sources))):
            for host in own:
                yield host, end, len(others) - self._same


class PairGroup:
    """Pairs, of machines or of twins, between which equal flows go; flows inside a machine have it as both ends."""

    __slots__ = ("number", "pairs", "sites")

    def __init__(self, sites: "Alike", number: int, pairs: Sequence[tuple[int, int]]) -> None:
        self.sites, self.number, self.pairs = sites, number, pairs

    def ends(self) -> Iterator[tuple[int, int, int]]:
        """Yield (host, end, number of flows there); end 0 is a flow's source, end 1 its target."""
        if isinstance(self.pairs, Pairs):
            return self.pairs.ends()
        return ((host, end, 1) for pair in self.pairs for end, host in enumerate(pair))


class HostRole(NamedTuple):
    """Equal *hosts*, in order, and each one's flows, counted by (number of the way, end: 0 source, 1 target)."""

    hosts: Sequence[int]
    counts: dict[tuple[int, int], int]


class Load(NamedTuple):
    """A flow's load on link or resource ``number``: ``share`` of its bytes, by ``keys`` (a role's, number of flows)."""

    number: int
    share: float
    keys: Sequence[tuple[int, int]]


def added(total: float, amount: float, times: int) -> float:
    """Return *total* with *amount* added *times* times, for up to 1,024 with the rounding of repeated additions."""
    if times > 1024:
        return total + amount * times
    for _ in range(times):
        total += amount
    return total


class Sites:
    """Equal machines and ways between them; a key is a number on the first plus the role's index times all numbers."""

    def __init__(self, machine: Machine, ways: Sequence[Sequence[tuple[int, int]]]) -> None:
        self.machine = machine
        self.ways = tuple(PairGroup(self, number, pairs) for number, pairs in enumerate(ways))
        self._first = machine.run(ways[0][0][0]).first
        self._copied = cache(partial(MovableRoute, machine))  # routes in a form that can be moved to other machines

    @cached_property
    def roles(self) -> tuple[HostRole, ...]:
        """The distinct roles of the machines."""
        played = lists_by_key((host, ((way.number, end), n)) for way in self.ways for host, end, n in way.ends())
        alike = lists_by_key((frozenset(sums_by_key(played[host]).items()), host) for host in sorted(played))
        return tuple(HostRole(hosts, dict(counts)) for counts, hosts in alike.items())

    @cached_property
    def _number_of(self) -> dict[int, int]:
        return {host: number for number, role in enumerate(self.roles) for host in role.hosts}

    @cached_property
    def _playing(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """By (way, end): (index of a role, number of flows) for each role with such flows."""
        counts = ((number, each) for number, role in enumerate(self.roles) for each in role.counts.items())
        return lists_by_key((at, (number, count)) for number, (at, count) in counts)

    def loads(self, route: Route, way: PairGroup, *, of_links: bool) -> Iterator[Load]:
        """Yield the loads of the flows on *way*, given the *route* of one of them."""
        copied = self._copied(route)
        n = len(self.machine.links if of_links else self.machine.capacity_Bps)
        for number, end, stride, share in copied.links if of_links else copied.loads:
            if not stride:
                yield Load(number, share, ((number, len(way.pairs)),))
                continue
            on_first = number - (copied.hosts[end] - self._first) * stride
            keys = [(role * n + on_first, count) for role, count in self._playing[way.number, end]]
            yield Load(number, share, keys)

    @property
    def is_uniform(self) -> bool:
        """Whether all machines have the same role."""
        return len(self.roles) == 1

    def apart(self, route: Route, way: PairGroup) -> Iterator[Route]:
        """Yield the routes of the flows on *way*, given the *route* of one of them."""
        copied = self._copied(route)
        return (copied.at(*pair) for pair in way.pairs)

    def ends(self, route: Route, way: PairGroup) -> dict[Hashable, int]:
        """Return how many of the flows on *way* start or end at a node, by its :meth:`place`; *route* is of one."""
        own = [self.machine.locate(node)[2] for node in (route.src, route.dst)]
        playing = ((end, each) for end in (0, 1) for each in self._playing.get((way.number, end), ()))
        return sums_by_key(((own[end], role), count) for end, (role, count) in playing)

    def place(self, node: int) -> Hashable:
        """Return the index of *node* within its host, and the number of the host's role."""
        _, host, own = self.machine.locate(node)
        return own, self._number_of.get(host, -1)

    def spread(self, key: int, *, of_links: bool) -> tuple[int, int, Sequence[int]]:
        """Return the links or resources that *key* represents: (number on host 0, stride, hosts)."""
        copies = self.machine.link_copies if of_links else self.machine.resource_copies
        role, number = divmod(key, len(copies))
        stride = copies.stride(number)
        return (number - self._first * stride, stride, self.roles[role].hosts) if stride else (number, 0, (0,))


class Twins:
    """Sets of twins of *machine*, which may be exchanged, so that flows between sets have equal rates."""

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
        self.ways = tuple(PairGroup(self, number, each) for number, each in enumerate(pairs))

    def _own(self, node: int, of_links: bool) -> list[int]:
        """Return the links of *node* or, if not *of_links*, their resources: each way out followed by the way in."""
        links = [each for link in self._machine.outgoing[node] for each in (link, self._machine.reverse(link))]
        return [link.index if of_links else link.resource for link in links]

    def loads(self, route: Route, way: PairGroup, *, of_links: bool) -> Iterator[Load]:
        """Yield the loads of the flows on *way*, given the *route* of one of them."""
        assert isinstance(way.pairs, Pairs)
        n = len(way.pairs)
        ends = (route.src, way.pairs.sources), (route.dst, way.pairs.targets)
        times = {number: n // len(twins) for node, twins in ends for number in self._own(node, of_links)}
        found: dict[int, Load] = {}
        for number, share in route.links if of_links else route.loads:
            key = self._first[of_links].get(number, number)
            also = found[key].share if key in found else 0.0  # the same half-duplex link at both ends
            found[key] = Load(number, share + also, ((key, times.get(number, n)),))
        yield from found.values()

    def apart(self, route: Route, way: PairGroup) -> Iterator[Route]:
        """Yield the routes of the flows on *way*, given the *route* of one of them."""
        for src, dst in way.pairs:
            shares = []
            for of_links, given in ((True, route.links), (False, route.loads)):
                own = dict(zip(self._own(route.src, of_links), self._own(src, of_links), strict=True))
                own |= zip(self._own(route.dst, of_links), self._own(dst, of_links), strict=True)
                shares.append(tuple(sorted((own.get(number, number), share) for number, share in given)))
            yield replace(route, src=src, dst=dst, links=shares[0], loads=shares[1])

    def ends(self, route: Route, way: PairGroup) -> dict[Hashable, int]:  # noqa: ARG002  the same for all routes
        """Return how many of the flows on *way* start or end at a node, by its :meth:`place`; *route* is of one."""
        at = sums_by_key((node, times) for node, _, times in way.ends())
        return {self.place(node): times for node, times in at.items()}

    def place(self, node: int) -> int:
        """Return the number of the set of *node*; -1 if it is in none."""
        return self._set_of.get(node, -1)

    def spread(self, key: int, *, of_links: bool) -> tuple[int, int, Sequence[int]]:
        """Return the links or resources that *key* represents: (0, 1, their numbers)."""
        return 0, 1, self._alike[of_links].get(key, (key,))


Alike = Sites | Twins
"""Places between which equal flows go, and what one flow's route says of those that it represents on a way."""


def first_link(sites: Alike, link_key: int) -> int:
    """Return the first link that *link_key* of *sites* represents."""
    zero, stride, hosts = sites.spread(link_key, of_links=True)
    return zero + hosts[0] * stride
