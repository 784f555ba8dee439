"""Find changes that make a step fit into memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import combinations

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.records import dataclass, replace
from simulator.spelling import word_of
from simulator.step.changes import possible_changes
from simulator.step.memory import MemoryNeed
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from simulator.units import format_size
from simulator.workload.network import Network, block_name

Build = Callable[[int], Network]
Need = Callable[[Network, StepOptions], MemoryNeed]


@dataclass(frozen=True, slots=True)
class Saving:
    """A change that saves memory, as command-line words: of the options, or of how the network is built."""

    words: str
    change: Callable[[StepOptions], StepOptions] = lambda options: options
    build: Build | None = None


@dataclass(frozen=True, slots=True)
class SmallerParts:
    """The smaller batches that a step may have: ``sizes``, ascending; the words that say one, and what it needs."""

    sizes: Sequence[int]
    words: Callable[[int], str]
    need: Callable[[int], Need]


def largest_batch(build: Build, options: StepOptions, smaller: SmallerParts) -> int:
    """Return the largest of the *smaller* batches whose step fits, or 0."""
    return _largest(smaller.sizes, lambda size: smaller.need(size)(build(size), options))


def _largest(sizes: Sequence[int], need: Callable[[int], MemoryNeed]) -> int:
    """Return the largest of *sizes*, ascending, whose *need* fits, or 0.

    The need is nearly linear in the size, so the search interpolates.
    """

    def excess(place: int) -> float:
        found = need(sizes[place])
        return found.total_bytes - found.available_bytes

    low, high = 0, len(sizes) - 1
    if high < 0 or (below := excess(low)) > 0:
        return 0
    if (above := excess(high)) <= 0:
        return sizes[high]
    trials = 0
    while high - low > 1:
        trials += 1
        guess = (low + high) // 2  # every third trial bisects, in case the need is not linear
        if trials % 3 and above > below:
            wanted = sizes[low] + int((sizes[high] - sizes[low]) * below / (below - above))
            guess = bisect_left(sizes, wanted, low, high)
        middle = min(max(guess, low + 1), high - 1)
        found = excess(middle)
        if found <= 0:
            low, below = middle, found
        else:
            high, above = middle, found
    return sizes[low]


def what_would_fit(
    build: Build,
    batch: int,
    options: StepOptions,
    device: Device,
    variants: Sequence[tuple[str, Build]],
    need: Need,
    smaller: SmallerParts,
) -> list[str]:
    """Return changes, as command-line words, each of which makes the step fit.

    *variants* are alternative ways to build the network that save memory.  *need* returns the memory need of a step.
    The result has all combinations with the fewest changes, then the largest of the *smaller* batches that fits without
    changes; if there are none, the largest that fits with all changes, and those of them that it needs.
    """
    of_options = [Saving(each.words, each.applied) for each in possible_changes(options, device) if each.memory]
    savings = [*(Saving(words, build=other) for words, other in variants), *of_options]
    found: list[str] = []
    for count in (1, 2, 3):
        for chosen in combinations(savings, count):
            changed_build, changed = _applied(chosen, build, options)
            if need(changed_build(batch), changed).fits:
                found.append(" ".join(saving.words for saving in chosen))
        if found:
            break
    again = word_of("recompute")
    alone = next((words for words in found if words.split(" instead")[0] == again), "")
    fewest = _fewest_blocks(build(batch), options, need) if alone else None
    if fewest is not None:
        some = alone.replace(again, f"{again} {word_of('recompute_blocks')} {fewest}", 1)
        found.insert(found.index(alone) + 1, some)
    size = largest_batch(build, options, smaller)
    if size:
        found.append(smaller.words(size))
    if not found:
        changed_build, changed = _applied(savings, build, options)
        size = largest_batch(changed_build, changed, smaller)
        if size:
            needed = _needed(savings, build, options, size, smaller.need(size))
            found.append(" ".join([*(saving.words for saving in needed), smaller.words(size)]))
    return found


def _needed(savings: Sequence[Saving], build: Build, options: StepOptions, size: int, need: Need) -> Sequence[Saving]:
    """Return those of *savings* without which a batch of *size*, which fits with all, does not fit."""
    for saving in reversed(savings):
        fewer = [other for other in savings if other is not saving]
        changed_build, changed = _applied(fewer, build, options)
        if need(changed_build(size), changed).fits:
            savings = fewer
    return savings


def _fewest_blocks(network: Network, options: StepOptions, need: Need) -> int | None:
    """Return the fewest blocks of a stage that must be recomputed, where that is not all of them, which fits."""
    count = len({block_name(layer.name) for layer in network.layers} - {""})

    def without(saved: int) -> MemoryNeed:
        return need(network, replace(options, recompute="full", recompute_blocks=count - saved))

    saved = _largest(range(1, count), without)
    return count - saved if saved else None


def larger_device(needed_bytes: float, device: Device, holds: Callable[[float], bool]) -> str:
    """Return the description of a device with *needed_bytes* of memory, with the smallest GPU that *holds* the step.

    A GPU of the vendor of *device* comes first: its software runs there too.
    """
    text = f"a device with {format_size(needed_bytes, 3)}"
    parts = {name: part for name in part_names("gpu") if isinstance(part := load_part(name), GpuPart)}
    vendor, least_Bps = (device.vendor, device.memory_bandwidth_Bps / 2) if isinstance(device, Gpu) else ("nvidia", 0.0)
    large = [
        (part.vendor != vendor, part.memory_size, name)
        for name, part in parts.items()
        if part.memory_size is not None
        and part.memory_size >= needed_bytes
        and (part.memory_bandwidth or 0.0) >= least_Bps
    ]
    for _, size, name in sorted(large):
        if holds(size):
            return f"{text}, such as {name} ({format_size(size, 3)})"
    return f"{text}, which no GPU of the catalogue has"


def _applied(chosen: Sequence[Saving], build: Build, options: StepOptions) -> tuple[Build, StepOptions]:
    for saving in chosen:
        build = saving.build or build
        options = saving.change(options)
    return build, options
