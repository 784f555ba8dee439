"""Changes of a step on its own devices with which it fits in their memory and their hosts': :class:`StepFitting`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations

from simulator.api.context import Context
from simulator.api.outcome import group_taking_part, has_room, need_on, samples_words, with_change, with_size
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.checks import changed
from simulator.questions.layout import FSDP, REPLICAS, Layout
from simulator.questions.options import SamplesOption
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, replace
from simulator.results.offload import host_memory
from simulator.results.training import TrainingResult
from simulator.spelling import word_of
from simulator.step.changes import possible_changes
from simulator.step.memory import MemoryNeed
from simulator.training import divided
from simulator.workload.network import block_name

_MOST_PARTS = 100_000  # samples of a micro-batch that are tried
_MOST_CHANGES = 3  # at once

Way = tuple[str, StepQuestion]  # a change as command-line words, and the question with it
Saving = tuple[str, Callable[[StepQuestion], StepQuestion]]  # a change that saves memory, and what makes it


@dataclass(frozen=True, slots=True)
class StepFitting:
    """A search for steps like that of ``question``, whose ``result`` does not fit, on devices like ``device`` that do.

    ``count`` devices take part.  ``samples``: the option that cuts the samples, of a device or of a micro-batch of a
    step of fixed size.
    """

    context: Context
    question: StepQuestion
    result: TrainingResult
    device: Device
    samples: SamplesOption
    count: int

    def need(self, asked: StepQuestion, *, gaps: bool = True) -> MemoryNeed:
        """Return what *asked* needs on the device that holds most, with the allocator's *gaps* or without.

        Raises InputError where the network cannot be divided.
        """
        group = group_taking_part(self.context, self.question, self.count)
        network = self.context.network(asked)
        return need_on(self.device, self.count, network, asked, group, gaps=gaps)

    def fits(self, asked: StepQuestion | None) -> bool:
        """Return whether *asked* fits, on its hosts too; False for None, or where it cannot be divided."""
        with suppress(InputError):
            if asked is not None and (bare := self.need(asked, gaps=False)).fits:
                return (has_room(bare) or self.need(asked).fits) and self.host_fits(asked)
        return False

    def host_fits(self, asked: StepQuestion) -> bool:
        """Return whether the hosts' memory holds what *asked* offloads; raises InputError if it cannot be divided."""
        if asked.offload == "none":
            return True
        group, place = group_taking_part(self.context, asked, self.count), self.context.single(asked)
        machine, network = self.context.machine(asked.where), self.context.network(asked)
        if group is not None:
            network, nodes = divided(network, asked.layout.on(self.count)), group.ranks
        else:
            assert place is not None
            nodes = (machine.node(place.name).index,)
        return host_memory(asked, network, machine, nodes).missing_bytes == 0.0

    def largest(self, sizes: Sequence[int], sized: Callable[[int], StepQuestion]) -> int:
        """Return the largest of *sizes*, ascending, with which the step *sized* fits, or 0.

        Gaps take long to find: they are first left out, and then guessed, to try few sizes with all.
        """

        def without(size: int) -> MemoryNeed:
            return self.need(sized(size), gaps=False)

        most = largest_fitting(sizes, without)
        if not most or (there := self.need(sized(most))).fits:
            return most
        least = largest_fitting(sizes, lambda size: replace(without(size), cached_bytes=there.cached_bytes))
        fits = bool(least) and self.need(sized(least)).fits
        low, high = (least, most) if fits else (0, least or most)
        return largest_fitting([size for size in sizes if low <= size < high], lambda size: self.need(sized(size)))

    def fewer_samples(self, asked: StepQuestion) -> Way | None:
        """Return the most samples with which *asked* fits, or None."""
        sizes = _smaller(asked, self.samples) if self.host_fits(asked) else ()  # hosts hold as much for few samples
        size = self.largest(sizes, lambda size: _cut(asked, self.samples, size))
        small = _cut(asked, self.samples, size) if size else asked
        return (samples_words(self.samples, small), small) if size else None

    def changes(self, asked: StepQuestion) -> list[Way]:
        """Return *asked* with changes, each of which makes it fit.

        The result has all combinations with the fewest changes, then the most samples that fit without changes; if
        there are none, the most that fit with all changes, and those of them that it needs.
        """
        source = self.context.source(asked)
        whole_scores = asked.layout.tp == 1 and asked.options.framework != "megatron" and asked.options.trains
        sizes = (*source.variants, *(source.savings if whole_scores else ()))
        savings: list[Saving] = [(words, partial(with_size, setting=setting)) for words, setting in sizes]
        possible = possible_changes(asked.options, self.device)
        savings += [(each.words, partial(with_change, each)) for each in possible if each.memory]
        found: list[Way] = []
        for n_changes in range(1, _MOST_CHANGES + 1):
            for chosen in combinations(savings, n_changes):
                way = _applied(chosen, asked)
                if way is not None and self.fits(way):
                    found.append((" ".join(words for words, _ in chosen), way))
            if found:
                break
        self._add_fewest_blocks(found)
        if (fewer := self.fewer_samples(asked)) is not None:
            found.append(fewer)
        if not found and (whole := _applied(savings, asked)) is not None:
            fewer = self.fewer_samples(whole)
            found = [self._needed(savings, asked, fewer)] if fewer is not None else []
        return found

    def _needed(self, savings: Sequence[Saving], asked: StepQuestion, fewer: Way) -> Way:
        """Return *asked* with *fewer* samples and those of *savings* without which it would not fit."""
        words, small = fewer
        for saving in reversed(savings):
            rest = [other for other in savings if other is not saving]
            way = _applied(rest, _cut(asked, self.samples, small.batch))
            if way is not None and self.fits(way):
                savings, small = rest, way
        return " ".join([*(each for each, _ in savings), words]), small

    def _add_fewest_blocks(self, found: list[Way]) -> None:
        """Add to recomputation alone, if that is *found*, the fewest blocks that must be recomputed, if not all."""
        again = word_of("recompute")
        place = next((at for at, (words, _) in enumerate(found) if words.split(" instead")[0] == again), None)
        if place is None:
            return
        words, asked = found[place]
        count = len({block_name(layer.name) for layer in self.context.network(asked).layers} - {""})

        def without(saved: int) -> StepQuestion:
            return replace(asked, options=replace(asked.options, recompute_blocks=count - saved))

        if saved := self.largest(range(1, count), without):
            some = words.replace(again, f"{again} {word_of('recompute_blocks')} {count - saved}", 1)
            found.insert(place + 1, (some, without(saved)))

    def ways(self) -> list[Way]:
        """Return the question with changes on the same devices, each of which makes it fit."""
        question, found = self.question, self.changes(self.question)
        if self.count == 1 or not question.options.trains or question.has_servers or question.one_process:
            return found
        tighter = [FSDP] if question.layout == REPLICAS else list(_tighter(question.layout, self.count))
        asked = [(f"{word_of('parallel')} {layout.words}", changed(question, layout=layout)) for layout in tighter]
        first = next(((words, way) for words, way in asked if self.fits(way)), None)
        if first is not None:
            return [first, *found]
        if asked and not found:
            words, way = asked[-1]
            found = [(f"{words} {change}", other) for change, other in self.changes(way)]
        return found


def largest_fitting(sizes: Sequence[int], need: Callable[[int], MemoryNeed]) -> int:
    """Return the largest of ascending *sizes* whose *need*, nearly linear in the size, fits, by interpolation; or 0."""

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


def _applied(chosen: Sequence[Saving], asked: StepQuestion) -> StepQuestion | None:
    """Return *asked* with the *chosen* changes, or None where they do not go with each other or with the step."""
    try:
        for _, make in chosen:
            asked = make(asked)
    except InputError:
        return None
    return asked


def _smaller(question: StepQuestion, samples: SamplesOption) -> Sequence[int]:
    """Return the smaller batches, or micro-batches that share out the samples, of which *question* may be made."""
    if samples == "batch":
        return range(1, question.batch)
    whole = question.batch * question.micro_batches
    found = [size for size in range(1, min(question.batch, _MOST_PARTS)) if whole % size == 0]
    try:
        _cut(question, samples, 1)
    except InputError:  # it takes no micro-batches
        return ()
    return found


def _cut(question: StepQuestion, samples: SamplesOption, size: int) -> StepQuestion:
    if samples == "batch":
        return replace(question, batch=size)
    return replace(question, batch=size, micro_batches=question.batch * question.micro_batches // size)


def _tighter(layout: Layout, n_ranks: int) -> Iterator[Layout]:
    """Yield layouts that hold less than *layout* on each of *n_ranks* ranks, the smallest change first.

    First sequence parallelism, if layers are split; then a sharded optimiser state, then both; then sharded
    parameters, if there are no pipeline stages.
    """
    replicas = layout.cp * (layout.on(n_ranks).dp or 1)
    split = replace(layout, sp=True) if layout.tp > 1 and not layout.sp else None
    if split is not None:
        yield split
    if replicas == 1:
        return
    if layout.zero and layout.shards is not None:
        yield replace(layout, shards=None)
    if layout.zero == 0:
        yield replace(layout, zero=1)
        if split is not None:
            yield replace(split, zero=1)
    if layout.pp == 1 and layout.zero < 3:
        yield replace(split or layout, zero=3)
