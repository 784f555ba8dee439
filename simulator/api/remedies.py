"""Changes with which a step fits in memory, each with its time and what it needs: :func:`remedies_of`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations

from simulator.api.context import Context
from simulator.api.outcome import group_taking_part, need_on, samples_words, with_size
from simulator.collectives.request import Unsuitable
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.checks import changed, refuse_all
from simulator.questions.layout import FSDP, REPLICAS, Layout
from simulator.questions.options import SamplesOption
from simulator.questions.step import StepQuestion
from simulator.records import dataclass
from simulator.results.training import TrainingResult
from simulator.results.training_run import Remedy
from simulator.spelling import word_of
from simulator.step.changes import Change, possible_changes
from simulator.step.memory import MemoryNeed
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from simulator.training import divided
from simulator.training.memory import device_memory
from simulator.training.placement import Placement
from simulator.units import format_size
from simulator.workload.network import block_name

_DEGREES = (1, 2, 4, 8)  # degrees of tensor parallelism to try
_MOST_DOUBLINGS = 13
_MOST_PARTS = 100_000  # samples of a micro-batch that are tried
_MOST_CHANGES = 3  # at once

Way = tuple[str, StepQuestion]  # a change as command-line words, and the question with it


@dataclass(frozen=True, slots=True)
class Saving:
    """A change that saves memory, as command-line words."""

    words: str
    applied: Callable[[StepQuestion], StepQuestion]


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for steps like that of ``question``, whose ``result`` does not fit, on devices like ``device`` that do.

    ``samples``: the option that cuts the samples, of a device or of a micro-batch of a step of fixed size.
    """

    context: Context
    question: StepQuestion
    result: TrainingResult
    device: Device
    samples: SamplesOption

    @property
    def count(self) -> int:
        """The number of its devices."""
        return self.result.device_count

    def need(self, asked: StepQuestion) -> MemoryNeed:
        """Return what *asked* needs on the device that holds most; raises InputError where it cannot be divided."""
        group = group_taking_part(self.context, self.question, self.count)
        return need_on(self.device, self.count, self.context.network(asked), asked, group)

    def fits(self, asked: StepQuestion | None) -> bool:
        """Return whether *asked* fits; a step that is none, or cannot be divided, does not."""
        with suppress(InputError):
            return asked is not None and self.need(asked).fits
        return False

    def largest(self, sizes: Sequence[int], sized: Callable[[int], StepQuestion]) -> int:
        """Return the largest of *sizes*, ascending, with which the step *sized* fits, or 0."""
        return largest_fitting(sizes, lambda size: self.need(sized(size)))

    def fewer_samples(self, asked: StepQuestion) -> Way | None:
        """Return the most samples with which *asked* fits, or None."""
        size = self.largest(_smaller(asked, self.samples), lambda size: _cut(asked, self.samples, size))
        if not size:
            return None
        small = _cut(asked, self.samples, size)
        return samples_words(self.samples, small), small

    def changes(self, asked: StepQuestion) -> list[Way]:
        """Return *asked* with changes, each of which makes it fit.

        The result has all combinations with the fewest changes, then the most samples that fit without changes; if
        there are none, the most that fit with all changes, and those of them that it needs.
        """
        savings = [*self._variants(asked), *self._options(asked)]
        found: list[Way] = []
        for n_changes in range(1, _MOST_CHANGES + 1):
            for chosen in combinations(savings, n_changes):
                way = _applied(chosen, asked)
                if way is not None and self.fits(way):
                    found.append((" ".join(saving.words for saving in chosen), way))
            if found:
                break
        self._add_fewest_blocks(found)
        if (fewer := self.fewer_samples(asked)) is not None:
            found.append(fewer)
        if not found and (whole := _applied(savings, asked)) is not None:
            fewer = self.fewer_samples(whole)
            found = [self._needed(savings, asked, fewer)] if fewer is not None else []
        return found

    def _variants(self, asked: StepQuestion) -> Iterator[Saving]:
        source = self.context.source(asked)
        whole_scores = asked.layout.tp == 1 and asked.options.framework != "megatron" and asked.options.trains
        for words, setting in (*source.variants, *(source.savings if whole_scores else ())):
            yield Saving(words, partial(with_size, setting=setting))

    def _options(self, asked: StepQuestion) -> Iterator[Saving]:
        for each in possible_changes(asked.options, self.device):
            if each.memory:
                yield Saving(each.words, partial(_with_change, change=each))

    def _needed(self, savings: Sequence[Saving], asked: StepQuestion, fewer: Way) -> Way:
        """Return *asked* with *fewer* samples and those of *savings* without which it would not fit."""
        words, small = fewer
        for saving in reversed(savings):
            rest = [other for other in savings if other is not saving]
            way = _applied(rest, _cut(asked, self.samples, small.batch))
            if way is not None and self.fits(way):
                savings, small = rest, way
        return " ".join([*(saving.words for saving in savings), words]), small

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

    def more_devices(self) -> Iterator[tuple[str, StepQuestion | None]]:
        """Yield the fewest such devices (the count times a power of two) on which the step fits, with its layout.

        All parameters are sharded.  For each number, layers are split among 1, 2, 4 or 8 ranks, each without and with
        recomputation; the first that fits is yielded.  If all GPUs of a node take part, the number is given in nodes,
        with the question.
        """
        context, question = self.context, self.question
        in_nodes = 1 < self.count == len(context.machine(question.where).gpus) and self._takes_nodes()
        network = context.network(question)
        ways = [("", question.options)]
        if question.options.trains:
            again = replace(question.options, recompute="full", recompute_blocks=None)
            ways.append((f" {word_of('recompute')}", again))
        for number in (self.count * 2**power for power in range(1, _MOST_DOUBLINGS)):
            for tp in (degree for degree in _DEGREES if number % degree == 0):
                for words, options in ways:
                    layout = Layout(tp=tp, sp=tp > 1, zero=3).on(number)
                    try:
                        own = divided(network, layout)
                    except InputError:  # heads or columns cannot be divided evenly
                        continue
                    nodes = number // self.count * (question.where.nodes or 1)
                    asked = replace(question, options=options)
                    if not device_memory(own, asked, self.device, layout).fits:
                        continue
                    where = replace(question.where, nodes=nodes)
                    placement = Placement(context.group(where, None), layout) if in_nodes else None
                    if device_memory(own, asked, self.device, layout, placement=placement).fits:
                        open_layout = replace(layout, dp=None, shards=None)
                        how = f"{word_of('parallel')} {open_layout.words}{words}"
                        if in_nodes:
                            there = changed(asked, where=where, gpus=None, layout=open_layout)
                            yield f"{word_of('nodes')} {nodes} {how}", there
                        else:
                            yield f"{number} such devices with {how}", None
                        return

    def _takes_nodes(self) -> bool:
        """Return whether there may be more nodes: their machine has a network, and is not a cluster itself."""
        where = self.question.where
        with suppress(InputError):
            self.context.machine(replace(where, nodes=2 * (where.nodes or 1)))
            return True
        return False

    def offloads(self) -> Iterator[Way]:
        """Yield ways to keep the state of the devices on their hosts with which the step fits there too."""
        question = self.question
        layout = Layout(zero=2) if self.count > 1 and question.layout == REPLICAS else question.layout
        begin = f"{word_of('parallel')} {layout.words} " if layout != question.layout else ""
        for kept in ("optimizer", "optimizer+parameters"):
            with suppress(InputError):  # what does not go with the step, or has no host
                if question.offload == "none":
                    asked = changed(question, layout=layout, offload=kept)
                    refuse_all(asked.device_faults(self.count))
                    if self.fits(asked) and self.context.step(asked).fits:
                        yield f"{begin}{word_of('offload')} {kept}", asked

    def larger_device(self, needed_bytes: float) -> str:
        """Return the description of a device with *needed_bytes* of memory, with the smallest GPU that holds the step.

        A GPU of the same vendor comes first: its software runs there too.
        """
        text, device = f"a device with {format_size(needed_bytes, 3)}", self.device
        parts = {name: part for name in part_names("gpu") if isinstance(part := load_part(name), GpuPart)}
        vendor, least_Bps = (
            (device.vendor, device.memory_bandwidth_Bps / 2) if isinstance(device, Gpu) else ("nvidia", 0)
        )
        large = [
            (part.vendor != vendor, part.memory_size, name)
            for name, part in parts.items()
            if part.memory_size is not None
            and part.memory_size >= needed_bytes
            and (part.memory_bandwidth or 0.0) >= least_Bps
        ]
        for _, size, name in sorted(large):
            holding = replace(self, device=replace(device, memory_bytes=size))
            if self.question.divided or holding.need(self.question).fits:
                return f"{text}, such as {name} ({format_size(size, 3)})"
        return f"{text}, which no GPU of the catalogue has"


def remedies_of(
    context: Context,
    question: StepQuestion,
    result: TrainingResult,
    device: Device,
    samples: SamplesOption,
    *,
    timed: bool,
) -> tuple[Remedy, ...]:
    """Return changes, each of which makes the step of *question* fit, whose *result* does not on devices like *device*.

    Changes on the same devices come first, the fastest at the head if they are *timed* (by simulating them); then more
    devices and states on the host, if nothing else keeps the optimiser; last a larger device.  *samples* is the option
    by which the samples are cut.
    """
    search = _Search(context, question, result, device, samples)
    ways = search.ways()
    found: list[tuple[str, StepQuestion | None]] = [*ways]
    as_trained = any(way.options.optimizer == question.options.optimizer for _, way in ways)
    if not as_trained and question.options.mode == "train" and question.layout.pp == 1:
        found += [*search.more_devices(), *search.offloads()]
    told = [_told(search, words, asked) if timed else Remedy(words) for words, asked in found]
    ranked = sorted((each for each in told if each is not None), key=_rank)
    return (*ranked, Remedy(search.larger_device(result.tightest.need.total_bytes)))


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


def _rank(remedy: Remedy) -> tuple[bool, float]:
    return remedy.step_time_s is None, round(remedy.step_time_s or 0.0, 12)


def _told(search: _Search, words: str, asked: StepQuestion | None) -> Remedy | None:
    """Return the remedy that *words* say, which makes *asked* of the question; None if it cannot be simulated."""
    if asked is None:
        return Remedy(words)
    try:
        step = search.context.step(asked)
    except (InputError, Unsuitable):
        return None
    share = step.samples / search.result.samples
    return Remedy(words, step.step_time_s / share, step.tightest.need.total_bytes)


def _applied(chosen: Sequence[Saving], asked: StepQuestion) -> StepQuestion | None:
    """Return *asked* with the *chosen* changes, or None where they do not go with each other or with the step."""
    try:
        for saving in chosen:
            asked = saving.applied(asked)
    except InputError:
        return None
    return asked


def _with_change(question: StepQuestion, change: Change) -> StepQuestion:
    return replace(question, options=change.applied(question.options))


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
