"""Sharded data parallelism: each rank keeps a shard of the parameters (``fsdp``, ZeRO-3).

As PyTorch's FSDP does it (Zhao et al., "PyTorch FSDP", VLDB 2023, sections 3.2 and 3.3): the parameters of each unit,
a repeated block or what lies between two, are gathered before its forward and again before its backward pass, one unit
ahead, and its gradients are reduced and scattered after; in every micro-batch.  A rank updates its shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from simulator.questions.options import StepOptions
from simulator.step.issue import Issue
from simulator.step.precision import storage_of
from simulator.training.exchange import Exchange
from simulator.training.micro_batches import Batches
from simulator.training.roles import Role
from simulator.training.worker import Worker
from simulator.workload.network import Network, block_name
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["unit_elements", "write_sharded"]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Issues of one unit in one pass; elements that are gathered before them, and scattered after."""

    issues: tuple[Issue, ...]
    gathered: int
    scattered: int


def write_sharded(
    workers: Iterable[tuple[Role, Worker]],
    network: Network,
    options: StepOptions,
    exchange: Exchange,
    batches: Batches,
    *,
    n_ranks: int,
    sums_in_fp32: bool,
    prefetches: bool,
) -> None:
    """Write a step of all *workers*, each with its own role.

    *sums_in_fp32*: of gradients in 16 bits; *prefetches*: a unit is gathered while the one before it computes its
    backward pass (BACKWARD_PRE), else after that, before its gradients are scattered (BACKWARD_POST).
    """
    pairs = list(workers)
    element = ELEMENT_BYTES[storage_of(options.precision)]
    summed = ELEMENT_BYTES["fp32"] if sums_in_fp32 else element
    units = [_units(network, [issue for issue in role.issues if issue.part != "update"]) for role, _ in pairs]
    exchanged: list[int] = []
    for number in batches:
        skipped = batches.skip(exchange.builder, number)
        for _, worker in pairs:
            worker.go_on(skipped)
        end = [last for _, worker in pairs for last in worker.last]  # of the unit before
        gathered = _gather(units[0][:1], exchange, element, end, number)
        for place, same in enumerate(zip(*units, strict=True)):
            following = units[0][place + 1 : place + 2]
            is_ahead = prefetches or same[0].issues[0].part == "forward"
            if is_ahead:  # while this unit computes: no more than two are there at once
                ahead = _gather(following, exchange, element, end, number)
            for (_, worker), own in zip(pairs, same, strict=True):
                for issue in own.issues:
                    worker.issue(issue, after=gathered, micro_batch=number)
            end = [last for _, worker in pairs for last in worker.last]
            if not is_ahead:
                ahead = _gather(following, exchange, element, end, number)
            if same[0].scattered:
                exchanged = [exchange("reduce-scatter", same[0].scattered * summed, end, number)]
            gathered = ahead
    for role, worker in pairs:
        for issue in role.issues:
            if issue.part == "update":
                worker.issue(issue, after=exchanged, micro_batch=batches.last, share=1.0 / n_ranks)


def _gather(units: Sequence[_Unit], exchange: Exchange, element: int, after: Sequence[int], number: int) -> list[int]:
    """Add the all-gather of the first of *units*; return it, nothing where there is none."""
    return [exchange("all-gather", unit.gathered * element, after, number) for unit in units if unit.gathered]


def unit_elements(network: Network) -> dict[str, int]:
    """Return the parameters of each repeated block, and of what lies in none (empty name), each counted once."""
    elements: dict[str, int] = {}
    seen: set[str] = set()
    for layer in network.layers:
        name = block_name(layer.name)
        for parameter in layer.parameters:
            if parameter.name not in seen:
                seen.add(parameter.name)
                elements[name] = elements.get(name, 0) + parameter.elements
    return elements


def _units(network: Network, passes: Sequence[Issue]) -> list[_Unit]:
    """Return the units of one micro-batch in the order in which they run, forward and backward."""
    elements = unit_elements(network)
    found: list[_Unit] = []
    outside: list[int] = []  # units of what lies in no block: gathered at first, and kept until the end
    for (part, name), issues in groupby(passes, key=lambda issue: (issue.part, block_name(issue.layer))):
        size = elements.get(name, 0)
        if not name:
            outside.append(len(found))
            size = 0
        found.append(_Unit(tuple(issues), size, size if part == "backward" else 0))
    if outside:
        found[outside[0]] = replace(found[outside[0]], gathered=elements.get("", 0))
        last = outside[-1]
        if found[last].issues[0].part == "backward":
            found[last] = replace(found[last], scattered=elements.get("", 0))
    return found
