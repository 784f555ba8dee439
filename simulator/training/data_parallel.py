"""Data parallelism: each rank has a replica of the network, and gradients are summed (``dp``).

As PyTorch's DistributedDataParallel does it (Li et al., "PyTorch Distributed", VLDB 2020, section 4.2): gradients go
into buckets as they become ready, and a bucket is exchanged while the backward pass goes on; the update waits for the
last.  Without buckets all are exchanged together after the backward pass.  Of several micro-batches the last exchanges
what all have summed.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulator.questions.options import StepOptions
from simulator.step.issue import Issue
from simulator.step.precision import casts, storage_of
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


def write_data_parallel(
    workers: Iterable[tuple[Role, Worker]],
    network: Network,
    options: StepOptions,
    exchange: Exchange,
    batches: Batches,
    *,
    bucket_bytes: float,
) -> None:
    """Write a step of all *workers*, each with its own role."""
    pairs = list(workers)
    builder = exchange.builder
    for number in batches:
        if number == batches.last:
            skipped = batches.skip(builder, number)
            for _, worker in pairs:
                worker.go_on(skipped)
            continue
        for role, worker in pairs:
            for issue in role.issues:
                if issue.part != "update":
                    worker.issue(issue, micro_batch=number)
    buckets: list[list[int]] = []  # what each bucket waits for, on all workers
    sizes: list[int] = []
    for role, worker in pairs:
        passes = [issue for issue in role.issues if issue.part != "update"]
        ends = list(_last(worker, passes, network, options, batches.last, bucket_bytes or float("inf")))
        sizes = [size for size, _ in ends]
        buckets = buckets or [[] for _ in ends]
        for waiting, (_, end) in zip(buckets, ends, strict=True):
            waiting.append(end)
    exchanged = [exchange("all-reduce", size, after, batches.last) for size, after in zip(sizes, buckets, strict=True)]
    for role, worker in pairs:
        for issue in role.issues:
            if issue.part == "update":
                worker.issue(issue, after=exchanged[-1:], micro_batch=batches.last)


def _last(
    worker: Worker, passes: list[Issue], network: Network, options: StepOptions, number: int, bucket_bytes: float
) -> Iterable[tuple[int, int]]:
    """Write the micro-batch that fills the buckets; yield the bytes of each, and at whose end it is full."""
    element = gradient_bytes(options)
    ready = {step.layer.name: element * sum(p.elements for p in step.ready) for step in backward_steps(network)}
    filled = 0
    for issue in passes:
        end = worker.issue(issue, micro_batch=number)
        if issue.part == "backward" and not issue.again:
            filled += ready.pop(issue.layer, 0)
        if filled >= bucket_bytes:
            yield filled, end
            filled = 0
    rest = filled + sum(ready.values())
    if rest:
        yield rest, worker.last[0]
