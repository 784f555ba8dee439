"""The placement of a layout's ranks, and the groups that exchange: :class:`Placement`."""

from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import product

from simulator.collectives.communicator import Communicator, ConcurrentGroups
from simulator.questions.layout import Axis, Layout
from simulator.records import lists_by_key
from simulator.training.schedules import schedule_of

Coordinates = dict[Axis, int]
_Parts = Callable[[list[int]], list[list[int]]]


class Placement:
    """The ranks of *group* at their coordinates in *layout*, whose degrees are all known (:meth:`Layout.on`)."""

    def __init__(self, group: Communicator, layout: Layout) -> None:
        self.group = group
        self.layout = layout
        self._degrees: Coordinates = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp or 1, "pp": layout.pp}
        self._stride: Coordinates = {}
        stride = 1
        for axis in layout.order:
            self._stride[axis] = stride
            stride *= self._degrees[axis]

    def rank(self, *, tp: int = 0, cp: int = 0, dp: int = 0, pp: int = 0) -> int:
        """Return the rank at the given coordinates."""
        stride = self._stride
        return tp * stride["tp"] + cp * stride["cp"] + dp * stride["dp"] + pp * stride["pp"]

    def stage_ranks(self, stage: int) -> list[int]:
        """Return the ranks of one pipeline stage, in ascending order."""
        return sorted(self.rank(tp=t, cp=c, dp=d, pp=stage) for t, c, d in self._others("tp", "cp", "dp"))

    def layer_groups(
        self, axis: Axis, stage: int | None = None, *, part: str = "", parts: _Parts = lambda ranks: [ranks]
    ) -> list[ConcurrentGroups]:
        """Return the groups along *axis* (``tp``, ``cp`` or ``dp``) of one stage or of all, which exchange at once.

        *parts*: of each group, called *part*.
        """

        def find() -> list[ConcurrentGroups]:
            first = [rank for p in range(self.layout.pp) if stage in (None, p) for rank in self.stage_ranks(p)]
            stride, degree = self._stride[axis], self._degrees[axis]
            heads = [rank for rank in first if rank // stride % degree == 0]  # coordinate 0 along the axis
            groups = (list(range(head, head + degree * stride, stride)) for head in heads)
            return self._bundles([each for ranks in groups for each in parts(ranks)])

        return self._once(("layers", axis, stage, part), find)

    def expert_groups(self) -> list[ConcurrentGroups]:
        """Return the groups that divide a layer's experts: every ``etp``-th rank of a run of ranks."""
        each = self.layout.expert_tp
        return self._in_runs("experts", self.layout.expert_ranks, lambda run: [run[i::each] for i in range(each)])

    def split_expert_groups(self) -> list[ConcurrentGroups]:
        """Return the groups that split each expert: runs of ``etp`` ranks."""
        return self._in_runs("expert parts", self.layout.expert_tp, lambda run: [run])

    def _in_runs(self, key: str, size: int, parts: _Parts) -> list[ConcurrentGroups]:
        """Return *parts* of the ranks of each stage in runs of *size*, ordered by ``tp``, then ``cp``, then ``dp``."""
        runs = (run for stage in range(self.layout.pp) for run in _runs(self._in_order(stage), size))
        return self._once(key, lambda: self._bundles([part for run in runs for part in parts(run)]))

    def within_layers(self) -> dict[str, list[ConcurrentGroups]]:
        """Return the groups that exchange within layers, by axis."""
        layout, axes = self.layout, tuple[Axis, ...](("tp", "cp"))
        found = {str(axis): self.layer_groups(axis) for axis in axes if getattr(layout, axis) > 1}
        if 1 < (n := layout.cp_a2a) < layout.cp:
            found["cp"] = self.layer_groups("cp", part="rings", parts=lambda ranks: [ranks[i::n] for i in range(n)])
            found["cp heads"] = self.layer_groups("cp", part="heads", parts=lambda ranks: _runs(ranks, n))
        if layout.sync_bn and self._degrees["dp"] > 1:
            found["dp"] = self.layer_groups("dp")
        if layout.gathers_tokens:
            found["ep"] = self._in_runs("all of experts", layout.expert_ranks, lambda run: [run])
            return found
        if layout.ep > 1:
            found["ep"] = self.expert_groups()
        if layout.expert_tp > 1:
            found["etp"] = self.split_expert_groups()
        return found

    def data_groups(self, stage: int, *, experts: bool = False) -> list[ConcurrentGroups]:
        """Return the groups of one stage with the same parameters (with *experts*: the same experts)."""
        return self._of_same("data", stage, experts, lambda ranks, _: [ranks])

    def shard_groups(self, stage: int, *, experts: bool = False) -> list[ConcurrentGroups]:
        """Return the groups of one stage that hold one full set of shards (with *experts*: of the same experts)."""
        return self._of_same("shards", stage, experts, _runs)

    def replica_groups(self, stage: int, *, experts: bool = False) -> list[ConcurrentGroups]:
        """Return the groups of one stage with the same shard; single ranks if shards have no replicas."""
        return self._of_same("replicas", stage, experts, lambda ranks, n: [ranks[i::n] for i in range(n)])

    def _of_same(
        self, kind: str, stage: int, experts: bool, parts: Callable[[list[int], int], list[list[int]]]
    ) -> list[ConcurrentGroups]:
        """Return *parts* of all that share parameters, every ``tp``- or ``expert_ranks``-th, with their shards."""
        layout = self.layout
        step = layout.expert_ranks if experts else layout.tp
        size = layout.expert_shards if experts else layout.shards or 1

        def find() -> list[ConcurrentGroups]:
            ranks = self._in_order(stage)
            if schedule_of(layout).shape == "two-way":  # the opposite stage has its parts too
                ranks += self._in_order(layout.pp - 1 - stage)
            return self._bundles([part for i in range(step) for part in parts(ranks[i::step], size)])

        return self._once((kind, stage, experts), find)

    def stage_pairs(self, stage: int, other: int) -> list[ConcurrentGroups]:
        """Return the pairs of a rank of *stage* and the rank of the *other* stage that it sends to."""

        def find() -> list[ConcurrentGroups]:
            apart = (other - stage) * self._stride["pp"]
            here = (self.rank(tp=t, cp=c, dp=d, pp=stage) for t, c, d in self._others("tp", "cp", "dp"))
            return self._bundles([[rank, rank + apart] for rank in here])

        return self._once(("pairs", stage, other), find)

    def _in_order(self, stage: int) -> list[int]:
        """Return the ranks of one stage, ordered by ``tp``, then ``cp``, then ``dp``."""
        return [self.rank(tp=t, cp=c, dp=d, pp=stage) for d, c, t in self._others("dp", "cp", "tp")]

    def _others(self, *axes: Axis) -> Iterator[tuple[int, ...]]:
        return product(*(range(self._degrees[axis]) for axis in axes))

    def _once(self, key: Hashable, find: Callable[[], list[ConcurrentGroups]]) -> list[ConcurrentGroups]:
        return self.group.once((self.layout, key), find)

    def _bundles(self, groups: Sequence[Sequence[int]]) -> list[ConcurrentGroups]:
        """Return *groups* in bundles that share machines; of bundles with equivalent placements, only the first."""
        machine, nodes = self.group.machine, self.group.ranks
        # For each rank its machine, the first machine equal to that, and the index of its node there.
        places = self.group.once("places", lambda: [(h, run.first, own) for run, h, own in map(machine.locate, nodes)])
        hosts = [dict.fromkeys([places[rank][0] for rank in ranks]) for ranks in groups]
        leader: dict[int, int] = {}

        def root(host: int) -> int:
            while (known := leader.setdefault(host, host)) != host:
                leader[host] = leader[known]
                host = leader[host]
            return host

        for first, *others in dict.fromkeys(map(tuple, hosts)):
            leading = root(first)
            for host in others:
                leader[root(host)] = leading
        together = lists_by_key((root(next(iter(own))), ranks) for ranks, own in zip(groups, hosts, strict=True))
        alike: dict[Hashable, list[list[Sequence[int]]]] = {}
        for parts in together.values():  # by their placement, in which equal machines are interchangeable
            order: dict[int, int] = {}
            lies = [len(ranks) for ranks in parts]
            for rank in (rank for ranks in parts for rank in ranks):
                host, run, own = places[rank]
                lies += (order.setdefault(host, len(order)), run, own)
            # Bytes take a tenth of the memory of tuples: there may be a hundred thousand ranks.
            alike.setdefault(array("q", lies).tobytes(), []).append(parts)
        everyone = list(range(len(nodes)))
        return [
            ConcurrentGroups(
                [self.group if list(ranks) == everyone else self.group.part(ranks) for ranks in first],
                lie,
                [[nodes[rank] for ranks in parts for rank in ranks] for parts in others],
            )
            for lie, (first, *others) in alike.items()
        ]


def _runs(ranks: list[int], size: int) -> list[list[int]]:
    return [ranks[i : i + size] for i in range(0, len(ranks), size)]
