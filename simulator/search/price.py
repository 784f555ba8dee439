"""Step times of candidates, in closed form from their parts (docs/decisions/engine.md): :class:`Pricer`."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial

from simulator.api.session import Session
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError, spelt
from simulator.kept import Kept
from simulator.questions.layout import Layout
from simulator.questions.options import Recompute
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.search.parts import CollectiveTimes, RankWork, UnitCost, balanced, units_apart
from simulator.search.space import Candidate, Space
from simulator.step.precision import gradient_bytes, parameter_bytes, storage_of
from simulator.training.data_parallel import bucket_size
from simulator.training.memory import communication_bytes, held_memory
from simulator.training.placement import Placement
from simulator.training.roles import slowest_of
from simulator.training.schedules import chunks_of, in_flight, part_count, schedule_of, stage_parts
from simulator.workload.precision import ELEMENT_BYTES

Priced = tuple[Candidate, float, float]
"""A feasible candidate, its step time in seconds, and the memory that it needs in bytes."""
MEMORY = "memory"
_UNEVEN = "samples do not share out evenly"
_TURNS = "micro-batches not divisible by virtual stages"
_EXPLICIT = 3  # micro-batches that are followed one by one; all further ones take as long as the last of them
_PIECES = 8  # most pieces into which a pipeline's gradients are cut during its last backward pass


class Pricer:
    """Prices the candidates of *space*; intermediate results are shared among them."""

    def __init__(self, space: Space, session: Session) -> None:
        self.space = space
        self.session = session
        question = space.question
        machine = session.machine(question.where)
        self.group = session.group(question.where, question.gpus)
        ranks, places = self.group.ranks, session.places(question.where, question.software)
        self._part_of = [machine.nodes[node].part_name for node in ranks]
        devices = {
            part: places.place(node).device for part, node in dict(zip(self._part_of, ranks, strict=True)).items()
        }
        self.device = devices[self._part_of[0]]
        self._most_bytes = max(device.memory_bytes for device in devices.values())  # a stage may have the roomiest
        self.exchanges = CollectiveTimes(session, question, machine)
        self.network = session.network(replace(question, batch=1))
        self._placement = cache(partial(Placement, self.group))
        self._apart = cache(partial(units_apart, self.network))  # the units in each of so many chunks
        self._kept = Kept()

    @cached_property
    def unit_count(self) -> int:
        """Number of blocks of the network, or of layers where none repeat."""
        return RankWork(self.session, replace(self.space.question, batch=1), self.group).short.unit_count

    def outcome(self, division: Layout) -> tuple[list[Priced], Counter[str], tuple[float, str] | None]:
        """Return the feasible candidates with *division*, the others' counts by reason, and the nearest in words."""
        found: list[Priced] = []
        infeasible: Counter[str] = Counter()
        layouts = list(self.space.layouts(division, self.unit_count))
        too_large: list[tuple[float, str]] = []
        for recompute in self.space.recomputes(self.network):
            full = False  # once set, no larger micro-batch fits
            for size in self.space.micro_sizes():
                ways: list[Candidate] = []
                for layout in layouts:
                    count, rest = divmod(self.space.global_batch, (layout.dp or 1) * size)
                    if count and rest:
                        infeasible[_UNEVEN] += 1
                    elif count and layout.vp > 1 and count % layout.pp:
                        infeasible[_TURNS] += 1
                    elif count:
                        ways.append(Candidate(layout, size, count, recompute))
                if not ways or full:
                    infeasible[MEMORY] += len(ways)
                    continue
                asked = self.space.laid_out(division, batch=size, options=self.space.options(recompute))
                try:
                    fitting = self._priced(RankWork(self.session, asked, self.group), ways, infeasible, too_large)
                except (InputError, Unsuitable) as error:
                    infeasible[_reason(error)] += len(ways)
                    continue
                found += fitting
                full = not fitting
            try:
                for way, time_s, n_bytes in self._divided(layouts, recompute):
                    if n_bytes <= self._most_bytes:
                        found.append((way, time_s, n_bytes))
                    else:
                        too_large.append((n_bytes, way.words))
            except (InputError, Unsuitable) as error:
                infeasible[_reason(error)] += 1
        infeasible[MEMORY] += len(too_large)
        return found, +infeasible, min(too_large, default=None)

    def _priced(
        self, part: RankWork, ways: list[Candidate], infeasible: Counter[str], too_large: list[tuple[float, str]]
    ) -> list[Priced]:
        part.network  # noqa: B018  raises where the network cannot be divided
        found = []
        for asked in ways:
            try:
                for way in (asked, *self._balanced(part, asked)):
                    n_bytes = self._memory_bytes(part, way)
                    if n_bytes > self._most_bytes:
                        too_large.append((n_bytes, way.words))
                    else:
                        found.append((way, self._step_s(part, way), n_bytes))
            except (InputError, Unsuitable) as error:
                infeasible[_reason(error)] += 1
        return found

    def _balanced(self, part: RankWork, way: Candidate) -> list[Candidate]:
        """Return *way* with as many blocks in each part as make the stages take about as long, if that is faster."""
        layout, n_parts = way.layout, part_count(way.layout)
        costs = part.costs
        if layout.pp == 1 or layout.blocks or len(costs) < 3:
            return []
        first_s, block_s, last_s = (costs[unit].pass_s for unit in (0, len(costs) // 2, -1))
        even = [len(units) for units in self._apart(n_parts, ())]
        ends_s = first_s - block_s, last_s - block_s
        blocks = balanced(layout, even, block_s, ends_s, self._paces(part, layout))
        return [replace(way, layout=replace(layout, blocks=blocks))] if blocks else []

    def _paces(self, part: RankWork, layout: Layout) -> list[float]:
        """Return how many times as long as the first rank's the slowest device of each stage takes."""
        times_s = self._pass_s(part)
        if len(times_s) == 1:
            return [1.0] * layout.pp
        first_s = times_s[self._part_of[0]]
        placement = self._placement(_alike(layout))
        stages = [{self._part_of[rank] for rank in placement.stage_ranks(stage)} for stage in range(layout.pp)]
        return [max(times_s[name] / first_s for name in stage) for stage in stages]

    def _pass_s(self, part: RankWork) -> dict[str, float]:
        """Return the seconds of both passes of a block on each sort of device; 1 where there is one sort."""
        names = dict.fromkeys(self._part_of)

        def pass_s(name: str) -> float:
            own = RankWork(part.session, part.question, part.group, self._part_of.index(name))
            return own.costs[len(own.costs) // 2].pass_s

        if len(names) == 1:
            return dict.fromkeys(names, 1.0)
        return {name: part.kept.once(("pass", name), partial(pass_s, name)) for name in names}

    def _divided(self, layouts: Sequence[Layout], recompute: Recompute) -> list[Priced]:
        """Return whole replicas on unlike devices that finish together, each with samples by its speed; none if alike.

        The time is that of the fastest device with its share, which fills its memory most.
        """
        count, space = self.group.n_ranks, self.space
        size, options = space.global_batch // count, space.options(recompute)
        if len(set(self._part_of)) == 1 or not size or space.micro_batch or Layout().on(count) not in layouts:
            return []
        asked = space.laid_out(Layout(), batch=size, options=options)
        times_s = self._pass_s(RankWork(self.session, asked, self.group))
        rates = Counter({name: n / times_s[name] for name, n in Counter(self._part_of).items()})
        fastest = min(times_s, key=lambda name: (times_s[name], name))
        most = math.ceil(space.global_batch / (times_s[fastest] * rates.total()))
        asked = space.laid_out(Layout(), batch=most, options=options)
        own = RankWork(self.session, asked, self.group, self._part_of.index(fastest))
        way = Candidate(Layout().on(count), most, 1, recompute)
        n_bytes, time_s = self._memory_bytes(own, way), self._step_s(own, way, [1.0])
        return [(replace(way, micro_batch=size, divided=True), time_s, n_bytes)]

    def _memory_bytes(self, part: RankWork, way: Candidate) -> float:
        layout = way.layout
        most = 0.0
        ends = {0, min(1, layout.pp - 1), layout.pp - 1}  # of stages with as many blocks, others are like the second
        for stage in range(layout.pp) if layout.blocks else sorted(ends):
            units, saved = self._units(layout, stage), tuple[float, ...]()
            if schedule_of(layout).chunks or layout.blocks:
                chunks = map(part.held, self._chunks(layout, stage))
                saved = tuple(float(held.moments[0].activations_bytes) for held in chunks)
            flying = in_flight(layout, stage, way.micro_batches, saved)
            asked = replace(part.question, micro_batches=way.micro_batches)
            need = held_memory(part.held(units), part.gathered(layout), asked, self.device, layout, flying)
            most = max(most, need.total_bytes)
        # NCCL's algorithms are those that it chooses for the first micro-batch tried.
        whole = replace(layout, vp=1, blocks=())
        count = partial(communication_bytes, self._placement(whole), part.question, part.network)
        return most + self._kept.once(whole, count)

    def _chunks(self, layout: Layout, stage: int) -> list[range]:
        parts = self._apart(part_count(layout), layout.blocks)
        return [parts[part] for part in stage_parts(layout, stage)]

    def _units(self, layout: Layout, stage: int) -> list[int]:
        return [unit for chunk in self._chunks(layout, stage) for unit in chunk]

    def _step_s(self, part: RankWork, way: Candidate, known_paces: list[float] | None = None) -> float:
        layout, count = way.layout, way.micro_batches
        costs, paces = part.costs, known_paces or self._paces(part, layout)
        question, known = part.question, self.device.constants
        wide = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
        narrow = ELEMENT_BYTES[storage_of(question.options.precision)]
        if layout.zero == 3:
            return self._sharded_s(tuple(cost.paced(max(paces)) for cost in costs), way, question, narrow)
        units = [[costs[unit].paced(pace) for unit in self._units(layout, stage)] for stage, pace in enumerate(paces)]
        stages = [UnitCost(*map(sum, zip(*of_stage, strict=True))) for of_stage in units]  # all units of a stage
        pace = 1.0
        if layout.pp > 1 and question.contention:  # the slowest stage waits for the slowest of fewer ranks
            pace = slowest_of(self.group.n_ranks // layout.pp, known) / slowest_of(self.group.n_ranks, known)
        passes_s = [pace * (stage.forward_s + stage.backward_s) for stage in stages]
        if layout.pp > 1:
            elements = part.received_elements(self._apart(part_count(layout), layout.blocks)[1].start)
            sent_s = 2 * self._received_s(layout, elements * narrow)
            waited_s = sent_s if chunks_of(layout) == 1 else 0.0  # others overlap with the stage's other chunks
            passes_s = [pass_s + waited_s for pass_s in passes_s]
        slowest = max(range(layout.pp), key=lambda stage: passes_s[stage])
        fill_s = (sum(passes_s) - passes_s[slowest]) * schedule_of(layout).fill / layout.vp
        time_s = count * passes_s[slowest] + fill_s
        first = max(stages, key=lambda stage: stage.trained) if layout.blocks else stages[0]
        if layout.zero == 2:  # the gradients of each micro-batch are scattered, in buckets while the next one computes
            apart = first.trained_of_experts * wide  # among the replicas of experts
            scatter_s = self._exchange_s(layout, "shards", question.sum_of_shards, first.trained * wide - apart)
            scatter_s += self._exchange_s(layout, "shards", question.sum_of_shards, apart, experts=True)
            beside_s = passes_s[slowest] if question.bucket_bytes else 0.0
            time_s += (count - 1) * max(0.0, scatter_s - beside_s)
        time_s += self._exposed_s(layout, first, question, wide, gathers=False)
        if layout.zero:
            element = parameter_bytes(question.options.precision)
            time_s += self._exposed_s(layout, first, question, element, gathers=True)
        return time_s + max(_update_s(layout, stage) for stage in stages)

    def _exposed_s(
        self, layout: Layout, stage: UnitCost, question: StepQuestion, element: int, *, gathers: bool
    ) -> float:
        """Return the seconds of sums, or of what *gathers* parameters, that the last pass leaves exposed."""
        plain, experts = (stage.trained - stage.trained_of_experts) * element, stage.trained_of_experts * element
        pieces = 1
        if question.bucket_bytes:
            n_bytes = plain + experts if gathers else plain
            pieces = max(1, int(n_bytes // bucket_size(question, layout, element)))
            pieces = min(_PIECES, pieces) if layout.pp > 1 else pieces
        gather_s = partial(self._exchange_s, layout, "shards", "all-gather")
        exchange_s: Callable[..., float] = gather_s if gathers else partial(self._sum_s, question, layout)
        each_s = exchange_s(plain / pieces) + exchange_s(experts / pieces, experts=True)
        beside_s = stage.forward_s if gathers else stage.backward_s
        return max(each_s, pieces * each_s - beside_s * (pieces - 1) / pieces)

    def _sharded_s(self, costs: tuple[UnitCost, ...], way: Candidate, question: StepQuestion, element: int) -> float:
        """Return seconds of a step that gathers units one ahead, as in :mod:`simulator.training.sharded`."""
        layout = way.layout
        units = [(cost, *self._exchanges_s(cost, layout, question, element)) for cost in costs]
        alone = question.options.framework == "deepspeed-zero3" and not question.prefetches
        passes = [(unit, False) for unit in units] + [(unit, True) for unit in reversed(units)]
        end_s = exchanged_s = 0.0  # ends of computation and of exchanges
        before_s = batch_s = 0.0
        explicit = min(way.micro_batches, _EXPLICIT)
        for number in range(explicit):
            before_s = end_s
            last = number == explicit - 1
            exchanged_s = gathered_s = max(end_s, exchanged_s) + units[0][1]
            for place, ((cost, _, scatter_s, sum_s), backward) in enumerate(passes):
                following_s = passes[place + 1][0][1] if place + 1 < len(passes) else 0.0
                following_s *= 2 if question.gathers_again and backward else 1
                ahead = question.prefetches or not (backward or alone)
                starts_s = end_s
                end_s = max(end_s, gathered_s) + (cost.backward_s if backward else cost.forward_s)
                if following_s:
                    exchanged_s = max(exchanged_s, starts_s if ahead else end_s) + following_s
                gathered_s = exchanged_s if following_s else 0.0
                if backward:
                    exchanged_s = max(exchanged_s, end_s) + scatter_s + (sum_s if last else 0.0)
                    gathered_s = max(gathered_s, exchanged_s if alone else 0.0)
            batch_s = end_s - before_s
        skipped_s = (way.micro_batches - explicit) * batch_s
        return skipped_s + max(end_s, exchanged_s) + sum(_update_s(layout, cost) for cost in costs)

    def _exchanges_s(
        self, cost: UnitCost, layout: Layout, question: StepQuestion, element: int
    ) -> tuple[float, float, float]:
        """Return the seconds to gather a unit, to scatter its gradients, and to sum them among replicas of shards."""
        summed = ELEMENT_BYTES["fp32"] if question.sums_in_fp32 else element
        gather_s = scatter_s = sum_s = 0.0
        for experts, elements, trained in (
            (False, cost.elements - cost.of_experts, cost.trained - cost.trained_of_experts),
            (True, cost.of_experts, cost.trained_of_experts),
        ):
            gather_s += self._exchange_s(layout, "shards", "all-gather", elements * element, experts=experts)
            scatter_s += self._exchange_s(layout, "shards", "reduce-scatter", trained * summed, experts=experts)
            sum_s += self._replicas_s(layout, trained * summed, experts=experts)
        return gather_s, scatter_s, sum_s

    def _sum_s(self, question: StepQuestion, layout: Layout, size_bytes: float, *, experts: bool = False) -> float:
        """Return the seconds to sum *size_bytes* of gradients; *experts*: those of experts, among their replicas."""
        if not layout.zero:
            return self._exchange_s(layout, "data", "all-reduce", size_bytes, experts=experts)
        scatter_s = self._exchange_s(layout, "shards", question.sum_of_shards, size_bytes, experts=experts)
        return scatter_s + self._replicas_s(layout, size_bytes, experts=experts)

    def _replicas_s(self, layout: Layout, size_bytes: float, *, experts: bool = False) -> float:
        """Return the seconds that ranks with the same shard of *size_bytes* of gradients need to sum it."""
        shards = layout.expert_shards if experts else layout.shards or 1
        return self._exchange_s(layout, "replicas", "all-reduce", size_bytes / shards, experts=experts)

    def _exchange_s(self, layout: Layout, which: str, op: str, size_bytes: float, *, experts: bool = False) -> float:
        """Return the seconds of *op* in all of the first stage's groups of one kind at once."""
        if not size_bytes:
            return 0.0
        among = replace(layout, sp=False, tp_overlap=False, vp=1, blocks=(), zero=min(1, layout.zero))

        def seconds() -> float:
            place = self._placement(among)
            find = {"data": place.data_groups, "shards": place.shard_groups, "replicas": place.replica_groups}[which]
            return self.exchanges.seconds(find(0, experts=experts), op, size_bytes)  # type: ignore[arg-type]

        return self._kept.once((among, which, experts, op, size_bytes), seconds)

    def _received_s(self, layout: Layout, size_bytes: float) -> float:
        alike = _alike(layout)

        def seconds() -> float:
            placement, tp = self._placement(alike), 1 if layout.sp else layout.tp
            sent_s = self.exchanges.seconds(placement.stage_pairs(0, 1), "send-recv", size_bytes / tp)
            gathered_s = 0.0
            if tp > 1:
                gathered_s = self.exchanges.seconds(placement.layer_groups("tp", 0), "all-gather", size_bytes)
            return sent_s + gathered_s

        return self._kept.once((alike, "next", size_bytes), seconds)


def _alike(layout: Layout) -> Layout:
    """Return *layout* without what does not change where its ranks are."""
    return replace(layout, vp=1, blocks=(), zero=0, shards=None)


def _update_s(layout: Layout, cost: UnitCost) -> float:
    sums = (layout.dp or 1) * layout.cp > 1
    kept_s = layout.kept_share(cost.trained, cost.trained_of_experts) * cost.update_s
    return kept_s + cost.over_all_s + (cost.over_summed_s if sums else 0.0)


def _reason(error: InputError | Unsuitable) -> str:
    message = error.faults[0].message if isinstance(error, InputError) else error.why
    axis = re.match(r"(\w+)=", spelt(message, "value").removeprefix(": "))
    return f"{axis[1]} does not divide the network" if axis else spelt(message, "command")
