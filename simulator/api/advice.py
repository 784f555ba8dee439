"""Advice on a step: changes of it and of its machine that make it faster or fit (:func:`advised`, :func:`what_if`)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

from simulator.api.context import Context
from simulator.api.outcome import devices_of, faster, samples_words, with_change, with_size
from simulator.api.variants import scaled, with_adapters, with_transport
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import holds_back
from simulator.devices.predict import Device, rested_device, steady_device
from simulator.errors import InputError, word_of
from simulator.questions.calibration import Calibration
from simulator.questions.checks import changed
from simulator.questions.layout import REPLICAS
from simulator.questions.options import SamplesOption
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import replace
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.results.training_run import NOT_TRIED, Alternative, StepClock
from simulator.step.changes import Change, possible_changes
from simulator.step.issue import launches_of
from simulator.topology import Topology
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart, LinkPart, NicPart, SwitchPart

_OF_THE_UPDATE = {"optimizer", "fused_optimizer"}  # irrelevant with servers, which run the update at memory rate
# A step with more simulation events is simulated once, without trying changes; an event of servers costs more.
_MOST_EVENTS, _MOST_EVENTS_OF_SERVERS = 50_000, 20_000
_MATTERS = 0.03  # of the kernels' time: a clock that costs less is not told


def advised(context: Context, question: StepQuestion, samples: SamplesOption = "batch") -> TrainingResult:
    """Return *result* with faster ``alternatives``, and ``remedies`` if it does not fit; *samples* says what is cut."""
    result = context.step(question)
    if result.input is not None:
        from simulator.api.input import with_input_cures

        result = with_input_cures(context, question, result)
    count = result.device_count
    device = context.device(question.where, result.step.device, question.threads, question.software)
    result = replace(result, clock=_clock(result.step, device))
    is_fed = result.input is None or not result.input.is_slower  # otherwise only a faster input makes the step faster
    most_events = _MOST_EVENTS_OF_SERVERS if question.has_servers else _MOST_EVENTS
    is_small = result.step.simulation_events <= most_events
    notes = result.notes if is_small or not is_fed else (*result.notes, NOT_TRIED)
    if not result.fits:
        from simulator.api.fitting import StepFitting, remedies_of

        timed = is_small and question.layout.pp == 1  # to simulate all stages again takes long
        remedies = remedies_of(StepFitting(context, question, result, device, samples, count), timed=timed)
        return replace(result, remedies=remedies, notes=notes)
    ways = ((words, context, asked) for words, asked in _ways(context, question, device, samples, several=count > 1))
    alternatives = faster(result.step_time_s, question, ways) if is_fed and is_small else ()
    return replace(result, alternatives=alternatives, notes=notes)


def _clock(step: StepResult, device: Device) -> StepClock | None:
    """Return what the clock of a long run costs *step* on *device*; None for CPUs and where it hardly matters."""
    if not isinstance(device, Gpu):
        return None
    steady, rested = steady_device(device), rested_device(device)
    if isinstance(steady, Gpu) and not holds_back(steady, rested, _MATTERS):
        return None
    runs = (launches_of(each, step.network, step.options) for each in (device, rested))
    kernels_s, rested_s = (sum(launch.device_s for launch in launches) for launches in runs)
    if rested_s > kernels_s * (1.0 - _MATTERS):
        return None
    bursts = device.above_boost or device.burst > 1.0
    state: Literal["sustained", "held", "measured"] = "sustained" if bursts else "held"
    return StepClock("measured" if device.calibration.clocks else state, kernels_s, rested_s, device.board_power_W)


def faster_options(question: StepQuestion, device: Device) -> Iterator[tuple[Change, StepQuestion]]:
    """Yield the changes of options that may make the step of *question* faster, each with the question."""
    for change in possible_changes(question.options, device):
        if change.time:
            with suppress(InputError):  # the optimiser or the loss waits for the device
                yield change, with_change(change, question)


def _ways(
    context: Context, question: StepQuestion, device: Device, samples: SamplesOption, *, several: bool
) -> Iterator[tuple[str, StepQuestion]]:
    if question.layout.pp > 1:  # each would simulate all stages
        return
    for words, setting in context.source(question).variants:
        yield words, with_size(question, setting)
    for change, asked in faster_options(question, device):
        if not (question.has_servers and change.options.keys() <= _OF_THE_UPDATE):
            yield change.words, asked
    if several:
        yield from _shared_otherwise(context, question)
    if question.offload != "none":
        yield f"{word_of('offload')} none", changed(question, offload="none")
        if question.layout.zero in (1, 2) and not question.round_robin:
            yield word_of("round_robin_gradients"), changed(question, round_robin=True)
    twice = replace(question, batch=2 * question.batch)
    if samples == "batch":
        yield samples_words(samples, twice), twice
    elif question.micro_batches % 2 == 0:
        whole = replace(twice, micro_batches=question.micro_batches // 2)
        yield samples_words(samples, whole), whole


def _shared_otherwise(context: Context, question: StepQuestion) -> Iterator[tuple[str, StepQuestion]]:
    """Yield exchanges in buckets, and where devices are unlike, samples divided so that all finish together."""
    if question.layout.zero < 3 and not question.bucket_bytes:
        yield f"{word_of('overlap')} bucket:25MiB", replace(question, bucket_bytes=BUCKET_BYTES)
    if not question.divided and question.layout == REPLICAS and len({*devices_of(context, question)}) > 1:
        with suppress(InputError):  # it does not go together with servers or micro-batches
            yield f"{word_of('divide')} best", changed(question, divided=True)


_TIMES = 2.0
_LATENCIES = ("latency", "plugin_time")
_LEAST = 1e-3  # of the step's time: a smaller gain does not count
_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe", "infiniband": "InfiniBand", "ethernet": "Ethernet"}


def what_if(context: Context, question: StepQuestion, step_time_s: float) -> tuple[Alternative, ...]:
    """Return changes that make *question* faster than *step_time_s*, the largest gain first."""
    found = faster(step_time_s, question, _changes(context, question), 1.0 / (1.0 - _LEAST))
    return tuple(sorted(found, key=lambda each: (round(each.step_time_s, 12), each.change)))


def _changes(context: Context, question: StepQuestion) -> Iterator[tuple[str, Context, StepQuestion]]:
    where = question.where
    several = question.device is None and len(question.gpus or context.machine(where).gpus) > 1
    if several and where.topology != "-":
        topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
        for words, changed in better_machines(topology).items():
            if changed != topology:
                there = replace(where, topology=f"{where.topology} with {words}")
                context.know(there, changed)
                yield words, context, replace(question, where=there)
    faster_parts: dict[str, Callable[[Calibration], Calibration]] = {
        "arithmetic of devices": lambda c: replace(c, compute=_TIMES * c.compute),
        "memory of devices": lambda c: replace(c, bandwidth=_TIMES * c.bandwidth),
        "host": lambda c: replace(c, dispatch=c.dispatch / _TIMES, host={k: s / _TIMES for k, s in c.host.items()}),
    }
    names = {node.part_name for node in context.machine(where).nodes_of(0)}
    for what, made in faster_parts.items():
        changes = {name: made(context.calibrations.get(name, Calibration())) for name in names}
        yield f"{what} twice as fast", context.calibrated({**context.calibrations, **changes}), question
    yield from ((words, context, asked) for words, asked in _switches(context, question, several=several))


def _switches(context: Context, question: StepQuestion, *, several: bool) -> Iterator[tuple[str, StepQuestion]]:
    options, layout = question.options, question.layout
    device = context.places(question.where, question.software).find(question.device, threads=question.threads).device
    yield from ((change.words, asked) for change, asked in faster_options(question, device))
    if options.recompute_words:
        words = f"no {options.recompute_words[0]}"
        yield words, replace(question, options=replace(options, recompute="none", recompute_blocks=None))
    if not several:
        return
    yield from _shared_otherwise(context, question)
    others = []
    if layout.tp > 1 and not layout.sp:
        others.append(replace(layout, sp=True))
    if not layout.zero and layout.process == "each":
        others.append(replace(layout, zero=1))
    if layout.pp > 1 and layout.vp == 1 and layout.schedule == "1f1b":
        others += [replace(layout, vp=2), replace(layout, schedule="zero-bubble")]
    for other in others:
        yield f"{word_of('parallel')} {other.words}", changed(question, layout=other)


def better_machines(topology: Topology) -> dict[str, Topology]:
    """Return *topology* with one sort of its parts twice as good, by what is, in words."""
    kinds = sorted({wire.part.of for wire in topology.wires if wire.part.of != "storage"})
    found = {f"{_NAMES.get(kind, kind)} links twice as fast": _faster_links(topology, kind) for kind in kinds}
    for words, factor, sorts, names in (
        ("latencies of links, adapters and switches halved", 1 / _TIMES, (LinkPart, SwitchPart, NicPart), _LATENCIES),
        ("memory of hosts twice as fast", _TIMES, (CpuPart,), ("memory_bandwidth",)),
        ("fabrics of switches twice as fast", _TIMES, (SwitchPart,), ("fabric_bandwidth",)),
    ):
        found[words] = scaled(topology, factor, lambda of, s=sorts, n=names: n if isinstance(of.part, s) else ())  # type: ignore[misc]
    direct = topology  # with adapters that read and write the memory of all GPUs of their node, however distant
    if topology.n_nodes > 1 and any(isinstance(device.part, NicPart) for device in topology.devices):
        direct = with_transport(with_adapters(topology, gpudirect=True), gpudirect_rdma="sys")
    return {**found, "GPUDirect between GPUs and adapters": direct}


def _faster_links(topology: Topology, kind: str) -> Topology:
    """Return *topology* with links of *kind* (``nvlink``, ``pcie``, ...), their adapters and switches twice as fast."""
    is_network = any(isinstance(d.part, NicPart) and d.part.network == kind for d in topology.devices)

    def figures(of: Any) -> Sequence[str]:
        match of.part:
            case LinkPart(of=sort) | NicPart(network=sort) if sort == kind:
                return ("bandwidth",)
            case SwitchPart(of=sort) if sort == kind or (sort == "network" and is_network):
                return ("fabric_bandwidth",)
        return ()

    return scaled(topology, _TIMES, figures)
