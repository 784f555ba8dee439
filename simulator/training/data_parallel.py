"""Data parallelism (``dp``): replicas, whose gradients are summed over the ranks (docs/decisions/parallelism.md)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from simulator.devices.dispatch import bucket_copy_time
from simulator.devices.predict import Device
from simulator.plan.plan import PlanBuilder
from simulator.questions.layout import Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.step.issue import gradient_work, work_of
from simulator.step.launch import Launch
from simulator.step.precision import gradient_bytes, parameter_bytes
from simulator.training.micro_batches import Batches, put_off, turns_of
from simulator.training.worker import GroupExchange, RankRoles
from simulator.workload import Collective
from simulator.workload.backward import backward_steps
from simulator.workload.kernels import Streaming
from simulator.workload.network import Network, Parameter
from simulator.workload.split.experts import expert_parameters


class GradientBucket(NamedTuple):
    """Gradients that are exchanged together, by their elements; the bucket is full after issue ``full_after``."""

    gradients: tuple[int, ...]
    full_after: int
    elements: int


class Sums(NamedTuple):
    """The exchanges that sum gradients, each None if it has only one rank."""

    whole: GroupExchange | None = None  # among all ranks with the same parameters
    shards: GroupExchange | None = None  # among one full set of shards
    replicas: GroupExchange | None = None  # among the ranks with the same shard
    scatter: Collective = "reduce-scatter"  # that sums what shards are of

    def reduce(self, size_bytes: float, after: Sequence[int], micro_batch: int, *, ends: bool = True) -> list[int]:
        """Add the sum of gradients, at the *ends* over replicas of shards too; return its last activity, or []."""
        if self.shards is None:
            if self.whole is None or not ends:
                return []
            return [self.whole("all-reduce", size_bytes, after, micro_batch)]
        number = self.shards(self.scatter, size_bytes, after, micro_batch)
        if self.replicas is None or not ends:
            return [number]
        return [self.replicas("all-reduce", size_bytes / self.shards.n_ranks, [number], micro_batch)]

    @property
    def shard_count(self) -> int:
        """The ranks that hold one full set of shards, 1 without shards."""
        return 1 if self.shards is None else self.shards.n_ranks

    def gather(self, size_bytes: float, after: Sequence[int], micro_batch: int) -> list[int]:
        """Add the all-gather of *size_bytes* of parameters; return its activity, or [] if they are not sharded."""
        return [] if self.shards is None else [self.shards("all-gather", size_bytes, after, micro_batch)]


class StepOutline(NamedTuple):
    """A step that the workers of ``crew`` add to ``builder``."""

    builder: PlanBuilder
    crew: RankRoles
    network: Network
    question: StepQuestion
    layout: Layout
    both: Sequence[Sums]  # sums over ranks with the same parameters and, if divided, the same experts
    batches: Batches


def write_data_parallel(outline: StepOutline, *, copies: bool) -> None:
    """Add the step of *outline* to its builder; *copies*: copies into and out of buckets take time."""
    builder, crew, network, question, layout, both, batches = outline
    passes, last = crew.passes(), batches.last
    if layout.delay_wgrad:
        own = ((role.place.device, role.network or network) for role in crew.roles)
        passes = put_off(passes, [gradient_work(*each, question.rank_options) for each in own])
    apart = expert_parameters(network) if len(both) > 1 else frozenset()
    element_bytes = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    bucket_bytes = bucket_size(question, layout, element_bytes)
    ahead = gather_ahead(outline, apart, bucket_bytes)
    any_sums = any(among.whole is not None for among in both)
    complete = ready_after([same[0] for same in passes], network) if any_sums else [()] * len(passes)
    ready, of_experts = (
        [tuple(p.elements for p in found if (p.name in apart) is experts) for found in complete]
        for experts in (False, True)
    )
    most = bucket_bytes / element_bytes or float("inf")
    buckets, expert_buckets = (buckets_of(each, most) for each in (ready, of_experts))

    def summed(number: int, ends: Sequence[Sequence[int]]) -> list[int]:
        """Add the sums of micro-batch *number*, whose issues end with *ends*; return their last activities."""
        return [
            end
            for among, full in zip(both, (buckets, expert_buckets), strict=False)
            for size, after in ((bucket.elements * element_bytes, ends[bucket.full_after]) for bucket in full)
            for end in among.reduce(size, after, number, ends=number == last)
        ]

    def issued(number: int, place: int) -> list[int]:
        """Add the issues at *place* of micro-batch *number*, in the last with copies into buckets."""
        same = passes[place]
        found = crew.issue(same, after=awaited(same[0], ahead if number == 0 else {}), micro_batch=number)
        if not (number == last and ready[place] and copies):
            return found
        filling = [bucket_copy(role.place.device, ready[place], element_bytes, same[0].layer) for role in crew.roles]
        return crew.issue(filling, micro_batch=last)

    over: dict[int, dict[int, list[int]]] = {}  # by micro-batch and place: the ends on all workers
    for turn in turns_of([same[0] for same in passes], list(batches), overlaps=layout.ep_overlap):
        if any(number == last for number, _ in turn) and last not in over:
            crew.go_on(batches.skip(builder, last))
        for number, place in turn:
            over.setdefault(number, {})[place] = issued(number, place)
        done = [number for number in over if len(over[number]) == len(passes) and number != last]
        for number in done:
            ended = over.pop(number)
            if layout.zero == 2:
                ends = summed(number, [ended[place] for place in range(len(passes))])
                if not bucket_bytes:
                    crew.wait_for(ends)
    sums_end = summed(last, [over[last][place] for place in range(len(passes))])
    for bucket, number in zip(buckets, sums_end, strict=False) if copies and not question.bucket_views else ():
        emptying = [bucket_copy(role.place.device, bucket.gradients, element_bytes) for role in crew.roles]
        crew.issue(emptying, after=[number], micro_batch=last)
    trained = network.trained_count
    experts = sum(p.elements for p in network.parameters if p.trained and p.name in apart)
    kept = layout.kept_share(trained, experts, sum(issue.whole for issue in crew.roles[0].issues))
    crew.update(sums_end[-1:], last, kept if layout.zero else 1.0, sums=any_sums)
    updated, size = crew.last, parameter_bytes(question.options.precision)
    for among, elements in zip(both, (trained - experts, experts), strict=False):
        if elements and layout.zero and not ahead:
            among.gather(elements * size, updated, last)


def gather_ahead(outline: StepOutline, apart: frozenset[str], bucket_bytes: float) -> dict[str, tuple[int, ...]]:
    """Add the all-gathers that are prefetched, in buckets (*apart*: experts); return those each layer awaits."""
    found: dict[str, tuple[int, ...]] = {}
    network, both, options = outline.network, outline.both, outline.question.options
    if not (bucket_bytes and outline.question.prefetches and options.mode == "train" and outline.layout.zero):
        return found
    size = parameter_bytes(options.precision)
    waiting: list[str] = []
    seen: set[str] = set()
    filled = [0, 0]  # bytes of shared parameters, and of experts
    for layer in network.layers:
        for parameter in layer.parameters:
            if parameter.trained and parameter.name not in seen:
                seen.add(parameter.name)
                filled[parameter.name in apart] += parameter.elements * size
        waiting.append(layer.name)
        if sum(filled) >= bucket_bytes or (any(filled) and layer is network.layers[-1]):
            gathers = [among.gather(n_bytes, [], 0) for among, n_bytes in zip(both, filled, strict=False) if n_bytes]
            found |= dict.fromkeys(waiting, tuple(number for numbers in gathers for number in numbers))
            waiting, filled = [], [0, 0]
    return found


def awaited(issue: Launch, ahead: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the prefetching all-gathers that *issue* waits for, if it is in the forward pass."""
    return ahead.get(issue.layer, ()) if issue.part == "forward" else ()


def ready_after(passes: Sequence[Launch], network: Network) -> list[tuple[Parameter, ...]]:
    """Return for each issue the parameters whose gradients it completes, those up to the next layer's."""
    steps = backward_steps(network)
    place = {step.layer.name: number for number, step in enumerate(steps)}
    first: dict[int, int] = {}  # by position in the backward pass: the layer's first issue
    for number, issue in enumerate(passes):
        if issue.part == "backward" and not issue.again and issue.layer in place:
            first[place[issue.layer]] = number if issue.late else first.get(place[issue.layer], number)
    found: list[tuple[Parameter, ...]] = [()] * len(passes)
    for begins, upto in pairwise([*sorted(first), len(steps)]):
        found[first[begins]] = tuple(p for step in steps[begins:upto] for p in step.ready)
    return found


def buckets_of(ready: Sequence[tuple[int, ...]], most: float) -> list[GradientBucket]:
    """Return the buckets; the issue with which a bucket reaches *most* elements closes it."""
    found, elements = [], 0
    filled: list[int] = []
    for number, gradients in enumerate(ready):
        filled += gradients
        elements += sum(gradients)
        if elements >= most:
            found.append(GradientBucket(tuple(filled), number, elements))
            filled, elements = [], 0
    if filled:
        found.append(GradientBucket(tuple(filled), len(ready) - 1, elements))
    return found


# Megatron-core's (bucket_size of its DistributedDataParallelConfig): with many ranks each one's chunk stays large.
_LEAST_ELEMENTS, _ELEMENTS_A_RANK = 40_000_000, 1_000_000


def least_elements(layout: Layout) -> int:
    """Return the elements of one of Megatron-core's buckets."""
    return max(_LEAST_ELEMENTS, _ELEMENTS_A_RANK * (layout.dp or 1) * layout.cp)


def bucket_size(question: StepQuestion, layout: Layout, element_bytes: int) -> float:
    """Return the bytes of a bucket: *question*'s, or Megatron-core's if it runs with the default bucket size."""
    if question.options.framework != "megatron" or question.bucket_bytes != BUCKET_BYTES:
        return question.bucket_bytes
    return float(least_elements(layout) * element_bytes)


@lru_cache(maxsize=1024)
def bucket_copy(device: Device, elements: tuple[int, ...], element_bytes: int, layer: str = "") -> Launch:
    """Return the copies of *layer*'s gradients, with *elements* each, into a bucket; without one, of sums out of it."""
    name, function = (f"{layer} (into bucket)", "mul_scalar") if layer else ("out of bucket", "copy")
    kernels = [Streaming(function, n, n * element_bytes, n * element_bytes) for n in elements]
    host_s = len(elements) * bucket_copy_time(device)
    return Launch(name, "backward", host_s, work_of(device, kernels), layer=layer)
