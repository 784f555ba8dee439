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
from simulator.questions.layout import Layout
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

    *shards* is what makes up a whole of shards, *replicas* those that have the same one.  None where there is one rank.
    """

    whole: Exchange | None = None
    shards: Exchange | None = None
    replicas: Exchange | None = None

    def reduce(self, size_bytes: float, after: Sequence[int], micro_batch: int, *, ends: bool = True) -> list[int]:
        """Add the sum of *size_bytes* of gradients; return what ends it, nothing where no other has the same.

        *ends*: it is that of all micro-batches, and goes on among replicas of a shard.
        """
        if self.shards is None:
            if self.whole is None or not ends:
                return []
            return [self.whole("all-reduce", size_bytes, after, micro_batch)]
        number = self.shards("reduce-scatter", size_bytes, after, micro_batch)
        if self.replicas is None or not ends:
            return [number]
        return [self.replicas("all-reduce", size_bytes / self.shards.n_ranks, [number], micro_batch)]

    def gather(self, size_bytes: float, after: Sequence[int], micro_batch: int) -> list[int]:
        """Add the all-gather of *size_bytes* of parameters; return it, nothing where each rank has all."""
        return [] if self.shards is None else [self.shards("all-gather", size_bytes, after, micro_batch)]


def write_data_parallel(
    builder: PlanBuilder,
    crew: Crew,
    network: Network,
    options: StepOptions,
    sums: Sums,
    of_experts: Sums | None,
    batches: Batches,
    *,
    layout: Layout,
    bucket_bytes: float,
    element_bytes: int,
    copies: bool,
    prefetches: bool = True,
) -> None:
    """Write a step of all workers of *crew*; *copies*: into buckets and out of them take time.

    *sums* are among the ranks that share parameters, *of_experts* among those with the same experts, where these are
    divided.  *element_bytes*: of a gradient that is exchanged.  With shards each updates its own, and all gather the
    parameters (ZeRO stages 1 and 2; Rajbhandari et al., SC 2020, section 5): after the update, or, where it
    *prefetches* and there are buckets, while the next step computes, which waits for those of each layer.  Who keeps
    a shard of gradients alone (stage 2) scatters them in every micro-batch.
    """
    last = batches.last
    passes = crew.passes()
    apart = expert_parameters(network) if of_experts is not None else frozenset()
    ahead = {}
    if bucket_bytes and prefetches and options.mode == "train" and layout.zero:
        ahead = _gather_ahead(network, options, _both(sums, of_experts), apart, bucket_bytes)
    most = bucket_bytes / element_bytes or float("inf")
    any_sums = any(among.whole is not None for among in _both(sums, of_experts))
    complete = ready_after([same[0] for same in passes], network) if any_sums else [()] * len(passes)
    ready = [tuple(p.elements for p in parameters if p.name not in apart) for parameters in complete]
    ready_experts = [tuple(p.elements for p in parameters if p.name in apart) for parameters in complete]
    buckets, expert_buckets = _buckets(ready, most), _buckets(ready_experts, most)

    def summed(number: int, ends: Sequence[Sequence[int]]) -> list[int]:
        """Add the sums of micro-batch *number*, whose issues are over with *ends*; return what ends those of each."""
        return [
            end
            for among, full in zip(_both(sums, of_experts), (buckets, expert_buckets), strict=False)
            for bucket in full
            for end in among.reduce(
                bucket.elements * element_bytes, ends[bucket.full_after], number, ends=number == last
            )
        ]

    for number in batches:
        if number == last:
            crew.go_on(batches.skip(builder, number))
            continue
        over = [
            crew.issue(same, after=_awaited(same[0], ahead if number == 0 else {}), micro_batch=number)
            for same in passes
        ]
        if layout.zero == 2:
            summed(number, over)
    ends: list[list[int]] = []  # of each issue, on all workers
    for same, gradients in zip(passes, ready, strict=True):
        ends.append(crew.issue(same, after=_awaited(same[0], ahead if last == 0 else {}), micro_batch=last))
        if gradients and copies:
            filling = [copy_in(role.place.device, same[0].layer, gradients, element_bytes) for role in crew.roles]
            ends[-1] = crew.issue(filling, micro_batch=last)
    sums_end = summed(last, ends)
    for bucket, number in zip(buckets, sums_end, strict=False) if copies else ():
        emptying = [copy_out(role.place.device, bucket.gradients, element_bytes) for role in crew.roles]
        crew.issue(emptying, after=[number], micro_batch=last)
    trained = sum(p.elements for p in network.parameters if p.trained)
    experts = sum(p.elements for p in network.parameters if p.trained and p.name in apart)
    crew.update(sums_end[-1:], last, layout.kept_share(trained, experts) if layout.zero else 1.0)
    if ahead or not layout.zero:
        return
    element = ELEMENT_BYTES[storage_of(options.precision)]
    of_apart = sum(p.elements for p in network.parameters if p.name in apart)
    updated = crew.last
    for among, elements in zip(_both(sums, of_experts), (network.parameter_count - of_apart, of_apart), strict=False):
        among.gather(elements * element, updated, last)


def _both(sums: Sums, of_experts: Sums | None) -> tuple[Sums, ...]:
    return (sums,) if of_experts is None else (sums, of_experts)


def _gather_ahead(
    network: Network, options: StepOptions, both: Sequence[Sums], apart: frozenset[str], bucket_bytes: float
) -> dict[str, tuple[int, ...]]:
    """Add the all-gathers of parameters, a bucket each in the order of their use; return by layer what it waits for."""
    size = ELEMENT_BYTES[storage_of(options.precision)]
    found: dict[str, tuple[int, ...]] = {}
    waiting: list[str] = []
    seen: set[str] = set()
    filled = [0, 0]  # of what all share, and of experts
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


def _awaited(issue: Issue, ahead: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the all-gathers that a forward pass waits for, where one goes on while the step computes."""
    return ahead.get(issue.layer, ()) if issue.part == "forward" else ()


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
