"""A step of a network whose layers are divided among pipeline stages."""

from collections.abc import Sequence
from functools import partial
from itertools import product

from simulator.api.context import refuse_passing
from simulator.collectives.communicator import ConcurrentGroups, Strategy
from simulator.engine.executor import alone, execute
from simulator.engine.timeline import Timeline
from simulator.errors import refused
from simulator.kept import Kept
from simulator.places import Places
from simulator.plan.plan import Fragment, Resource, Work
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, replace, sums_by_key
from simulator.results.ran import StreamUse, stream_uses
from simulator.results.training import StepAccount, exchanged_in, summing_s, tied_s_of
from simulator.step.issue import gradient_work, launches_of
from simulator.step.launch import Launch, Part
from simulator.step.precision import gradient_bytes, storage_of
from simulator.training.micro_batches import in_turns, put_off
from simulator.training.pipeline import Chunk, CollectivePrice, StageWork, plan_chunk, plan_pipeline
from simulator.training.placement import Placement
from simulator.training.plan import SharedStep
from simulator.training.roles import Role, check_stragglers, straggler_pace
from simulator.training.schedules import next_places, part_count, schedule_of, stage_parts
from simulator.training.worker import STREAM
from simulator.workload import Collective
from simulator.workload.network import Network, network_key
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.split.experts import expert_parameters
from simulator.workload.split.stages import joined_stages, stages_of

_Priced = tuple[Chunk, dict[str, StreamUse], tuple[tuple[Fragment, int], ...]]  # with its exchanges, and how often
_PASSES: tuple[Part, ...] = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A step's stages and timeline; by stage what each pass uses and ``exchanged``; the ``largest`` reduction."""

    stages: tuple[StageWork, ...]
    timeline: Timeline
    within: tuple[dict[str, StreamUse], ...]
    exchanged: tuple[tuple[tuple[Fragment, int], ...], ...]
    largest: Fragment | None

    def account(self, number: int, passing: int) -> StepAccount:
        """Return the account of stage *number*, each of whose chunks passes *passing* times."""
        prefix, within = f"stage {number}/", self.within[number]
        every = stream_uses(self.timeline).items()
        uses = {name.removeprefix(prefix): use for name, use in every if name.startswith(prefix)}
        compute = uses.get("compute", StreamUse())
        exposed_s = compute.waits_s.pop(f"{prefix}{STREAM}", 0.0)
        bubble_s = sum(compute.waits_s.values())
        summed_s = min(bubble_s + exposed_s, summing_s(self.timeline))
        bubble_s += exposed_s - summed_s
        if exposed_s:
            compute.waits_s[STREAM] = exposed_s
        exposed_s = 0.0
        for stream, use in within.items():  # within the passes of a micro-batch
            if stream == "host" or stream.endswith(STREAM):
                waited_s = passing * within["compute"].waits_s.get(stream, 0.0)
                compute.busy_s -= waited_s
                compute.waits_s[stream] = waited_s
                if stream != "host":
                    uses[stream] = StreamUse(passing * use.busy_s)
                    exposed_s += waited_s
        exposed_s += summed_s
        exchanging_s = max(exposed_s, sum(use.busy_s for stream, use in uses.items() if stream != "compute"))
        exchanges = [(part, passing * times) for part, times in self.exchanged[number]]
        if self.largest is not None:  # once for each reduction of the stage's gradients
            own = [task for task in self.timeline.plan.tasks if task.stream == f"{prefix}{STREAM}"]
            exchanges.append((self.largest, sum(task.label != "all-gather" for task in own)))
        sent = [each.sent for chunk in self.stages[number].chunks for each in chunk.issues if each.sent is not None]
        collectives = exchanged_in(self.timeline, prefix) + [
            (passing, float(passing * each.size_bytes)) for each in sent
        ]
        tied_s = min(summed_s, tied_s_of(self.timeline))
        return StepAccount(uses, exposed_s, exchanging_s, self.largest, exchanges, collectives, bubble_s, tied_s)


def run_pipeline(shared: SharedStep) -> PipelineRun:
    """Return the step of *shared*, whose layers are divided among stages; raises InputError or Unsuitable."""
    places, question, placement = shared.places, shared.question, shared.placement
    layout = placement.layout
    refuse_passing(question.where.slow_links, "a pipeline")
    if layout.zero == 3:
        why = "a stage needs its parameters in every pass; zero=1 or zero=2 goes with pp"
        raise refused("layout", f"fsdp does not go with pp={layout.pp}: {why}")
    parts = stages_of(shared.part, part_count(layout), layout.blocks)
    priced = Kept()
    updates: dict[object, tuple[Role, float, Network]] = {}  # one network for equal stages: results are cached by it
    element = ELEMENT_BYTES[storage_of(question.options.precision)]
    tied = parts[0].shared_elements
    tied_bytes = tied * gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    is_apart = len(parts) - 1 not in stage_parts(layout, 0)  # else a stage has both ends of the network
    behind, _ = next_places(layout)
    both: dict[object, Timeline] = {}
    sends = _Prices(places, shared.layer_strategy)
    paces = _paces(places, question, placement)
    stages, within, exchanged = [], [], []
    for number in range(layout.pp):
        mine = [parts[part] for part in stage_parts(layout, number)]
        node = placement.group.ranks[placement.rank(pp=number)]
        place = places.place(node)
        role = Role(place, node, len(placement.stage_ranks(number)), (), paces[number])
        found = []
        for part in mine:
            key = place.device, role.pace, network_key(part.network)
            found.append(priced.once(key, partial(_price, shared, role, part.network)))
        senders = [behind.get((number, chunk), (number, chunk))[0] for chunk in range(len(mine))]
        whole = joined_stages(mine)
        key = place.device, role.pace, network_key(whole)
        if key not in updates:
            acting = replace(role, issues=launches_of(place.device, whole, question.rank_options))
            update = [each for each in acting.issues if each.part == "update"]
            updates[key] = acting, execute(shared.machine, plan_chunk(shared, acting, update)).end_s, whole
        acting, update_s, whole = updates[key]
        pairs = {}
        if layout.ep_overlap:
            pairs = _together(shared, role, [chunk for chunk, _, _ in found], [part.network for part in mine], both)
        work = StageWork(
            role=replace(role, issues=acting.issues),
            network=whole,
            chunks=tuple(
                chunk if is_apart or part is not parts[-1] else chunk._replace(trained=chunk.trained - tied)
                for (chunk, _, _), part in zip(found, mine, strict=True)
            ),
            received_s=tuple(
                _received_s(sends, placement, sender, number, part.received_elements * element)
                for sender, part in zip(senders, mine, strict=True)
            ),
            received_bytes=tuple(float(part.received_elements * element) for part in mine),
            shared_bytes=float(tied_bytes) if is_apart else 0.0,
            update_s=update_s,
            node=places.machine.nodes[role.node],
            together_s={at: together.end_s for at, together in pairs.items()},
        )
        stages.append(work)
        used = [stream_uses(pairs[chunk, chunk]) if pairs else uses for chunk, (_, uses, _) in enumerate(found)]
        within.append(_summed(used))
        received = sum(each_s > 0.0 for each_s in work.received_s)
        before = [(sends.largest, received)] if received and sends.largest is not None else []
        exchanged.append((*before, *(exchange for _, _, exchanges in found for exchange in exchanges)))
    prices = _Prices(places, shared.strategy)
    timeline = execute(places.machine, plan_pipeline(stages, question, placement, prices), fold=shared.fold)
    return PipelineRun(tuple(stages), timeline, tuple(within), tuple(exchanged), prices.largest)


def _paces(places: Places, question: StepQuestion, placement: Placement) -> list[float]:
    """Return the pace of each stage's slowest rank; raises InputError if a stage's ranks, or its replicas, differ."""
    machine, layout, nodes = places.machine, placement.layout, placement.group.ranks
    check_stragglers(machine, nodes, question.stragglers)
    for stage in range(layout.pp):
        unlike = machine.unlike(nodes[rank] for rank in placement.stage_ranks(stage))
        if len(parts := dict.fromkeys(node.part_name for node in unlike)) > 1:
            why = f"the ranks of a pipeline stage have equal GPUs; stage {stage} has {' and '.join(parts)}"
            raise refused("layout", why)
    if not question.stragglers:
        return [1.0] * layout.pp

    def pace(replica: int, stage: int) -> float:
        ranks = (
            placement.rank(tp=t, cp=c, dp=replica, pp=stage) for t, c in product(range(layout.tp), range(layout.cp))
        )
        return max(straggler_pace(machine, nodes[rank], question.stragglers) for rank in ranks)

    by_replica = [[pace(d, stage) for stage in range(layout.pp)] for d in range(layout.dp or 1)]
    slowest = [max(paces) for paces in zip(*by_replica, strict=True)]
    if slowest not in by_replica:
        raise refused("stragglers", "in a pipeline, slow GPUs must all be of one of its replicas")
    return slowest


class _Prices:
    def __init__(self, places: Places, strategy: Strategy) -> None:
        self._machine = places.machine
        self._memory_passes = places.constants["contention"].memory_passes
        self._strategy = strategy
        self._found: dict[object, CollectivePrice] = {}
        self._largest_s = 0.0
        self.largest: Fragment | None = None

    def __call__(self, bundles: Sequence[ConcurrentGroups], op: Collective, size_bytes: float) -> CollectivePrice:
        key = tuple(bundle.lie for bundle in bundles), op, size_bytes
        if key in self._found:
            return self._found[key]
        seconds, shares = 0.0, (0.0, 0.0)
        for bundle in bundles:
            fragment = bundle.collective(op, size_bytes, self._strategy)
            alone_s = alone(self._machine, fragment).end_s
            if alone_s > seconds:
                held, used_s = fragment.gpu_loads.most(node for group in bundle.groups for node in group.ranks)
                seconds, shares = alone_s, (held, self._memory_passes * used_s / alone_s)
            if alone_s > self._largest_s:
                self._largest_s, self.largest = alone_s, fragment
        self._found[key] = CollectivePrice(seconds, shares)
        return self._found[key]


def _received_s(sends: _Prices, placement: Placement, sender: int, stage: int, size_bytes: float) -> float:
    """Return the seconds until tensor-parallel ranks of *stage* have *size_bytes*: parts are sent, then gathered."""
    layout = placement.layout
    if not size_bytes or sender == stage:
        return 0.0
    tp = 1 if layout.sp else layout.tp
    pairs = placement.stage_pairs(sender, stage)
    seconds = sends(pairs, "send-recv", size_bytes / tp).seconds
    if tp > 1:
        seconds += sends(placement.layer_groups("tp", stage), "all-gather", size_bytes).seconds
    return seconds


def _price(shared: SharedStep, role: Role, network: Network) -> _Priced:
    machine, device, question = shared.machine, role.place.device, shared.question
    issues = tuple(issue for issue in launches_of(device, network, question.rank_options) if issue.part != "update")
    acting = replace(role, issues=issues)
    seconds: dict[Part, float] = {}
    loads: list[tuple[Resource, float]] = []
    uses = []
    exchanges: list[tuple[Fragment, int]] = []
    for part in _PASSES:
        launches = [issue for issue in issues if issue.part == part]
        timeline = execute(machine, plan_chunk(shared, acting, launches), fold=shared.fold)
        seconds[part] = timeline.end_s
        uses.append(stream_uses(timeline))
        for task in timeline.plan.tasks:
            exchanges += [(sent, task.repeat) for sent in task.parts if isinstance(sent, Fragment)]
            works = [part for part in task.parts if isinstance(part, Work)]
            loads += [(resource, share * work.duration_s) for work in works for resource, share in work.loads]
    whole_s = sum(seconds.values())
    mean = tuple((resource, used_s / whole_s) for resource, used_s in sums_by_key(loads).items() if whole_s > 0)
    splits = schedule_of(question.layout).splits
    weights = gradient_work(device, network, question.options) if splits else {}
    weights_s = sum(work.time_s for work in weights.values())
    trained = [p for p in network.parameters if p.trained]
    apart = expert_parameters(network) if shared.layout.has_experts_apart else frozenset()
    counts = sum(p.elements for p in trained), sum(p.elements for p in trained if p.name in apart)
    chunk = Chunk(seconds["forward"], seconds["backward"], weights_s, mean, issues, *counts)
    return chunk, _summed(uses), tuple(exchanges)


def _together(
    shared: SharedStep, role: Role, chunks: Sequence[Chunk], parts: Sequence[Network], known: dict[object, Timeline]
) -> dict[tuple[int, int], Timeline]:
    """Return each chunk's forward pass with each one's backward pass at once, on networks *parts*; not *known* ones."""
    found = {}
    for at in product(range(len(chunks)), repeat=2):
        forward, backward = (chunks[chunk].issues for chunk in at)
        key = role.place.device, role.pace, id(forward), id(backward)
        if key not in known:
            onward = [each for each in forward if each.part == "forward"]
            back: list[tuple[Launch, ...]] = [(each,) for each in backward if each.part == "backward"]
            if shared.layout.delay_wgrad:
                back = put_off(back, [gradient_work(role.place.device, parts[at[1]], shared.question.rank_options)])
            launches = in_turns([each for (each,) in back], onward, lambda each: each)
            known[key] = execute(shared.machine, plan_chunk(shared, role, launches), fold=shared.fold)
        found[at[0], at[1]] = known[key]
    return found


def _summed(uses: Sequence[dict[str, StreamUse]]) -> dict[str, StreamUse]:
    found: dict[str, StreamUse] = {}
    for each in uses:
        for stream, use in each.items():
            total = found.setdefault(stream, StreamUse())
            total.busy_s += use.busy_s
            for other, waited_s in use.waits_s.items():
                total.waits_s[other] = total.waits_s.get(other, 0.0) + waited_s
    return found
