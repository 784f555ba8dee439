"""Pipeline parallelism (``pp``): parts of the network on different ranks (docs/decisions/parallelism.md)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from simulator.collectives.communicator import ConcurrentGroups
from simulator.network.machine import Node
from simulator.plan.plan import Plan, PlanBuilder, Resource
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field
from simulator.step.launch import Launch, Part
from simulator.step.precision import gradient_bytes, parameter_bytes
from simulator.training.data_parallel import least_elements
from simulator.training.placement import Placement
from simulator.training.plan import SharedStep, crew_of, layer_exchanges
from simulator.training.roles import Role, loaded
from simulator.training.schedules import Pass, Position, chunks_of, next_places, schedule_of
from simulator.training.worker import STREAM, ChunkRun, CollectiveLabel
from simulator.workload import Collective
from simulator.workload.network import Network

_MOST_PIECES = 8  # pieces into which a backward pass is cut if sums of gradients start during it


class Chunk(NamedTuple):
    """The passes of one part of a network for a micro-batch: seconds, and the device resources that they load."""

    forward_s: float
    backward_s: float
    weights_s: float  # part of the backward pass for gradients of parameters
    loads: tuple[tuple[Resource, float], ...]
    issues: tuple[Launch, ...]  # of both passes
    trained: int  # parameters with gradients
    trained_of_experts: int  # divided ones among them

    @property
    def parts(self) -> tuple[tuple[bool, int], ...]:
        """(False, trained elements shared by all ranks) and (True, trained elements of divided experts)."""
        return (False, self.trained - self.trained_of_experts), (True, self.trained_of_experts)


class CollectivePrice(NamedTuple):
    """The time of a collective alone, in seconds, and the shares of a GPU's multiprocessors and memory that it uses."""

    seconds: float
    shares: tuple[float, float]


Price = Callable[[Sequence[ConcurrentGroups], Collective, float], CollectivePrice]


@dataclass(frozen=True, slots=True)
class StageWork:
    """One pipeline stage: its role, its chunks in order, the inputs of each, and its update."""

    role: Role
    network: Network  # all chunks
    chunks: tuple[Chunk, ...]
    received_s: tuple[float, ...]  # transfer of a chunk's input; its gradient's is equal
    received_bytes: tuple[float, ...]  # of a chunk's input from the stage before
    shared_bytes: float  # of gradients that the first and last stage sum (a tied embedding)
    update_s: float
    node: Node
    together_s: Mapping[tuple[int, int], float] = field(default_factory=dict)  # of joined passes, by both chunks

    def busy_s(self, micro_batches: int) -> float:
        """Return the seconds that the stage computes in a step, including waits within its passes."""
        return micro_batches * sum(chunk.forward_s + chunk.backward_s for chunk in self.chunks) + self.update_s


def plan_chunk(shared: SharedStep, role: Role, launches: Sequence[Launch]) -> Plan:
    """Return the plan of *launches* by *role*, of an update what only covers kept state; raises Unsuitable."""
    builder, question = PlanBuilder(), shared.question
    contends = question.contention and question.options.trains
    exchanges = layer_exchanges(builder, shared, loaded([role]) if contends else {})
    crew = crew_of(builder, shared.machine, [role], question, contends=contends, exchanges=exchanges)
    for issue in launches:
        if issue.over == "kept":
            crew.issue([issue], micro_batch=1)  # not the first micro-batch, so gradients accumulate
    return builder.build()


def plan_pipeline(stages: Sequence[StageWork], question: StepQuestion, placement: Placement, price: Price) -> Plan:
    """Return the plan of a step of *stages*; *price*: of a sum of gradients.  Raises Unsuitable or InputError."""
    return _Pipeline(stages, question, placement, price).plan()


class _Pipeline:
    def __init__(self, stages: Sequence[StageWork], question: StepQuestion, placement: Placement, price: Price) -> None:
        self.builder = PlanBuilder()
        self.stages, self.question, self.placement, self.price = stages, question, placement, price
        self.layout = layout = placement.layout
        self.last, mode = question.micro_batches - 1, question.options.mode
        self.trains, self.updates = mode in ("train", "backward"), mode == "train"
        self.contends = question.contention and question.options.trains
        self.overlaps = chunks_of(layout) > 1  # transfers overlap with computing
        self.splits = schedule_of(layout).splits
        self.behind, self.ahead = next_places(layout)
        self.element_bytes = parameter_bytes(question.options.precision)  # of those that are gathered
        ahead = question.prefetches and bool(question.bucket_bytes)
        self.gathers_ahead = (layout.shards or 1) > 1 and self.updates and ahead  # while the next step computes
        self.arrived: dict[tuple[str, Position, int], int] = {}  # activity, by kind, place and micro-batch
        self.sent: dict[int, int] = {}  # by stage: its last transfer, for which it waits
        # By stage: the activities that end pieces of each chunk's last backward pass, with the chunk and the share.
        self.ends: list[list[tuple[int, Chunk, float]]] = [[] for _ in range(layout.pp)]
        # By stage and chunk: the all-gathers of parameters, in pieces, each of which the first forward pass waits for.
        self.gathered: dict[tuple[int, int], list[int]] = {}

    def plan(self) -> Plan:
        """Add each pass as soon as its dependencies exist, every stage in its own order."""
        layout = self.layout
        blocks: list[list[list[Pass]]] = []  # by stage: its passes in order, with joined ones together
        ends: list[dict[int, Pass]] = []
        for stage in range(layout.pp):
            order = schedule_of(layout).order(layout, stage, self.last + 1)
            order = [each for each in order if self.trains or each.kind == "forward"]
            starts = [place for place, each in enumerate(order) if not (each.joined and place)]
            blocks.append([order[start:end] for start, end in pairwise([*starts, len(order)])])
            ends.append({each.chunk: each for each in order if each.kind != "forward"})
        for stage, work in enumerate(self.stages) if self.gathers_ahead else ():
            for number, chunk in enumerate(work.chunks):
                pieces = self._pieces(chunk.trained)
                found = [self._gather(stage, [chunk], self.element_bytes / pieces, []) for _ in range(pieces)]
                self.gathered[stage, number] = [numbers[-1] for numbers in found if numbers]
        places, ways = [0] * layout.pp, {"forward": self.behind, "backward": self.ahead}
        while any(place < len(of_stage) for place, of_stage in zip(places, blocks, strict=True)):
            before = sum(places)
            for stage, of_stage in enumerate(blocks):
                while places[stage] < len(of_stage):
                    block = of_stage[places[stage]]
                    keys = ((each.kind, (stage, each.chunk), each.micro_batch) for each in block)
                    awaited = [key for key in keys if key[1] in ways.get(key[0], {})]
                    if any(key not in self.arrived for key in awaited):
                        break
                    places[stage] += 1
                    self._run(stage, block, [self.arrived[key] for key in awaited], ends[stage])
            assert sum(places) > before, "a schedule that waits for itself"
        if self.updates:
            self._finish()
        return self.builder.build()

    def _run(self, stage: int, block: Sequence[Pass], after: list[int], ends: Mapping[int, Pass]) -> None:
        """Add the passes of *block* after *after*; *ends* are the last backward passes of the stage's chunks."""
        if not self.overlaps and stage in self.sent:
            after.append(self.sent[stage])
        pace = 1.0
        if len(block) > 1 and self.stages[stage].together_s:
            work, (forward, backward, *_) = self.stages[stage], block
            alone_s = work.chunks[forward.chunk].forward_s + work.chunks[backward.chunk].backward_s
            pace = work.together_s[forward.chunk, backward.chunk] / alone_s if alone_s else 1.0
        for each in block:
            number = self._add(stage, each, after, pace, ends=each is ends.get(each.chunk))
        for each in block:
            if each.kind != "weights":
                self._send(stage, each, number)

    def _add(self, stage: int, each: Pass, after: Sequence[int], pace: float, *, ends: bool) -> int:
        """Add a pass after *after*, at *pace* times its time alone; *ends*: it is the last backward of its chunk."""
        work, of = self.stages[stage], each.kind
        chunk, share = work.chunks[each.chunk], 1.0
        if of != "forward":
            weights = min(1.0, chunk.weights_s / chunk.backward_s) if self.splits and chunk.backward_s else 0.0
            share = weights if of == "weights" else 1.0 - weights
        gathered = self.gathered.pop((stage, each.chunk), []) if of == "forward" else []
        pieces = len(gathered) or (self._pieces(chunk.trained) if ends and of == "backward" else 1)
        part: Part = "forward" if of == "forward" else "backward"
        scatters = self.layout.zero == 2  # each micro-batch scatters its gradients, as only shards are kept
        for piece in range(pieces):
            number = self.builder.work(
                of,
                work.role.place.name,
                (chunk.forward_s if of == "forward" else chunk.backward_s) * share * pace / pieces,
                stream=f"stage {stage}/compute",
                after=[*after, *gathered[piece : piece + 1]],
                loads=chunk.loads if self.contends and (pieces > 1 or scatters) else (),
                about=ChunkRun(chunk.issues, part, each.micro_batch, share / pieces, each.chunk),
            )
            if ends:
                self.ends[stage].append((number, chunk, 1.0 / pieces))
        gives = "weights" if self.splits else "backward"
        if scatters and of == gives and not ends and self.question.options.trains:
            self._sum(stage, [(number, chunk, 1.0)], each.micro_batch)
        return number

    def _pieces(self, elements: int) -> int:
        """Return the number of buckets for *elements* gradients that are summed during the backward pass."""
        if not self.question.bucket_bytes or self.placement.data_groups(0)[0].n_ranks == 1:
            return 1
        return max(1, min(_MOST_PIECES, int(elements // least_elements(self.layout))))

    def _gather(self, stage: int, chunks: Sequence[Chunk], each_bytes: float, after: Sequence[int]) -> list[int]:
        found = []
        for experts in (False, True):
            shards = self.placement.shard_groups(stage, experts=experts)
            elements = sum(dict(chunk.parts)[experts] for chunk in chunks)
            if elements and shards[0].n_ranks > 1:
                found.append(self._exchange(stage, shards, "all-gather", elements * each_bytes, after))
        return found

    def _send(self, stage: int, each: Pass, after: int) -> None:
        """Add the transfer to the next part of the network, or of the gradient to the previous part."""
        here, onward = (stage, each.chunk), each.kind == "forward"
        target = (self.ahead if onward else self.behind).get(here)
        if target is None:
            return
        sender, receiver = (here, target) if onward else (target, here)
        number = after
        if target[0] != stage:
            work, chunk, stream = self.stages[receiver[0]], receiver[1], f"stage {stage}/to {target[0]}"
            among = self.placement.stage_pairs(sender[0], receiver[0])
            about = CollectiveLabel("send-recv", work.received_bytes[chunk], each.micro_batch, among=among)
            number = self.builder.work("send", "", work.received_s[chunk], stream=stream, after=[after], about=about)
            if not self.overlaps:
                self.sent[stage] = number
        self.arrived[each.kind, target, each.micro_batch] = number

    def _finish(self) -> None:
        """Add the sums of gradients, the update after all of them (it needs their norm), and any all-gathers."""
        summed = [self._sum(stage, self.ends[stage], self.last) for stage in range(len(self.stages))]
        tied_bytes = self.stages[0].shared_bytes
        if tied_bytes:
            pairs = self.placement.stage_pairs(self.layout.pp - 1, 0)
            summed.append(self._exchange(0, pairs, "all-reduce", tied_bytes, [summed[0], summed[-1]], of_tied=True))
        for stage, work in enumerate(self.stages):
            trained = sum(chunk.trained for chunk in work.chunks)
            over = ("all", "summed") if self.placement.data_groups(stage)[0].n_ranks > 1 else ("all",)
            updates = [issue for issue in work.role.issues if issue.part == "update"]
            experts, matrices = (
                sum(chunk.trained_of_experts for chunk in work.chunks),
                sum(issue.whole for issue in updates),
            )
            share = self.layout.kept_share(trained, experts, matrices)
            whole = tuple(issue for issue in updates if issue.over in over)
            kept = tuple(issue for issue in updates if issue.over == "kept")
            whole_s = work.role.pace * sum(issue.device_s for issue in whole)
            before = ((whole, 1.0, whole_s),) if whole else ()  # the host calls these ahead of the device
            for issues, part, duration_s in (*before, (kept, share, share * work.update_s)):
                about, stream = ChunkRun(issues, "update", self.last, part), f"stage {stage}/compute"
                place = work.role.place.name
                number = self.builder.work("update", place, duration_s, stream=stream, after=summed, about=about)
            if self.layout.zero and not self.gathers_ahead:
                self._gather(stage, work.chunks, self.element_bytes, [number])

    def _sum(self, stage: int, ends: Sequence[tuple[int, Chunk, float]], micro_batch: int) -> int:
        """Add the sums of a stage's gradients, one part after each of *ends*; return the last activity."""
        number = ends[-1][0]
        if self.placement.data_groups(stage)[0].n_ranks == 1:
            return number
        element_bytes = gradient_bytes(self.question.options, sums_in_fp32=self.question.sums_in_fp32)
        for end, chunk, share in ends:
            number = end
            for experts, elements in reversed(chunk.parts):
                n_bytes = elements * share * element_bytes
                groups = self.placement.data_groups(stage, experts=experts)
                if not n_bytes or groups[0].n_ranks == 1:
                    continue
                if not self.layout.zero:
                    number = self._exchange(stage, groups, "all-reduce", n_bytes, [end])
                    continue
                shards = self.placement.shard_groups(stage, experts=experts)
                replicas = self.placement.replica_groups(stage, experts=experts)
                after = end
                if shards[0].n_ranks > 1:
                    number = after = self._exchange(
                        stage, shards, self.question.sum_of_shards, n_bytes, [end], micro_batch
                    )
                if replicas[0].n_ranks > 1 and micro_batch == self.last:
                    n_bytes /= shards[0].n_ranks
                    number = self._exchange(stage, replicas, "all-reduce", n_bytes, [after], micro_batch)
        return number

    def _exchange(
        self,
        stage: int,
        bundles: Sequence[ConcurrentGroups],
        op: Collective,
        size_bytes: float,
        after: Sequence[int],
        micro_batch: int | None = None,
        *,
        of_tied: bool = False,
    ) -> int:
        priced, node = self.price(bundles, op, size_bytes), self.stages[stage].node
        used = zip((node.multiprocessors, node.memory), priced.shares, strict=True)
        loads: tuple[tuple[Resource, float], ...] = tuple(used) if self.contends else ()
        number, stream = self.last if micro_batch is None else micro_batch, f"stage {stage}/{STREAM}"
        about = CollectiveLabel(op, size_bytes, number, of_tied, bundles)
        return self.builder.work(op, "", priced.seconds, stream=stream, after=after, loads=loads, about=about)
