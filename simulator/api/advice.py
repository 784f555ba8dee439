"""Advice on a step: changes that make it faster, and changes that make it fit in memory (:func:`advised`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from simulator.api.context import Context
from simulator.api.outcome import faster, group_taking_part, need_on
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.checks import changed, refuse_all
from simulator.questions.layout import FSDP, REPLICAS, Layout
from simulator.questions.options import SamplesOption, StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.results.training_run import NOT_TRIED
from simulator.spelling import word_of
from simulator.step.changes import Change, possible_changes
from simulator.step.memory import MemoryNeed
from simulator.training import divided
from simulator.training.memory import device_memory
from simulator.training.placement import Placement
from simulator.workload.network import Network

_DEGREES = (1, 2, 4, 8)  # degrees of tensor parallelism to try
_MOST_DOUBLINGS = 13
_MOST_PARTS = 100_000  # samples of a micro-batch that are tried
_OF_THE_UPDATE = {"optimizer", "fused_optimizer"}  # irrelevant with servers, which run the update at memory rate
# A step with more simulation events is simulated once, without trying changes; an event of servers costs more.
_MOST_EVENTS, _MOST_EVENTS_OF_SERVERS = 50_000, 20_000


def advised(context: Context, question: StepQuestion, samples: SamplesOption = "batch") -> TrainingResult:
    """Return the result of *question* with faster ``alternatives``, and ``remedies`` if it does not fit in memory.

    Changes cut the samples by the option *samples*: those of a device, or of a micro-batch of a step of fixed size.

    Raises
    ------
    InputError, Unsuitable
        As :meth:`Context.step`.
    """
    result = context.step(question)
    if result.input is not None:
        from simulator.api.input import with_input_cures

        result = with_input_cures(context, question, result)
    count = result.device_count
    device = context.device(question.where, result.step.device, question.threads, question.software)
    changes = _ways(context, question, device, samples, several=count > 1)
    ways = ((words, context, asked) for words, asked in changes)
    is_fed = result.input is None or not result.input.is_slower  # otherwise only a faster input makes the step faster
    most_events = _MOST_EVENTS_OF_SERVERS if question.has_servers else _MOST_EVENTS
    is_small = result.step.simulation_events <= most_events
    alternatives = faster(result.step_time_s, question, ways) if is_fed and is_small else ()
    remedies: tuple[str, ...] = ()
    host_fits = result.offload is None or result.offload.fits
    if not host_fits:  # no other change that is tried relieves the host
        without = f"{word_of('offload')} none"
        alternatives = tuple(replace(each, fits=each.fits and each.change == without) for each in alternatives)
    elif not result.tightest.need.fits:
        from simulator.step.fitting import larger_device

        remedies = tuple(_remedies(context, question, device, count, samples))
        if not remedies and question.options.mode == "train" and question.layout.pp == 1:
            remedies = (*_more_devices(context, question, device, count), *_offloads(context, question, device, count))
        holds = partial(_holds, context, question, device, count)
        remedies = (*remedies, larger_device(result.tightest.need.total_bytes, device, holds))
    notes = result.notes if is_small or not is_fed else (*result.notes, NOT_TRIED)
    return replace(result, alternatives=alternatives, remedies=remedies, notes=notes)


def _holds(context: Context, question: StepQuestion, device: Device, count: int, memory_bytes: float) -> bool:
    """Return whether *count* devices like *device* would hold the step of *question* if they had *memory_bytes*."""
    large = replace(device, memory_bytes=memory_bytes)
    group = group_taking_part(context, question, count)
    return question.divided or need_on(large, count, context.network(question), question, group).fits


def faster_options(question: StepQuestion, device: Device) -> Iterator[tuple[Change, StepQuestion]]:
    """Yield the changes of options that may make the step of *question* faster, each with the question."""
    for change in possible_changes(question.options, device):
        if change.time:
            try:
                asked = replace(question, options=change.applied(question.options))
            except InputError:  # the optimiser or the loss waits for the device
                continue
            yield change, asked


def _ways(
    context: Context, question: StepQuestion, device: Device, samples: SamplesOption, *, several: bool
) -> Iterator[tuple[str, StepQuestion]]:
    if question.layout.pp > 1:  # each would simulate all stages
        return
    for words, sizes in _variants(context, question):
        yield words, replace(question, sizes=sizes)
    for change, asked in faster_options(question, device):
        if not (question.has_servers and change.options.keys() <= _OF_THE_UPDATE):
            yield change.words, asked
    if several and question.layout.zero < 3 and not question.bucket_bytes:
        yield f"{word_of('overlap')} bucket:25MiB", replace(question, bucket_bytes=BUCKET_BYTES)
    if question.offload != "none":
        yield f"{word_of('offload')} none", changed(question, offload="none")
        if question.layout.zero in (1, 2) and not question.round_robin:
            yield word_of("round_robin_gradients"), changed(question, round_robin=True)
    twice = replace(question, batch=2 * question.batch)
    if samples == "batch":
        yield _samples_words(samples, twice), twice
    elif question.micro_batches % 2 == 0:
        whole = replace(twice, micro_batches=question.micro_batches // 2)
        yield _samples_words(samples, whole), whole


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


def _samples_words(samples: SamplesOption, question: StepQuestion) -> str:
    return f"{word_of(samples)} {question.micro_batches if samples == 'micro_batches' else question.batch}"


def _variants(
    context: Context, question: StepQuestion, *, savings: bool = False
) -> Iterator[tuple[str, tuple[tuple[str, int | str], ...]]]:
    """Yield other variants of the network, with *savings* also those of memory: in words, and the sizes with it."""
    source = context.source(question)
    for words, setting in (*source.variants, *(source.savings if savings else ())):
        yield words, (*(size for size in question.sizes if size[0] != setting[0]), setting)


def _more_devices(context: Context, question: StepQuestion, device: Device, count: int) -> Iterator[str]:
    """Yield the smallest number of such devices (*count* times a power of two) on which the step fits, with its layout.

    All parameters are sharded.  For each number, layers are split among 1, 2, 4 or 8 ranks, each without and with
    recomputation; the first that fits is yielded.  If all GPUs of a node take part, the number is given in nodes.
    """
    in_nodes = 1 < count == len(context.machine(question.where).gpus) and _takes_nodes(context, question.where)
    network = context.network(question)
    ways = [("", question.options)]
    if question.options.trains:
        ways.append((f" {word_of('recompute')}", replace(question.options, recompute="full", recompute_blocks=None)))
    for number in (count * 2**power for power in range(1, _MOST_DOUBLINGS)):
        for tp in (degree for degree in _DEGREES if number % degree == 0):
            for words, options in ways:
                layout = Layout(tp=tp, sp=tp > 1, zero=3).on(number)
                try:
                    own = divided(network, layout)
                except InputError:  # heads or columns cannot be divided evenly
                    continue
                nodes = number // count * (question.where.nodes or 1)
                asked = replace(question, options=options)
                if not device_memory(own, asked, device, layout).fits:
                    continue
                where = replace(question.where, nodes=nodes)
                placement = Placement(context.group(where, None), layout) if in_nodes else None
                if device_memory(own, asked, device, layout, placement=placement).fits:
                    how = f"{word_of('parallel')} {replace(layout, dp=None, shards=None).words}{words}"
                    yield f"{word_of('nodes')} {nodes} {how}" if in_nodes else f"{number} such devices with {how}"
                    return


def _takes_nodes(context: Context, where: Where) -> bool:
    """Return whether there may be more nodes: their machine has a network, and is not a cluster itself."""
    try:
        context.machine(replace(where, nodes=2 * (where.nodes or 1)))
    except InputError:
        return False
    return True


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


def _offloads(context: Context, question: StepQuestion, device: Device, count: int) -> Iterator[str]:
    """Yield ways to keep the state of *count* devices on their hosts with which the step fits there too."""
    layout = Layout(zero=2) if count > 1 and question.layout == REPLICAS else question.layout
    begin = f"{word_of('parallel')} {layout.words} " if layout != question.layout else ""
    for kept in ("optimizer", "optimizer+parameters"):
        with suppress(InputError):  # what does not go with the step, or has no host
            if question.offload == "none":
                asked = changed(question, layout=layout, offload=kept)
                refuse_all(asked.device_faults(count))
                need = need_on(device, count, context.network(asked), asked, group_taking_part(context, asked, count))
                if need.fits and context.step(asked).fits:
                    yield f"{begin}{word_of('offload')} {kept}"


def _remedies(
    context: Context, question: StepQuestion, device: Device, count: int, samples: SamplesOption
) -> Iterator[str]:
    """Yield changes, each of which alone makes the step fit on each of *count* devices."""
    from simulator.step.fitting import SmallerParts, what_would_fit

    def builder(of: StepQuestion) -> Callable[[int], Network]:
        return lambda batch: context.network(replace(of, batch=batch))

    group = group_taking_part(context, question, count)

    def need(of: StepQuestion, ranks: int, network: Network, options: StepOptions) -> MemoryNeed:
        return need_on(device, ranks, network, replace(of, options=options), group)

    def fits(asked: StepQuestion) -> bool:
        return need(asked, count, context.network(asked), asked.options).fits

    def size_words(size: int) -> str:
        return _samples_words(samples, _cut(question, samples, size))

    def fitting(of: StepQuestion) -> list[str]:
        whole_scores = of.layout.tp == 1 and of.options.framework != "megatron" and of.options.trains
        built = []
        for words, sizes in _variants(context, of, savings=whole_scores):
            with suppress(InputError):  # what does not go with the step
                other = replace(of, sizes=sizes)
                context.network(other)
                built.append((words, builder(other)))
        smaller = SmallerParts(
            _smaller(of, samples), size_words, lambda size: partial(need, _cut(of, samples, size), count)
        )
        return what_would_fit(builder(of), of.batch, of.options, device, built, partial(need, of, count), smaller)

    found = fitting(question)
    if count == 1 or not question.options.trains or question.has_servers or question.one_process:
        yield from found
        return
    tighter = [FSDP] if question.layout == REPLICAS else list(_tighter(question.layout, count))
    for layout in tighter:
        if fits(changed(question, layout=layout)):
            yield f"{word_of('parallel')} {layout.words}"
            break
    else:
        if tighter and not found:
            asked, words = changed(question, layout=tighter[-1]), f"{word_of('parallel')} {tighter[-1].words}"
            found = [f"{words} {change}" for change in fitting(asked)]
    yield from found
