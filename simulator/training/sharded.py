"""Sharded data parallelism: each rank keeps a shard of the parameters (``fsdp``, ZeRO-3).

As PyTorch's FSDP does it (Zhao et al., "PyTorch FSDP", VLDB 2023, sections 3.2 and 3.3): the parameters of each unit,
a repeated block or what lies between two, are gathered before its forward and again before its backward pass, one unit
ahead, and its gradients are reduced and scattered after; in every micro-batch.  A rank updates its shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from simulator.questions.options import StepOptions
from simulator.step.issue import Issue, Part
from simulator.step.precision import storage_of
from simulator.training.crew import Crew
from simulator.training.exchange import Exchange
from simulator.training.micro_batches import Batches
from simulator.workload.network import Network, block_name
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["unit_elements", "write_sharded"]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Issues of one unit in one pass, of each role; elements that are gathered before them, and scattered after."""

    part: Part
    issues: tuple[tuple[Issue, ...], ...]
    gathered: int
    scattered: int


def write_sharded(
    crew: Crew,
    network: Network,
    options: StepOptions,
    exchange: Exchange,
    batches: Batches,
    *,
    replicas: Exchange | None = None,
    sums_in_fp32: bool,
    prefetches: bool,
) -> None:
    """Write a step of all workers of *crew*.

    *replicas* are the ranks with the same shard, where the shards are not spread over all (HSDP).
    *sums_in_fp32*: of gradients in 16 bits; *prefetches*: a unit is gathered while the one before it computes its
    backward pass (BACKWARD_PRE), else after that, before its gradients are scattered (BACKWARD_POST).
    """
    element = ELEMENT_BYTES[storage_of(options.precision)]
    summed = ELEMENT_BYTES["fp32"] if sums_in_fp32 else element
    units = _units(network, crew.passes())
    exchanged: list[int] = []
    for number in batches:
        crew.go_on(batches.skip(exchange.builder, number))
        end = crew.last  # of the unit before
        gathered = _gather(units[:1], exchange, element, end, number)
        for place, unit in enumerate(units):
            following = units[place + 1 : place + 2]
            is_ahead = prefetches or unit.part == "forward"
            if is_ahead:  # while this unit computes: no more than two are there at once
                ahead = _gather(following, exchange, element, end, number)
            for same in unit.issues:
                crew.issue(same, after=gathered, micro_batch=number)
            end = crew.last
            if not is_ahead:
                ahead = _gather(following, exchange, element, end, number)
            if unit.scattered:
                exchanged = [exchange("reduce-scatter", unit.scattered * summed, end, number)]
                if replicas is not None and number == batches.last:
                    share = unit.scattered * summed / exchange.n_ranks
                    exchanged = [replicas("all-reduce", share, exchanged, number)]
            gathered = ahead
    crew.update(exchanged, batches.last, 1.0 / exchange.n_ranks)


def _gather(units: Sequence[_Unit], exchange: Exchange, element: int, after: Sequence[int], number: int) -> list[int]:
    """Add the all-gather of the first of *units*; return it, nothing where there is none."""
    return [exchange("all-gather", unit.gathered * element, after, number) for unit in units if unit.gathered]


def unit_elements(network: Network, *, trained: bool = False) -> dict[str, int]:
    """Return the parameters of each repeated block, and of what lies in none (empty name), each counted once.

    *trained*: those alone that have gradients.
    """
    elements: dict[str, int] = {}
    seen: set[str] = set()
    for layer in network.layers:
        name = block_name(layer.name)
        for parameter in layer.trained if trained else layer.parameters:
            if parameter.name not in seen:
                seen.add(parameter.name)
                elements[name] = elements.get(name, 0) + parameter.elements
    return elements


def _units(network: Network, passes: Sequence[tuple[Issue, ...]]) -> list[_Unit]:
    """Return the units of one micro-batch in the order in which they run, forward and backward."""
    elements, with_gradients = unit_elements(network), unit_elements(network, trained=True)
    found: list[_Unit] = []
    outside: list[int] = []  # units of what lies in no block: gathered at first, and kept until the end
    for (part, name), issues in groupby(passes, key=lambda same: (same[0].part, block_name(same[0].layer))):
        size = elements.get(name, 0)
        if not name:
            outside.append(len(found))
            size = 0
        scattered = with_gradients.get(name, 0) if name and part == "backward" else 0
        found.append(_Unit(part, tuple(issues), size, scattered))
    if outside:
        found[outside[0]] = replace(found[outside[0]], gathered=elements.get("", 0))
        last = outside[-1]
        if found[last].part == "backward":
            found[last] = replace(found[last], scattered=with_gradients.get("", 0))
    return found
