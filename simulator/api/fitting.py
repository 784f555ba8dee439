"""Changes with which a step fits in memory (:class:`StepFitting`), timed, and devices on which it does."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations

from simulator.api.context import Context
from simulator.api.outcome import group_taking_part, has_room, need_on, samples_words, with_change, with_size
from simulator.collectives.communicator import Unsuitable
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError, word_of
from simulator.questions.checks import changed, refuse_all
from simulator.questions.layout import FSDP, REPLICAS, Layout
from simulator.questions.options import SamplesOption
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, replace
from simulator.results.offload import host_memory
from simulator.results.training import TrainingResult
from simulator.results.training_run import Remedy
from simulator.step.changes import possible_changes
from simulator.step.memory import MemoryNeed
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from simulator.training import divided
from simulator.training.memory import communication_bytes, device_memory
from simulator.training.placement import Placement
from simulator.units import format_size
from simulator.workload.network import Network, block_name

_MOST_PARTS = 100_000  # samples of a micro-batch that are tried
_MOST_CHANGES = 3  # at once
_DEGREES = (1, 2, 4, 8)  # degrees of tensor parallelism to try
_MOST_DOUBLINGS = 13
_MOST_TIMES = 10  # the memory of the largest GPU that exists; one with more is no way out
Way = tuple[str, StepQuestion]  # a change as command-line words, and the question with it
Saving = tuple[str, Callable[[StepQuestion], StepQuestion]]  # a change that saves memory, and what makes it


@dataclass(frozen=True, slots=True)
class StepFitting:
    """Steps like ``question``, which does not fit on ``count`` such devices, that do; ``samples`` may be cut."""

    context: Context
    question: StepQuestion
    result: TrainingResult
    device: Device
    samples: SamplesOption
    count: int

    def need(self, asked: StepQuestion, *, gaps: bool = True) -> MemoryNeed:
        """Return what *asked* needs on the device that holds most; raises InputError where it cannot be divided."""
        group = group_taking_part(self.context, self.question, self.count)
        return need_on(self.device, self.count, self.context.network(asked), asked, group, gaps=gaps)

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
        """Return the largest of ascending *sizes* with which *sized* fits, or 0; slow gaps are first guessed."""

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
        """Return *asked* with the fewest changes that fit, then with the most samples, if need be with all changes."""
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
        most, tighter = question.options.most_zero, [FSDP]
        if question.layout != REPLICAS or most < FSDP.zero:
            tighter = [each for each in _tighter(question.layout, self.count) if each.zero <= most]
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
    with suppress(InputError):
        for _, make in chosen:
            asked = make(asked)
        return asked
    return None


def _smaller(question: StepQuestion, samples: SamplesOption) -> Sequence[int]:
    if samples == "batch":
        return range(1, question.batch)
    whole = question.batch * question.micro_batches
    with suppress(InputError):  # it takes no micro-batches
        _cut(question, samples, 1)
        return [size for size in range(1, min(question.batch, _MOST_PARTS)) if whole % size == 0]
    return ()


def _cut(question: StepQuestion, samples: SamplesOption, size: int) -> StepQuestion:
    if samples == "batch":
        return replace(question, batch=size)
    return replace(question, batch=size, micro_batches=question.batch * question.micro_batches // size)


def _tighter(layout: Layout, n_ranks: int) -> Iterator[Layout]:
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
    if layout.pp == 1 and layout.zero < 3 and not layout.ep_overlap:
        yield replace(split or layout, zero=3)


def remedies_of(search: StepFitting, *, timed: bool) -> tuple[Remedy, ...]:
    """Return changes with which the step of *search* fits, if *timed* fastest first; then adapters; then devices."""
    context, question, result, ways = search.context, search.question, search.result, search.ways()
    found: list[tuple[str, StepQuestion | None]] = [*ways]
    as_trained = any(way.options.optimizer == question.options.optimizer for _, way in ways)
    if not as_trained and question.options.mode == "train" and question.layout.pp == 1:
        found += [*_adapters(search), *_more_devices(search), *_other_offloads(search)]
    known = []
    for words, asked in found:
        with suppress(InputError, Unsuitable):  # what cannot be simulated is none
            if asked is None or not timed:
                known.append(Remedy(words))
                continue
            step = context.step(asked)
            time_s = step.step_time_s / (step.samples / result.samples)
            known.append(Remedy(words, time_s, step.tightest.need.total_bytes))
    ranked = sorted(known, key=lambda r: (not r.trains_all, r.step_time_s is None, round(r.step_time_s or 0.0, 12)))
    larger = [] if result.tightest.need.fits else [*_larger_device(search, result.tightest.need.total_bytes)]
    if result.offload is not None and not result.offload.fits:
        larger.append(f"hosts with {format_size(result.offload.host_bytes, 3)} of memory")
    return (*ranked, *([Remedy(" and ".join(larger))] if larger else []))


def _kind(device: Device) -> str:
    return "GPU" if isinstance(device, Gpu) else "CPU"


def _adapters(search: StepFitting) -> Iterator[Way]:
    """Yield LoRA, of the rank that papers and frameworks start from, on weights as they are and in 4 bits."""
    adapted, sizes = search.question, dict(search.question.sizes)
    for setting in (("lora", 16), ("lora_weights", "nf4")):
        with suppress(InputError):  # a framework has no weights in 4 bits
            adapted = with_size(adapted, setting)
            if setting[0] not in sizes and search.fits(adapted):
                added = (f"{word_of('sizes')} {name}={value}" for name, value in adapted.sizes if name not in sizes)
                yield " ".join(added), adapted


def _more_devices(search: StepFitting) -> Iterator[tuple[str, StepQuestion | None]]:
    """Yield the fewest such devices (count times a power of two) on which the step fits, all parameters sharded."""
    question, device = search.question, search.device
    network = search.context.network(question)
    ways = [("", question)]
    if question.options.has_backward:
        options = replace(question.options, recompute="full", recompute_blocks=None)
        ways.append((f" {word_of('recompute')}", replace(question, options=options)))
    degrees, bound = (_DEGREES, "") if question.offload == "none" else ((1,), f" {word_of('bind_cores_to_rank')}")
    for number in (search.count * 2**power for power in range(1, _MOST_DOUBLINGS)):
        there = _place_of(search, number)
        for tp in (degree for degree in degrees if number % degree == 0):
            for words, asked in ways:
                layout = Layout(tp=tp, sp=tp > 1, zero=question.options.most_zero)
                how = f"{word_of('parallel')} {layout.words}{words}{bound}"
                try:
                    own = divided(network, layout.on(number))
                    need = device_memory(own, asked, device, layout.on(number))
                    if not need.fits:
                        continue
                    if there is not None:
                        said, where, gpus = there
                        way = changed(asked, where=where, gpus=gpus, layout=layout, bind_cores=bound != "")
                        if replace(search, question=way, count=number).fits(way):
                            yield f"{said} {how}", way
                            return
                    elif replace(need, communication_bytes=_buffer_bytes(search, own, asked, tp)).fits:
                        yield f"{number} such {_kind(device)}s with {how}", None
                        return
                except InputError:  # heads or columns cannot be divided evenly, or options do not go together
                    continue


def _place_of(search: StepFitting, number: int) -> tuple[str, Where, tuple[int, ...] | None] | None:
    """Return the option for *number* GPUs of the machine, or all of several such, with what it says; None if none."""
    where, n_gpus = search.question.where, len(search.context.machine(search.question.where).gpus)
    if search.question.device is not None or not n_gpus:
        return None
    if number <= n_gpus:
        return f"{word_of('gpus')} {number}", where, tuple(range(number))
    if number % n_gpus:
        return None
    with suppress(InputError):  # there are no more nodes: their machine has no network, or is a cluster itself
        search.context.machine(replace(where, nodes=2 * (where.nodes or 1)))
        nodes = number // n_gpus * (where.nodes or 1)
        of_all = "" if search.question.gpus is None or n_gpus == 1 else f" {word_of('gpus')} {number}"
        return f"{word_of('nodes')} {nodes}{of_all}", replace(where, nodes=nodes), None
    return None


def _buffer_bytes(search: StepFitting, own: Network, asked: StepQuestion, tp: int) -> float:
    """Return the bytes of *own*'s communicators, *tp* ways, on GPUs nobody described: as on those that are there."""
    if len(search.context.machine(asked.where).gpus) < 2:
        return 0.0
    group = search.context.group(asked.where, None)
    layouts = [Layout(zero=3), *([Layout(tp=group.n_ranks)] if tp > 1 else [])]
    return sum(communication_bytes(Placement(group, each.on(group.n_ranks)), asked, own) for each in layouts)


def _other_offloads(search: StepFitting) -> Iterator[Way]:
    question, count = search.question, search.count
    layout = Layout(zero=2) if count > 1 and question.layout == REPLICAS else question.layout
    begin = f"{word_of('parallel')} {layout.words} " if layout != question.layout else ""
    for kept in ("none", "optimizer", "optimizer+parameters"):
        with suppress(InputError):  # what does not go with the step, or has no host
            if question.offload != kept:
                bound, options = kept != "none" and count > 1, question.options
                options = replace(options, framework="deepspeed-zero3") if kept.endswith("parameters") else options
                asked = changed(question, layout=layout, offload=kept, options=options, bind_cores=bound)
                refuse_all(asked.device_faults(count))
                if search.fits(asked) and search.context.step(asked).fits:
                    words = f"{kept} {word_of('bind_cores_to_rank')}" if bound else kept
                    words += f" {word_of('framework')} {options.framework}" if options != question.options else ""
                    yield f"{begin}{word_of('offload')} {words}", asked


def _larger_device(search: StepFitting, needed_bytes: float) -> Iterator[str]:
    """Describe a device with *needed_bytes*, if one may come; an example is the smallest GPU, of this vendor first."""
    text, device = f"a {_kind(search.device)} with {format_size(needed_bytes, 3)}", search.device
    parts = {name: part for name in part_names("gpu") if isinstance(part := load_part(name), GpuPart)}
    vendor, least_Bps = (device.vendor, device.memory_bandwidth_Bps / 2) if isinstance(device, Gpu) else ("nvidia", 0)
    fast = {name: part for name, part in parts.items() if (part.memory_bandwidth or 0.0) >= least_Bps}
    sizes = [(part.vendor != vendor, part.memory_size or 0.0, name) for name, part in fast.items()]
    for _, size, name in sorted(each for each in sizes if each[1] >= needed_bytes):
        holding = replace(search, device=replace(device, memory_bytes=size))
        if search.question.divided or holding.need(search.question).fits:
            yield f"{text}, such as {name} ({format_size(size, 3)})"
            return
    if needed_bytes <= _MOST_TIMES * max(part.memory_size or 0.0 for part in parts.values()):
        yield f"{text}, which no GPU of the catalogue has"
