"""Costs of the parts of a step: units, the memory they hold, exchanges (docs/decisions/engine.md)."""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import accumulate, groupby
from typing import NamedTuple

from simulator.api.session import Session
from simulator.collectives.communicator import Communicator, ConcurrentGroups
from simulator.engine.executor import alone, execute
from simulator.errors import refused
from simulator.kept import Kept
from simulator.network.machine import Machine
from simulator.questions.checks import changed
from simulator.questions.layout import Layout
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field, replace
from simulator.step.issue import launches_of
from simulator.step.launch import Part
from simulator.step.memory import NetworkMemory, held_in
from simulator.training import divided
from simulator.training.memory import gathered_elements
from simulator.training.pipeline import plan_chunk
from simulator.training.plan import SharedStep
from simulator.training.roles import Role
from simulator.training.schedules import paths_of
from simulator.workload import Collective
from simulator.workload.network import Layer, Network, block_name, network_key, once, unit_elements
from simulator.workload.split.experts import expert_parameters
from simulator.workload.split.stages import NetworkStage, stages_of, units_of

KEPT = 3  # equal blocks that are kept: the middle one has an equal block on either side
_GRID = 8.0  # exchanges are simulated at powers of this size and interpolated linearly
_Seconds = tuple[float, float, float, float, float]  # the first fields of a UnitCost
_BY_BLOCK = (  # what the memory of a network holds as often as blocks
    *("parameter_count", "trained_count", "state_bytes", "quantised", "packed", "packed_bytes"),
    *("of_experts", "trained_of_experts", "matrices"),
)


@dataclass(frozen=True, eq=False)
class ShortNetwork:
    """``network`` without ``left_out`` equal blocks; a unit is a block with what follows it, or a layer alone."""

    network: Network
    unit_count: int
    left_out: int

    def like(self, unit: int) -> int:
        """Return the unit of ``network`` that stands for *unit* of the whole: the middle one for repeated blocks."""
        return unit if not self.left_out or unit == 0 else KEPT + 1 if unit == self.unit_count - 1 else 2


@once
def shortened(network: Network) -> ShortNetwork:
    """Return *network* with three of the blocks between its first and its last, where all of those are alike."""
    units = units_of(network)
    middle = units[1:-1]
    if len(middle) <= KEPT or any(_shape(unit) != _shape(middle[0]) for unit in middle):
        return ShortNetwork(network, len(units), 0)
    # Outputs of omitted blocks, with the kept outputs that replace them.
    replaced = (pair for unit in middle[KEPT:] for pair in zip(unit, middle[KEPT - 1], strict=True))
    stands_for = {layer.output: other.output for layer, other in replaced}
    last = [replace(layer, inputs=tuple(stands_for.get(t, t) for t in layer.inputs)) for layer in units[-1]]
    layers = [layer for unit in (units[0], *middle[:KEPT], last) for layer in unit]
    return ShortNetwork(replace(network, layers=tuple(layers)), len(units), len(middle) - KEPT)


def _shape(unit: Sequence[Layer]) -> object:
    return [(layer.operator, [p.elements for p in layer.parameters], bool(block_name(layer.name))) for layer in unit]


def partial_network(network: Network, layers: Sequence[Layer]) -> Network:
    """Return some *layers* of *network* as a network of their own, whose inputs other layers may have written."""
    before = {layer.output for layer in network.layers} - {layer.output for layer in layers}
    read = {tensor for layer in layers for tensor in layer.inputs}
    return replace(network, layers=tuple(layers), trained_inputs=frozenset(read & before))


class UnitCost(NamedTuple):
    """Seconds of a unit in each part of a step, and its parameter counts."""

    forward_s: float
    backward_s: float
    update_s: float  # of a rank that keeps all state
    over_all_s: float  # passes before it over all gradients, whole in each rank
    over_summed_s: float  # passes where ranks sum theirs, whole too
    elements: int
    trained: int
    of_experts: int
    trained_of_experts: int

    @property
    def pass_s(self) -> float:
        """Seconds of both passes of a micro-batch."""
        return self.forward_s + self.backward_s

    def paced(self, pace: float) -> "UnitCost":
        """Return the cost on a device that takes *pace* times as long."""
        passes_s = pace * self.forward_s, pace * self.backward_s
        updates_s = pace * self.update_s, pace * self.over_all_s, pace * self.over_summed_s
        return UnitCost(*passes_s, *updates_s, *self[5:])


class CollectiveTimes:
    """Times of collectives by themselves, interpolated between simulated sizes."""

    def __init__(self, session: Session, question: StepQuestion, machine: Machine) -> None:
        self._machine = machine
        self._strategy = session.strategy(question)
        self._found = Kept()

    def seconds(self, bundles: Sequence[ConcurrentGroups], op: Collective, size_bytes: float) -> float:
        """Return the seconds of *op* of *size_bytes* in all of *bundles* at once; raises Unsuitable."""
        if size_bytes <= 0 or bundles[0].n_ranks == 1:
            return 0.0

        def alone_s(size: float) -> float:
            fragments = (bundle.collective(op, size, self._strategy) for bundle in bundles)
            return max(alone(self._machine, fragment).end_s for fragment in fragments)

        lie = tuple(bundle.lie for bundle in bundles)
        below = _GRID ** max(3, math.floor(math.log(size_bytes, _GRID)))
        ends = below, below * _GRID
        low_s, high_s = (self._found.once((lie, op, size), partial(alone_s, size)) for size in ends)
        share = max(0.0, (size_bytes - below) / (below * (_GRID - 1)))
        return low_s + share * (high_s - low_s)


@dataclass(frozen=True)
class RankWork:
    """*rank*'s part of a network in units, equal ones once; of *question*'s layout, ``tp cp ep sp`` count."""

    session: Session
    question: StepQuestion
    group: Communicator
    rank: int = 0
    kept: Kept = field(default_factory=Kept, init=False, compare=False, repr=False)

    @cached_property
    def short(self) -> ShortNetwork:
        """The undivided network with fewer of its equal blocks."""
        return shortened(self.session.network(self.question))

    @cached_property
    def network(self) -> Network:
        """The part of it that one rank computes; raises InputError where it cannot be divided."""
        return divided(self.short.network, self.question.layout)

    @cached_property
    def _units(self) -> tuple[NetworkStage, ...]:
        units = len(units_of(self.network))
        if units != len(units_of(self.short.network)):
            raise refused("layout", f"{self.network.name} has no repeated blocks: only dp and pp are searched")
        return stages_of(self.network, units)

    def received_elements(self, unit: int) -> int:
        """Return the elements that *unit* of the whole network reads from units before it."""
        return self._units[self.short.like(unit)].received_elements

    @cached_property
    def costs(self) -> tuple[UnitCost, ...]:
        """Costs of each unit of the whole network, equal blocks computed once; raises InputError or Unsuitable."""
        like = [self.short.like(unit) for unit in range(self.short.unit_count)]
        of = {unit: self._cost(self._units[unit].network) for unit in set(like)}
        return tuple(of[unit] for unit in like)

    def _cost(self, network: Network) -> UnitCost:
        found: list[_Seconds] = []
        for _, layers in groupby(network.layers, lambda layer: block_name(layer.name)):
            piece = partial_network(self.network, tuple(layers))
            found.append(self.kept.once(("seconds", network_key(piece)), partial(self._seconds, piece)))
        names = expert_parameters(network) if self.question.layout.has_experts_apart else frozenset()
        experts = [p for p in network.parameters if p.name in names]
        own = sum(unit_elements(network).values()), network.trained_count
        of_experts = sum(unit_elements(network, only=names).values()), sum(p.elements for p in experts if p.trained)
        return UnitCost._make((*map(sum, zip(*found, strict=True)), *own, *of_experts))

    def _seconds(self, network: Network) -> _Seconds:
        places = self.session.places(self.question.where, self.question.software)
        node = self.group.ranks[self.rank]
        place = places.place(node)
        role = Role(place, node, self.group.n_ranks, launches_of(place.device, network, self.question.options))
        layout = replace(self.question.layout, dp=None, pp=1, vp=1, zero=0, shards=None, schedule="1f1b")
        nccl = self.session.strategy(self.question, "nccl")
        shared = SharedStep(places, network, changed(self.question, layout=layout), self.group, nccl, nccl)

        def part_s(part: Part) -> float:
            launches = [issue for issue in role.issues if issue.part == part]
            return execute(places.machine, plan_chunk(shared, role, launches)).end_s

        def over_s(over: str) -> float:
            return sum(issue.device_s for issue in role.issues if issue.over == over)

        return part_s("forward"), part_s("backward"), part_s("update"), over_s("all"), over_s("summed")

    def gathered(self, layout: Layout) -> int:
        """Return the largest number of parameters gathered in full at once, where each rank holds a shard."""
        keeps_experts = layout.expert_shards == 1
        return self.kept.once(("gathered", keeps_experts), lambda: gathered_elements(self.network, layout))

    def held(self, units: Iterable[int]) -> NetworkMemory:
        """Return the memory of a rank that computes *units* of the whole network, given by number in order."""
        mine = tuple(units)
        if not self.short.left_out:
            return self._held(mine)
        first, last = mine[0] == 0, mine[-1] == self.short.unit_count - 1
        sample = (*((0,) if first else ()), *range(1, 1 + KEPT), *((KEPT + 1,) if last else ()))
        more = len(mine) - len(sample)
        return self.kept.once((sample, more), lambda: self._longer(sample, more)) if more else self._held(sample)

    def _longer(self, sample: tuple[int, ...], more: int) -> NetworkMemory:
        """Return :meth:`_held` of *sample* with *more* of the equal blocks."""
        held, three, two = self._held(sample), self._held((1, 2, 3)), self._held((1, 2))
        saved = casts = graded = 0.0
        if three.moments:
            saved = (three.moments[0].activations_bytes - two.moments[0].activations_bytes) * more
            casts = (three.moments[0].casts_bytes - two.moments[0].casts_bytes) * more
            graded = (three.moments[-1].gradients_bytes - two.moments[-1].gradients_bytes) * more
        half = len(held.moments) // 2
        early = [
            each._replace(activations_bytes=each.activations_bytes + saved, casts_bytes=each.casts_bytes + casts)
            for each in held.moments[:half]
        ]
        late = [each._replace(gradients_bytes=each.gradients_bytes + graded) for each in held.moments[half:]]
        whole = {name: getattr(held, name) + more * (getattr(three, name) - getattr(two, name)) for name in _BY_BLOCK}
        return replace(held, moments=(*early, *late), **whole)

    def _held(self, units: tuple[int, ...]) -> NetworkMemory:
        layers = (layer for unit in units for layer in self._units[unit].network.layers)
        whole = partial(partial_network, self.network)
        return self.kept.once(units, lambda: held_in(whole(list(layers)), self.question.options))


def units_apart(network: Network, count: int, blocks: tuple[int, ...] = ()) -> tuple[range, ...]:
    """Return the units of *network* in each of *count* parts; raises InputError where it has too few, or not *blocks*.

    The layers around all blocks belong to the first and the last of them, even where these parts have no blocks.
    """
    stages = stages_of(network, count, blocks)
    ends = list(accumulate(blocks or (len(units_of(stage.network)) for stage in stages)))
    return tuple(map(range, [0, *ends], ends))


_WORTH = 0.99  # of the time of the slowest stage, at most


def balanced(
    layout: Layout, even: Sequence[int], block_s: float, ends_s: tuple[float, float], paces: Sequence[float]
) -> tuple[int, ...]:
    """Return the blocks of each part of the pipeline of *layout*; none if *even* ones are as good.

    *block_s*: what a block takes; *ends_s*: what the first and the last one take besides, with the embedding and the
    logits; *paces*: how many times as long each stage's device takes.  Each next block goes to the stage that then ends
    first, which is the best division of equal blocks; every part has one at least.
    """
    path, count = paths_of(layout)[0], sum(even)
    if len(paths_of(layout)) > 1 or len(path) > count:
        return ()
    parts: list[list[int]] = [[] for _ in range(layout.pp)]
    for part, (stage, _) in enumerate(path):
        parts[stage].append(part)
    besides = [0.0] * layout.pp
    besides[path[0][0]] += ends_s[0]
    besides[path[-1][0]] += ends_s[1]

    def ends(stage: int, blocks: int) -> float:
        return paces[stage] * (besides[stage] + blocks * block_s)

    blocks = [len(each) for each in parts]
    for _ in range(count - sum(blocks)):
        blocks[min(range(layout.pp), key=lambda stage: (ends(stage, blocks[stage] + 1), stage))] += 1
    usual = [sum(even[part] for part in each) for each in parts]
    if max(map(ends, range(layout.pp), blocks)) > _WORTH * max(map(ends, range(layout.pp), usual)):
        return ()
    found = [0] * count
    for each, whole in zip(parts, blocks, strict=True):
        for place, part in enumerate(each):
            found[part] = whole // len(each) + (place < whole % len(each))
    return tuple(found[: len(path)])
