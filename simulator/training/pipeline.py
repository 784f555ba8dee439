"""Pipeline parallelism: consecutive parts of the network on different ranks (``pp``).

What a part takes for a micro-batch is found first (:func:`plan_chunk`), then a step is a plan of such passes, of what
is sent from stage to stage, and of the sums and the update at the end (:func:`plan_pipeline`).  The host waits for the
device after each pass, as Megatron-LM's does before it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.collectives.bundle import Bundle
from simulator.collectives.request import Strategy
from simulator.network.machine import Machine, Node
from simulator.plan.plan import Plan, PlanBuilder, Resource
from simulator.questions.step import StepQuestion
from simulator.step.issue import Issue, Part
from simulator.step.precision import storage_of
from simulator.training.buckets import least_elements
from simulator.training.data_parallel import gradient_bytes
from simulator.training.exchange import STREAM, Exchanged
from simulator.training.placement import Placement
from simulator.training.plan import crew_of, layer_exchanges
from simulator.training.roles import Role
from simulator.training.schedules import Pass, order_of
from simulator.workload.collective import Collective
from simulator.workload.network import Network
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["Chunk", "ChunkRun", "Priced", "StageWork", "plan_chunk", "plan_pipeline"]

_MOST_PIECES = 8  # into which a backward pass is cut where sums begin while it goes on


class Chunk(NamedTuple):
    """What one part of a network takes for a micro-batch: seconds of each pass, and the device's resources meanwhile.

    ``weights_s`` are those of the backward pass that go to gradients of parameters; ``issues`` are those of both.
    ``elements`` are its parameters', ``trained`` those with gradients; of each so many are of divided experts.
    """

    forward_s: float
    backward_s: float
    weights_s: float
    loads: tuple[tuple[Resource, float], ...]
    issues: tuple[Issue, ...]
    elements: int
    trained: int
    of_experts: int
    trained_of_experts: int

    def parts(self, *, trained: bool) -> tuple[tuple[bool, int], ...]:
        """Return elements that all ranks share, and those of divided experts: whether they are such, and how many."""
        count, experts = (self.trained, self.trained_of_experts) if trained else (self.elements, self.of_experts)
        return (False, count - experts), (True, experts)


class ChunkRun(NamedTuple):
    """What an activity of a stage is: a pass of a chunk, a *share* of it."""

    issues: tuple[Issue, ...]
    part: Part
    micro_batch: int
    share: float


class Priced(NamedTuple):
    """What a collective takes by itself, and which shares of a GPU's multiprocessors and memory it uses."""

    seconds: float
    shares: tuple[float, float]


Price = Callable[[Sequence[Bundle], Collective, float], Priced]


@dataclass(frozen=True, slots=True)
class StageWork:
    """One pipeline stage: its role, chunks in order, what each receives, and what it updates.

    ``network`` is all of its chunks.  What each needs from the stage before is ``received_bytes`` and takes
    ``received_s`` to arrive; so does the gradient that goes back.  ``shared_bytes`` are gradients that the first and
    the last stage sum.
    """

    role: Role
    network: Network
    chunks: tuple[Chunk, ...]
    received_s: tuple[float, ...]
    received_bytes: tuple[float, ...]
    shared_bytes: float
    update_s: float
    node: Node

    def busy_s(self, micro_batches: int) -> float:
        """Return how long the stage computes in a step, with what it waits for within its passes."""
        return micro_batches * sum(chunk.forward_s + chunk.backward_s for chunk in self.chunks) + self.update_s

    def resources(self, shares: tuple[float, float]) -> tuple[tuple[Resource, float], ...]:
        """Return *shares* of the multiprocessors and the memory of the stage's device, as loads."""
        return (self.node.multiprocessors, shares[0]), (self.node.memory, shares[1])


def plan_chunk(
    machine: Machine,
    role: Role,
    question: StepQuestion,
    placement: Placement,
    layer_strategy: str | Strategy,
    part: Part,
) -> Plan:
    """Return the plan of one *part* of *role*'s issues; raises Unsuitable."""
    builder = PlanBuilder()
    contends = question.contention and question.options.trains
    exchanges = layer_exchanges(builder, placement, layer_strategy, [role.node] if contends else [])
    crew = crew_of(builder, machine, [role], question, contends=contends, exchanges=exchanges)
    for issue in role.issues:
        if issue.part == part:
            crew.issue([issue], micro_batch=1)  # one that others come before
    return builder.build()


def plan_pipeline(
    stages: Sequence[StageWork],
    question: StepQuestion,
    placement: Placement,
    price: Price,
) -> Plan:
    """Return the plan of a step of *stages*; *price* says what sums of gradients take.

    Raises Unsuitable, or InputError where the schedule does not fit.
    """
    return _Pipeline(stages, question, placement, price).plan()


class _Pipeline:
    def __init__(
        self,
        stages: Sequence[StageWork],
        question: StepQuestion,
        placement: Placement,
        price: Price,
    ) -> None:
        self.builder = PlanBuilder()
        self.stages = stages
        self.question = question
        self.layout = placement.layout
        self.placement = placement
        self.price = price
        self.last = question.micro_batches - 1
        self.contends = question.contention and question.options.trains
        self.overlaps = self.layout.vp > 1  # what is sent while the stage goes on computing
        self.element_bytes = ELEMENT_BYTES[storage_of(question.options.precision)]

    def plan(self) -> Plan:
        """Write passes as soon as what they wait for is written, each stage in its order."""
        layout, count = self.layout, self.question.micro_batches
        trains = self.question.options.mode in ("train", "backward")
        orders = [order_of(layout, stage, count) for stage in range(layout.pp)]
        if not trains:
            orders = [[each for each in order if each.kind == "forward"] for order in orders]
        self.arrived: dict[tuple[str, int, int], int] = {}  # kind, part of the network, micro-batch: what brought it
        self.sent: dict[int, int] = {}  # by stage: what it sent last, which it waits for
        # Of each stage: what ends a piece of the last backward pass of each chunk, with the chunk and its share.
        self.ends: list[list[tuple[int, Chunk, float]]] = [[] for _ in orders]
        self.gathered: dict[tuple[int, int], list[int]] = {}
        if self._gathers_ahead():
            for stage, work in enumerate(self.stages):
                for number, chunk in enumerate(work.chunks):
                    self._gather(stage, number, chunk)
        places = [0] * layout.pp
        while any(place < len(order) for place, order in zip(places, orders, strict=True)):
            before = sum(places)
            for stage, order in enumerate(orders):
                while places[stage] < len(order) and self._ready(stage, order[places[stage]]):
                    each = order[places[stage]]
                    rest = order[places[stage] + 1 :]
                    places[stage] += 1
                    ends = each.kind != "forward" and not any(
                        other.kind != "forward" and other.chunk == each.chunk for other in rest
                    )
                    self._run(stage, each, ends=ends)
            assert sum(places) > before, "a schedule that waits for itself"
        if self.question.options.mode == "train":
            self._finish()
        return self.builder.build()

    # -- passes --------------------------------------------------------------------

    def _part(self, stage: int, chunk: int) -> int:
        return chunk * self.layout.pp + stage

    def _awaited(self, stage: int, each: Pass) -> tuple[str, int, int] | None:
        """Return what a pass waits for from another stage, None where it begins."""
        part, last = self._part(stage, each.chunk), self.layout.pp * self.layout.vp - 1
        if each.kind == "forward":
            return ("forward", part, each.micro_batch) if part else None
        return ("backward", part, each.micro_batch) if each.kind == "backward" and part < last else None

    def _ready(self, stage: int, each: Pass) -> bool:
        awaited = self._awaited(stage, each)
        return awaited is None or awaited in self.arrived

    def _run(self, stage: int, each: Pass, *, ends: bool) -> None:
        """Add a pass; *ends*: it is the last backward pass of its chunk, and gradients are summed as they come."""
        work = self.stages[stage]
        chunk = work.chunks[each.chunk]
        seconds, of = chunk.forward_s, each.kind
        share = 1.0
        if of != "forward":
            apart = self.layout.schedule == "zero-bubble"
            weights = min(1.0, chunk.weights_s / chunk.backward_s) if apart and chunk.backward_s else 0.0
            share = weights if of == "weights" else 1.0 - weights
            seconds = chunk.backward_s
        awaited = self._awaited(stage, each)
        after = [] if awaited is None else [self.arrived[awaited]]
        if not self.overlaps and stage in self.sent:
            after.append(self.sent[stage])
        gathered = self.gathered.pop((stage, each.chunk), []) if of == "forward" else []
        pieces = len(gathered) or (self._pieces(chunk.trained) if ends and of == "backward" else 1)
        part: Part = "forward" if of == "forward" else "backward"
        scatters = self.layout.zero == 2  # gradients of each micro-batch, of which a shard alone is kept
        gives = "weights" if self.layout.schedule == "zero-bubble" else "backward"
        for piece in range(pieces):
            number = self.builder.work(
                of,
                work.role.place.name,
                seconds * share / pieces,
                stream=f"stage {stage}/compute",
                after=[*after, *gathered[piece : piece + 1]],
                loads=chunk.loads if self.contends and (pieces > 1 or scatters) else (),
                about=ChunkRun(chunk.issues, part, each.micro_batch, share / pieces),
            )
            if ends:
                self.ends[stage].append((number, chunk, 1.0 / pieces))
        if scatters and of == gives and not ends and self.question.options.trains:
            self._sum(stage, [(number, chunk, 1.0)], each.micro_batch)
        if of != "weights":
            self._send(stage, each, number)

    def _pieces(self, elements: int) -> int:
        """Return into how many buckets so many gradients go while the backward pass that gives them goes on."""
        if not self.question.bucket_bytes or (self.layout.dp or 1) * self.layout.cp == 1:
            return 1
        return max(1, min(_MOST_PIECES, int(elements // least_elements(self.layout))))

    def _gathers_ahead(self) -> bool:
        """Return whether parameters that were updated in shards are gathered while the next step computes."""
        of_several = (self.layout.shards or 1) > 1 and self.question.options.mode == "train"
        return of_several and self.question.prefetches and bool(self.question.bucket_bytes)

    def _gather(self, stage: int, number: int, chunk: Chunk) -> None:
        """Add the all-gathers of a chunk's parameters, which its first forward pass waits for piece by piece."""
        pieces = self._pieces(chunk.trained)
        each = self.element_bytes / pieces
        gathered = [self._gather_parts(stage, [chunk], each, []) for _ in range(pieces)]
        self.gathered[stage, number] = [numbers[-1] for numbers in gathered if numbers]

    def _gather_parts(self, stage: int, chunks: Sequence[Chunk], each_bytes: float, after: Sequence[int]) -> list[int]:
        """Add the all-gathers of *chunks*, *each_bytes* of an element, one after the other."""
        found = []
        for experts in (False, True):
            shards = self.placement.shard_groups(stage, experts=experts)
            elements = sum(dict(chunk.parts(trained=False))[experts] for chunk in chunks)
            if elements and shards[0].n_ranks > 1:
                found.append(self._exchange(stage, shards, "all-gather", elements * each_bytes, after))
        return found

    def _send(self, stage: int, each: Pass, after: int) -> None:
        """Add what goes on to the next part of the network, or the gradient that goes back to the one before."""
        part, pp = self._part(stage, each.chunk), self.layout.pp
        onward = each.kind == "forward"
        target = part + 1 if onward else part - 1
        if not 0 <= target < pp * self.layout.vp:
            return
        receiver = (target if onward else part) // pp, (target if onward else part) % pp
        seconds = self.stages[receiver[1]].received_s[receiver[0]]
        stream = f"stage {stage}/to {target % pp}"
        about = Exchanged("send-recv", self.stages[receiver[1]].received_bytes[receiver[0]], each.micro_batch)
        number = self.builder.work("send", "", seconds, stream=stream, after=[after], about=about)
        if not self.overlaps:
            self.sent[stage] = number
        self.arrived[each.kind, target, each.micro_batch] = number

    # -- the end -------------------------------------------------------------------

    def _finish(self) -> None:
        """Add the sums of gradients, the update once all have been summed (their norm is needed), and what follows."""
        summed = [self._sum(stage, self.ends[stage], self.last) for stage in range(len(self.stages))]
        tied_bytes = self.stages[0].shared_bytes
        if tied_bytes:
            pairs = self.placement.next_stage_pairs(self.layout.pp - 1)
            summed.append(self._exchange(0, pairs, "all-reduce", tied_bytes, [summed[0], summed[-1]]))
        for stage, work in enumerate(self.stages):
            trained, experts = (
                sum(counts) for counts in zip(*((c.trained, c.trained_of_experts) for c in work.chunks), strict=True)
            )
            share = self.layout.kept_share(trained, experts)
            issues = tuple(issue for issue in work.role.issues if issue.part == "update")
            number = self.builder.work(
                "update",
                work.role.place.name,
                share * work.update_s,
                stream=f"stage {stage}/compute",
                after=summed,
                about=ChunkRun(issues, "update", self.last, share),
            )
            if self.layout.zero and not self._gathers_ahead():
                self._gather_parts(stage, work.chunks, self.element_bytes, [number])

    def _sum(self, stage: int, ends: Sequence[tuple[int, Chunk, float]], micro_batch: int) -> int:
        """Add the sums of a stage's gradients, a part of them after each of *ends*; return the last."""
        number = ends[-1][0]
        if self.placement.data_groups(stage)[0].n_ranks == 1:
            return number
        ends_all = micro_batch == self.last
        for end, chunk, share in ends:
            number = end
            for experts, elements in reversed(chunk.parts(trained=True)):
                n_bytes = elements * share * self._gradient_bytes()
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
                    number = self._exchange(stage, shards, "reduce-scatter", n_bytes, [end], micro_batch)
                    after = number
                if replicas[0].n_ranks > 1 and ends_all:
                    n_bytes /= shards[0].n_ranks
                    number = self._exchange(stage, replicas, "all-reduce", n_bytes, [after], micro_batch)
        return number

    def _exchange(
        self,
        stage: int,
        bundles: Sequence[Bundle],
        op: Collective,
        size_bytes: float,
        after: Sequence[int],
        micro_batch: int | None = None,
    ) -> int:
        priced = self.price(bundles, op, size_bytes)
        loads = self.stages[stage].resources(priced.shares) if self.contends else ()
        about = Exchanged(op, size_bytes, self.last if micro_batch is None else micro_batch)
        return self.builder.work(
            op, "", priced.seconds, stream=f"stage {stage}/{STREAM}", after=after, loads=loads, about=about
        )

    def _gradient_bytes(self) -> int:
        return gradient_bytes(self.question.options, sums_in_fp32=self.question.sums_in_fp32)
