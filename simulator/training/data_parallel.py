"""Data parallelism: each rank has a replica of the network, and gradients are summed (``dp``).

As PyTorch's DistributedDataParallel does it (Li et al., "PyTorch Distributed", VLDB 2020, section 4.2): gradients go
into buckets as they become ready, and a bucket is exchanged while the backward pass goes on; the update waits for the
last.  Without buckets all are exchanged together after the backward pass.  Of several micro-batches the last exchanges
what all have summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from simulator.questions.options import StepOptions
from simulator.step.issue import Issue
from simulator.step.precision import casts, storage_of
from simulator.training.buckets import copy_in, copy_out
from simulator.training.exchange import Exchange
from simulator.training.micro_batches import Batches
from simulator.training.roles import Role
from simulator.training.worker import Worker
from simulator.workload.backward import backward_steps
from simulator.workload.network import Network
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["gradient_bytes", "write_data_parallel"]


def gradient_bytes(options: StepOptions) -> int:
    """Return the bytes of one element of the gradients that are exchanged."""
    return ELEMENT_BYTES["fp32" if casts(options.precision) else storage_of(options.precision)]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Gradients that are exchanged together, by their elements; it is full after the issue number ``full_after``."""

    gradients: tuple[int, ...]
    full_after: int

    @property
    def elements(self) -> int:
        return sum(self.gradients)


def write_data_parallel(
    workers: Sequence[tuple[Role, Worker]],
    network: Network,
    options: StepOptions,
    exchange: Exchange,
    batches: Batches,
    *,
    bucket_bytes: float,
    copies: bool,
) -> None:
    """Write a step of all *workers*, each with its own role; *copies*: into buckets and out of them take time."""
    for number in batches:
        if number == batches.last:
            skipped = batches.skip(exchange.builder, number)
            for _, worker in workers:
                worker.go_on(skipped)
            continue
        for role, worker in workers:
            for issue in role.issues:
                if issue.part != "update":
                    worker.issue(issue, micro_batch=number)
    element = gradient_bytes(options)
    passes = [[issue for issue in role.issues if issue.part != "update"] for role, _ in workers]
    ready = _ready(passes[0], network)
    buckets = _buckets(ready, bucket_bytes / element or float("inf"))
    ends: list[list[int]] = []  # of each issue, on all workers
    for (role, worker), issues in zip(workers, passes, strict=True):
        ends.append([])
        for issue, gradients in zip(issues, ready, strict=True):
            end = worker.issue(issue, micro_batch=batches.last)
            if gradients and copies:
                filling = copy_in(role.place.device, issue.layer, gradients, element)
                end = worker.issue(filling, micro_batch=batches.last)
            ends[-1].append(end)
    summed = [
        exchange("all-reduce", bucket.elements * element, [own[bucket.full_after] for own in ends], batches.last)
        for bucket in buckets
    ]
    for role, worker in workers:
        for bucket, number in zip(buckets, summed, strict=True) if copies else ():
            emptying = copy_out(role.place.device, bucket.gradients, element)
            worker.issue(emptying, after=[number], micro_batch=batches.last)
        for issue in role.issues:
            if issue.part == "update":
                worker.issue(issue, after=summed[-1:], micro_batch=batches.last)


def _ready(passes: Sequence[Issue], network: Network) -> list[tuple[int, ...]]:
    """Return the elements of the gradients that are complete after each issue and were not after the one before.

    With the first issue of a layer's backward pass all is complete that comes before the layer that is issued next.
    """
    steps = backward_steps(network)
    place = {step.layer.name: number for number, step in enumerate(steps)}
    first: dict[int, int] = {}  # of each layer that is issued: its place in the backward pass, and its first issue
    for number, issue in enumerate(passes):
        if issue.part == "backward" and not issue.again and issue.layer in place:
            first.setdefault(place[issue.layer], number)
    found: list[tuple[int, ...]] = [()] * len(passes)
    for begins, upto in pairwise([*sorted(first), len(steps)]):
        found[first[begins]] = tuple(p.elements for step in steps[begins:upto] for p in step.ready)
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
