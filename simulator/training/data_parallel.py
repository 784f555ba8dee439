"""Data parallelism: each rank has a replica of the network, and gradients are summed (``dp``).

As PyTorch's DistributedDataParallel does it (Li et al., "PyTorch Distributed", VLDB 2020, section 4.2): gradients go
into buckets as they become ready, and a bucket is exchanged while the backward pass goes on; the update waits for the
last.  Without buckets all are exchanged together after the backward pass.  Of several micro-batches the last exchanges
what all have summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from simulator.plan.plan import PlanBuilder
from simulator.questions.options import StepOptions
from simulator.step.issue import Issue
from simulator.step.precision import casts, storage_of
from simulator.training.buckets import copy_in, copy_out
from simulator.training.crew import Crew
from simulator.training.exchange import Exchange
from simulator.training.micro_batches import Batches
from simulator.workload.backward import backward_steps
from simulator.workload.network import Network, Parameter
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.split.experts import expert_parameters

__all__ = ["Sums", "gradient_bytes", "ready_after", "write_data_parallel"]


def gradient_bytes(options: StepOptions, *, sums_in_fp32: bool = False) -> int:
    """Return the bytes of one element of the gradients that are exchanged."""
    wide = sums_in_fp32 or casts(options.precision)
    return ELEMENT_BYTES["fp32" if wide else storage_of(options.precision)]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Gradients that are exchanged together, by their elements; it is full after the issue number ``full_after``."""

    gradients: tuple[int, ...]
    full_after: int

    @property
    def elements(self) -> int:
        return sum(self.gradients)


class Sums(NamedTuple):
    """How gradients are summed: *whole* among all with the same parameters; or in shards, which have replicas.

    *shards* is what makes up a whole of shards, *replicas* those that have the same one; *experts*
    those that have the same experts, where these are divided.  None where there is one rank.
    """

    whole: Exchange | None = None
    shards: Exchange | None = None
    replicas: Exchange | None = None
    experts: Exchange | None = None
    divides_experts: bool = False

    def reduce(self, size_bytes: float, after: Sequence[int], micro_batch: int) -> int:
        """Add the sum of *size_bytes* of gradients; return the activity that ends it."""
        if self.shards is None:
            assert self.whole is not None
            return self.whole("all-reduce", size_bytes, after, micro_batch)
        number = self.shards("reduce-scatter", size_bytes, after, micro_batch)
        if self.replicas is None:
            return number
        return self.replicas("all-reduce", size_bytes / self.shards.n_ranks, [number], micro_batch)

    def __bool__(self) -> bool:
        """Return whether anything is exchanged."""
        return self.whole is not None


def write_data_parallel(
    builder: PlanBuilder,
    crew: Crew,
    network: Network,
    options: StepOptions,
    sums: Sums,
    batches: Batches,
    *,
    bucket_bytes: float,
    element_bytes: int,
    copies: bool,
    prefetches: bool = True,
) -> None:
    """Write a step of all workers of *crew*; *copies*: into buckets and out of them take time.

    *element_bytes*: of a gradient that is exchanged.  With shards each updates its own, and all gather the parameters
    (ZeRO stages 1 and 2; Rajbhandari et al., SC 2020, section 5): after the update, or, where it *prefetches* and there
    are buckets, while the next step computes, which waits for those of each layer.
    """
    last = batches.last
    passes = crew.passes()
    ahead = _gather_ahead(network, options, sums, bucket_bytes) if bucket_bytes and prefetches else {}
    for number in batches:
        if number == last:
            crew.go_on(batches.skip(builder, number))
            continue
        for same in passes:
            crew.issue(same, after=_awaited(same[0], ahead if number == 0 else {}), micro_batch=number)
    most = bucket_bytes / element_bytes or float("inf")
    apart = expert_parameters(network) if sums.divides_experts else frozenset()
    complete = ready_after([same[0] for same in passes], network) if sums else [()] * len(passes)
    ready = [tuple(p.elements for p in parameters if p.name not in apart) for parameters in complete]
    of_experts = [tuple(p.elements for p in parameters if p.name in apart) for parameters in complete]
    buckets = _buckets(ready, most)
    ends: list[list[int]] = []  # of each issue, on all workers
    for same, gradients in zip(passes, ready, strict=True):
        ends.append(crew.issue(same, after=_awaited(same[0], ahead if last == 0 else {}), micro_batch=last))
        if gradients and copies:
            filling = [copy_in(role.place.device, same[0].layer, gradients, element_bytes) for role in crew.roles]
            ends[-1] = crew.issue(filling, micro_batch=last)
    summed = [sums.reduce(bucket.elements * element_bytes, ends[bucket.full_after], last) for bucket in buckets]
    for bucket, number in zip(buckets, summed, strict=True) if copies else ():
        emptying = [copy_out(role.place.device, bucket.gradients, element_bytes) for role in crew.roles]
        crew.issue(emptying, after=[number], micro_batch=last)
    for bucket in _buckets(of_experts, most) if sums.experts is not None else ():
        assert sums.experts is not None
        summed.append(sums.experts("all-reduce", bucket.elements * element_bytes, ends[bucket.full_after], last))
    if sums.shards is None:
        crew.update(summed[-1:], last)
        return
    crew.update(summed[-1:], last, 1.0 / sums.shards.n_ranks)
    if ahead:
        return
    kept_bytes = network.parameter_count * ELEMENT_BYTES[storage_of(options.precision)]
    sums.shards("all-gather", kept_bytes, crew.last, last)


def _gather_ahead(network: Network, options: StepOptions, sums: Sums, bucket_bytes: float) -> dict[str, int]:
    """Add the all-gathers of parameters, a bucket each in the order of their use; return by layer what it waits for."""
    if sums.shards is None or options.mode != "train":
        return {}
    size = ELEMENT_BYTES[storage_of(options.precision)]
    found: dict[str, int] = {}
    waiting: list[str] = []
    seen: set[str] = set()
    filled = 0
    for layer in network.layers:
        own = [p for p in layer.parameters if p.trained and p.name not in seen]
        seen.update(p.name for p in own)
        filled += sum(p.elements for p in own) * size
        waiting.append(layer.name)
        if filled >= bucket_bytes or (filled and layer is network.layers[-1]):
            number = sums.shards("all-gather", filled, [], 0)
            found |= dict.fromkeys(waiting, number)
            waiting, filled = [], 0
    return found


def _awaited(issue: Issue, ahead: Mapping[str, int]) -> tuple[int, ...]:
    """Return the all-gather that a forward pass waits for, where one goes on while the step computes."""
    return (ahead[issue.layer],) if issue.part == "forward" and issue.layer in ahead else ()


def ready_after(passes: Sequence[Issue], network: Network) -> list[tuple[Parameter, ...]]:
    """Return the parameters whose gradients are complete after each issue and were not after the one before.

    With the first issue of a layer's backward pass all is complete that comes before the layer that is issued next.
    """
    steps = backward_steps(network)
    place = {step.layer.name: number for number, step in enumerate(steps)}
    first: dict[int, int] = {}  # of each layer that is issued: its place in the backward pass, and its first issue
    for number, issue in enumerate(passes):
        if issue.part == "backward" and not issue.again and issue.layer in place:
            first.setdefault(place[issue.layer], number)
    found: list[tuple[Parameter, ...]] = [()] * len(passes)
    for begins, upto in pairwise([*sorted(first), len(steps)]):
        found[first[begins]] = tuple(p for step in steps[begins:upto] for p in step.ready)
    return found


def _buckets(ready: Sequence[tuple[int, ...]], most: float) -> list[_Bucket]:
    """Return the buckets, each closed by the issue with which it holds *most* elements or more."""
    found = []
    filled: list[int] = []
    for number, gradients in enumerate(ready):
        filled += gradients
        if sum(filled) >= most:
            found.append(_Bucket(tuple(filled), number))
            filled = []
    if filled:
        found.append(_Bucket(tuple(filled), len(ready) - 1))
    return found
