"""Changes with which a step fits in memory, each with its time and what it needs: :func:`remedies_of`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from simulator.api.context import Context
from simulator.api.fitting import StepFitting, Way
from simulator.api.outcome import with_size
from simulator.collectives.request import Unsuitable
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.checks import changed, refuse_all
from simulator.questions.layout import REPLICAS, Layout
from simulator.questions.options import SamplesOption
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.records import replace
from simulator.results.training import TrainingResult
from simulator.results.training_run import Remedy
from simulator.spelling import word_of
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from simulator.training import divided
from simulator.training.memory import communication_bytes, device_memory
from simulator.training.placement import Placement
from simulator.units import format_size
from simulator.workload.network import Network

_DEGREES = (1, 2, 4, 8)  # degrees of tensor parallelism to try
_MOST_DOUBLINGS = 13


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
    search = StepFitting(context, question, result, device, samples, result.device_count)
    ways = search.ways()
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
    ranked = sorted(known, key=lambda each: (each.step_time_s is None, round(each.step_time_s or 0.0, 12)))
    larger = [] if result.tightest.need.fits else [_larger_device(search, result.tightest.need.total_bytes)]
    if result.offload is not None and not result.offload.fits:
        larger.append(f"hosts with {format_size(result.offload.host_bytes, 3)} of memory")
    return (*ranked, Remedy(" and ".join(larger)))


def _kind(device: Device) -> str:
    return "GPU" if isinstance(device, Gpu) else "CPU"


def _adapters(search: StepFitting) -> Iterator[Way]:
    """Yield LoRA, of the rank that papers and frameworks start from, on weights as they are and in 4 bits."""
    adapted, sizes = search.question, dict(search.question.sizes)
    for setting in (("lora", 16), ("lora_weights", "nf4")):
        adapted = with_size(adapted, setting)
        if setting[0] not in sizes and search.fits(adapted):
            yield (
                " ".join(f"{word_of('sizes')} {name}={value}" for name, value in adapted.sizes if name not in sizes),
                adapted,
            )


def _more_devices(search: StepFitting) -> Iterator[tuple[str, StepQuestion | None]]:
    """Yield the fewest such devices (the count times a power of two) on which the step fits, with its layout.

    All parameters are sharded.  For each number, layers are split among 1, 2, 4 or 8 ranks, each without and with
    recomputation; the first that fits is yielded.  What is on the hosts stays there, with layers whole.
    """
    question, device = search.question, search.device
    network = search.context.network(question)
    ways = [("", question.options)]
    if question.options.has_backward:
        again = replace(question.options, recompute="full", recompute_blocks=None)
        ways.append((f" {word_of('recompute')}", again))
    degrees = _DEGREES if question.offload == "none" else (1,)
    for number in (search.count * 2**power for power in range(1, _MOST_DOUBLINGS)):
        there = _place_of(search, number)
        for tp in (degree for degree in degrees if number % degree == 0):
            for words, options in ways:
                layout = Layout(tp=tp, sp=tp > 1, zero=3)
                asked = replace(question, options=options)
                how = f"{word_of('parallel')} {layout.words}{words}"
                try:
                    own = divided(network, layout.on(number))
                    need = device_memory(own, asked, device, layout.on(number))
                    if not need.fits:
                        continue
                    if there is not None:
                        said, where, gpus = there
                        way = changed(asked, where=where, gpus=gpus, layout=layout)
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
    """Return the bytes of the communicators of *own*, sharded and split *tp* ways over GPUs that nobody has described.

    They count as those of the GPUs that there are, whose number changes rings little; 0 where there is only one.
    """
    if len(search.context.machine(asked.where).gpus) < 2:
        return 0.0
    group = search.context.group(asked.where, None)
    layouts = [Layout(zero=3), *([Layout(tp=group.n_ranks)] if tp > 1 else [])]
    return sum(communication_bytes(Placement(group, each.on(group.n_ranks)), asked, own) for each in layouts)


def _other_offloads(search: StepFitting) -> Iterator[Way]:
    """Yield ways to keep more or less of the state on the hosts with which the step fits on both."""
    question, count = search.question, search.count
    layout = Layout(zero=2) if count > 1 and question.layout == REPLICAS else question.layout
    begin = f"{word_of('parallel')} {layout.words} " if layout != question.layout else ""
    for kept in ("none", "optimizer", "optimizer+parameters"):
        with suppress(InputError):  # what does not go with the step, or has no host
            if question.offload != kept:
                asked = changed(question, layout=layout, offload=kept)
                refuse_all(asked.device_faults(count))
                if search.fits(asked) and search.context.step(asked).fits:
                    yield f"{begin}{word_of('offload')} {kept}", asked


def _larger_device(search: StepFitting, needed_bytes: float) -> str:
    """Return the description of a device with *needed_bytes* of memory, with the smallest GPU that holds the step.

    A GPU of the same vendor comes first: its software runs there too.
    """
    text, device = f"a {_kind(search.device)} with {format_size(needed_bytes, 3)}", search.device
    parts = {name: part for name in part_names("gpu") if isinstance(part := load_part(name), GpuPart)}
    vendor, least_Bps = (device.vendor, device.memory_bandwidth_Bps / 2) if isinstance(device, Gpu) else ("nvidia", 0)
    large = [
        (part.vendor != vendor, part.memory_size, name)
        for name, part in parts.items()
        if part.memory_size is not None
        and part.memory_size >= needed_bytes
        and (part.memory_bandwidth or 0.0) >= least_Bps
    ]
    for _, size, name in sorted(large):
        holding = replace(search, device=replace(device, memory_bytes=size))
        if search.question.divided or holding.need(search.question).fits:
            return f"{text}, such as {name} ({format_size(size, 3)})"
    return f"{text}, which no GPU of the catalogue has"
