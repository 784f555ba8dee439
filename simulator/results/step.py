"""The result of one simulated step, computed from its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from simulator.bands.classes import kernel_chain
from simulator.bands.composition import Part as BandPart
from simulator.bands.composition import parts_of
from simulator.devices.cost import Bound, KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.rates import arithmetic_rate
from simulator.devices.gpu.units import computes_in_fp32
from simulator.devices.predict import Device
from simulator.engine.timeline import Timeline
from simulator.places import Place
from simulator.plan.plan import Activity, Work
from simulator.questions.calibration import Calibration
from simulator.questions.options import StepOptions
from simulator.results.composed import generation_of, main_format
from simulator.results.limits import limits_of
from simulator.results.trust import Trust, format_of, trust_in
from simulator.step.issue import Issue, Part
from simulator.step.memory import MemoryNeed
from simulator.step.precision import precision_of, product_precision
from simulator.training.pipeline import ChunkRun
from simulator.training.worker import Issued, Skipped
from simulator.workload.backward import gradient_order, training_flop
from simulator.workload.family import Family, family_of
from simulator.workload.network import Network
from simulator.workload.precision import Precision

__all__ = [
    "KindTime",
    "LayerTime",
    "StepResult",
    "flop_by_format_of",
    "make_step_result",
    "model_flop_of",
    "of_programs",
]


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of one class of kernels on the device, and what limits them."""

    kind: str
    time_s: float
    count: int
    flop: float
    bytes: float
    compute_s: float
    memory_s: float
    latency_s: float
    parts_s: dict[str, float]  # seconds by part of the step


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of one layer on the device, over all parts of the step; the other fields are of its longest kernel."""

    name: str
    time_s: float
    bound: str
    detail: str
    part: str


@dataclass(frozen=True)
class StepResult:
    """The answer to one step on one device.

    The device computes for ``busy_s`` and the host launches for ``host_s``; for the rest of ``step_time_s`` the device
    waits for the host.  ``model_flop`` counts the FLOPs of products as torch does, forward and backward;
    ``flop_by_format`` counts those of the forward pass, by number format.  ``family`` is the family of the network,
    ``kernel_parts`` are its kernels by error class, in seconds.
    """

    machine: str
    device: str
    part: str
    generation: str
    workload: str
    family: Family | None
    samples: int
    sample: str
    tokens: int  # of all samples together; 0 if there are none
    options: StepOptions
    calibrated: bool
    step_time_s: float
    parts_s: dict[str, float]
    busy_s: float
    host_s: float
    model_flop: float
    peak_flops_per_s: float
    flop_by_format: dict[Precision, int]
    kinds: tuple[KindTime, ...]
    layers: tuple[LayerTime, ...]
    kernel_parts: tuple[BandPart, ...]
    memory: MemoryNeed
    gradient_order: tuple[str, ...]
    parameter_count: int
    trained_count: int
    simulation_events: int
    timeline: Timeline
    network: Network = field(repr=False, compare=False)  # the network that one rank computes
    on_host: bool  # whether the device is a CPU, which computes where it launches
    micro_batches: int = 1
    prefix: str = ""  # prefix of the device's streams in the timeline

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.samples / self.step_time_s if self.step_time_s > 0 else 0.0

    @property
    def waiting_s(self) -> float:
        """Seconds in which the device waits for the host."""
        return max(0.0, self.step_time_s - self.busy_s)

    @property
    def utilisation(self) -> float:
        """Model FLOPs over those that the device could do at its peak in the same time (MFU)."""
        possible = self.peak_flops_per_s * self.step_time_s
        return self.model_flop / possible if possible > 0 else 0.0

    def trust_of(self, device_count: int, *, divided: bool = False) -> Trust | None:
        """Return the errors of predictions for such steps over *device_count* devices, or None if nobody measured them.

        *divided*: the devices divide the network among them.
        """
        main = main_format(self.flop_by_format)
        form = None if main is None else format_of(main)
        return trust_in("CPU" if self.on_host else "GPU", self.family, form, several=device_count > 1, divided=divided)

    @cached_property
    def limits_s(self) -> dict[str, float]:
        """Seconds of the critical path by limiter, the most first (:mod:`simulator.results.limits`)."""
        return limits_of(self.timeline, self.prefix)

    @property
    def bound(self) -> str:
        """What most of the critical path is spent on: compute, memory, latency, host, copies, exchange or fill."""
        return next(iter(self.limits_s), "host")


def make_step_result(
    *,
    machine: str,
    place: Place,
    network: Network,
    options: StepOptions,
    memory: MemoryNeed,
    timeline: Timeline,
    prefix: str = "",
    micro_batches: int = 1,
) -> StepResult:
    """Return the result of *timeline* on *place*, whose streams there start with *prefix*.

    Samples, tokens and FLOPs are those of one device, over all *micro_batches*.
    """
    ran = _ran(timeline, place, prefix)
    passes = [] if ran else _passes(timeline, prefix)
    flop_by_format = flop_by_format_of(network, options, place)
    trains = options.mode in ("train", "backward")
    return StepResult(
        machine=machine,
        device=place.name,
        part=place.part,
        generation=generation_of(timeline.machine.node(place.name).part) if place.name != place.host else "cpu",
        workload=network.title,
        family=family_of(network),
        samples=network.samples * micro_batches,
        sample=network.sample,
        tokens=network.tokens * micro_batches,
        options=options,
        calibrated=place.device.calibration != Calibration(),
        step_time_s=timeline.end_s,
        parts_s=_parts(ran) if ran else _stage_parts(passes),
        busy_s=sum(each.times * each.busy_s for each in ran) if ran else sum(s for _, s in passes),
        host_s=_host(ran, timeline, place, prefix) if ran else sum(r.share * _host_s(r) for r, _ in passes),
        model_flop=model_flop_of(network, options) * micro_batches,
        peak_flops_per_s=_peak(flop_by_format, options, place),
        flop_by_format=flop_by_format,
        kinds=_kinds(ran or _of_passes(passes)),
        layers=_layers(ran or _of_passes(passes)),
        kernel_parts=_kernel_parts(ran or _of_passes(passes), main_format(flop_by_format) or "fp32"),
        memory=memory,
        gradient_order=tuple(gradient_order(network)) if trains else (),
        parameter_count=network.parameter_count,
        trained_count=network.trained_count,
        simulation_events=timeline.simulation_events,
        timeline=timeline,
        network=network,
        on_host=place.name == place.host,
        micro_batches=micro_batches,
        prefix=prefix,
    )


def of_programs(step: StepResult, count: int) -> StepResult:
    """Return *step*, of one of *count* programs on the same device, as the device's work for all of them."""
    if count == 1:
        return step
    names = ("time_s", "count", "flop", "bytes", "compute_s", "memory_s", "latency_s")
    kinds = [
        replace(
            kind,
            **{name: count * getattr(kind, name) for name in names},
            parts_s={part: count * seconds for part, seconds in kind.parts_s.items()},
        )
        for kind in step.kinds
    ]
    return replace(
        step,
        samples=count * step.samples,
        tokens=count * step.tokens,
        model_flop=count * step.model_flop,
        busy_s=count * step.busy_s,
        kinds=tuple(kinds),
        layers=tuple(replace(layer, time_s=count * layer.time_s) for layer in step.layers),
        memory=step.memory.times(count),
    )


def model_flop_of(network: Network, options: StepOptions) -> float:
    """Return the FLOPs of products in a step of *network*, without recomputation."""
    if options.mode not in ("train", "backward"):
        return float(network.flop)
    return float(training_flop(network) - (network.flop if options.mode == "backward" else 0))


@dataclass(frozen=True, slots=True)
class _Ran:
    """An issue that the device ran ``times`` times: the end of the first run, and its busy time, in seconds."""

    issue: Issue
    end_s: float
    busy_s: float
    micro_batch: int
    times: int

    @property
    def stretch(self) -> float:
        """The busy time relative to the issue's time alone: less than 1 for a part of it, more under contention."""
        return self.busy_s / self.issue.device_s if self.issue.device_s else 1.0


def _ran(timeline: Timeline, place: Place, prefix: str) -> list[_Ran]:
    """Return the issues that the device at *place* ran, in order; skipped micro-batches count with their like."""
    stream = prefix + ("host" if place.name == place.host else "compute")
    mine = [
        (task, span) for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True) if task.stream == stream
    ]
    skipped = next((task.about for task, _ in mine if isinstance(task.about, Skipped)), None)
    found = []
    for task, span in mine:
        about = task.about
        if isinstance(about, Issued):
            alone_s = about.issue.device_s if about.on_host else task.duration_s
            busy_s = max(alone_s, span.end_s - span.start_s) if _loads(task) else alone_s
            more = skipped.count if skipped is not None and skipped.micro_batch == about.micro_batch else 0
            found.append(_Ran(about.issue, span.end_s, busy_s, about.micro_batch, 1 + more))
    return found


# -- of a pipeline stage ---------------------------------------------------------------


def _passes(timeline: Timeline, prefix: str) -> list[tuple[ChunkRun, float]]:
    """Return the passes that a stage ran, with their seconds."""
    return [
        (task.about, span.end_s - span.start_s)
        for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True)
        if task.stream == f"{prefix}compute" and isinstance(task.about, ChunkRun)
    ]


def _stage_parts(passes: Sequence[tuple[ChunkRun, float]]) -> dict[str, float]:
    lengths: dict[str, float] = {}
    for run, seconds in passes:
        lengths[run.part] = lengths.get(run.part, 0.0) + seconds
    return lengths


def _host_s(run: ChunkRun) -> float:
    return sum(issue.host_s for issue in run.issues if issue.part == run.part)


def _of_passes(passes: Sequence[tuple[ChunkRun, float]]) -> list[_Ran]:
    """Return the issues that a stage's device ran, each once with its count."""
    counts: dict[tuple[int, str], float] = {}
    issues: dict[tuple[int, str], tuple[Issue, ...]] = {}
    for run, _ in passes:
        key = id(run.issues), run.part
        counts[key] = counts.get(key, 0.0) + run.share
        issues[key] = run.issues
    return [
        _Ran(issue, 0.0, issue.device_s * counts[key] / times, 0, times)  # a sharded update runs only in part
        for key, found in issues.items()
        for times in [max(1, round(counts[key]))]
        for issue in found
        if issue.part == key[1]
    ]


def _loads(task: Activity) -> bool:
    return any(isinstance(part, Work) and part.loads for part in task.parts)


def flop_by_format_of(network: Network, options: StepOptions, place: Place) -> dict[Precision, int]:
    """Return the FLOPs of products and convolutions in the forward pass, by number format."""
    flop: dict[Precision, int] = {}
    for layer in network.layers:
        if layer.operator.flop:
            precision = precision_of(options.precision, layer.operator, place.device)
            flop[precision] = flop.get(precision, 0) + layer.operator.flop
    return flop


def _kernel_parts(ran: Sequence[_Ran], main: Precision) -> tuple[BandPart, ...]:
    """Return the kernels by error class, in seconds; all products count as products in the format *main*."""
    times_s = (
        (kernel_chain(kind, cost.bound, main), (kind, cost), each.times * each.stretch * cost.time_s, cost.known)
        for each in ran
        for kind, cost in zip(each.issue.work.kinds, each.issue.work.costs, strict=True)
    )
    return parts_of(times_s, 1.0)


def _peak(flop: dict[Precision, int], options: StepOptions, place: Place) -> float:
    """Return the device's peak in FLOP/s, averaged over the formats of the network's FLOPs."""
    if not flop:
        return _rate(place.device, product_precision(options.precision, place.device))
    return sum(flop.values()) / sum(count / _rate(place.device, precision) for precision, count in flop.items())


def _rate(device: Device, precision: Precision) -> float:
    """Return the peak rate in *precision*, in FLOP/s, or without units for it the rate of the substitute."""
    if isinstance(device, Gpu) and (precision not in device.peak_flops_per_s or computes_in_fp32(device, precision)):
        return arithmetic_rate(device, precision)
    return device.peak(precision)


def _host(ran: Sequence[_Ran], timeline: Timeline, place: Place, prefix: str) -> float:
    """Return the seconds of the host's launches: of a graph, those of one call; on a CPU, all but the kernels."""
    if place.name == place.host:
        return sum(each.times * each.issue.host_s for each in ran)
    spans = zip(timeline.plan.tasks, timeline.spans, strict=True)
    own = (f"{prefix}host", "host")  # its own host stream, or the only one of one process
    return sum(span.end_s - span.start_s for task, span in spans if task.stream in own)


def _parts(ran: Sequence[_Ran]) -> dict[str, float]:
    """Return the seconds of each part, from the end of the one before to its last kernel, summed over its runs."""
    lengths: dict[str, float] = {}
    before_s = 0.0
    for place, each in enumerate(ran):
        after = ran[place + 1] if place + 1 < len(ran) else None
        if after is None or after.issue.part != each.issue.part or after.micro_batch != each.micro_batch:
            part = each.issue.part
            lengths[part] = lengths.get(part, 0.0) + each.times * (each.end_s - before_s)
            before_s = each.end_s
            if after is not None and after.micro_batch > each.micro_batch + 1:  # skipped ones are counted above
                before_s += (each.times - 1) * (each.end_s - _batch_start(ran, place))
    return lengths


def _batch_start(ran: Sequence[_Ran], place: int) -> float:
    """Return the start of the micro-batch of *ran* at *place*, which is the end of the one before."""
    number = ran[place].micro_batch
    return max((each.end_s for each in ran[:place] if each.micro_batch < number), default=0.0)


@dataclass(slots=True)
class _Sums:
    """Sums over the kernels of one class."""

    count: int = 0
    flop: float = 0.0
    bytes: float = 0.0
    by_bound_s: dict[Bound, float] = field(default_factory=lambda: {"compute": 0.0, "memory": 0.0, "latency": 0.0})
    by_part_s: dict[str, float] = field(default_factory=dict)

    def add(self, cost: KernelCost, part: Part, times: int, stretch: float) -> None:
        time_s = times * stretch * cost.time_s
        self.count += times
        self.flop += times * min(1.0, stretch) * cost.flop
        self.bytes += times * min(1.0, stretch) * cost.bytes
        self.by_bound_s[cost.bound] += time_s
        self.by_part_s[part] = self.by_part_s.get(part, 0.0) + time_s

    def made(self, kind: str) -> KindTime:
        bounds = self.by_bound_s
        time_s = sum(bounds.values())
        shares = bounds["compute"], bounds["memory"], bounds["latency"]
        return KindTime(kind, time_s, self.count, self.flop, self.bytes, *shares, self.by_part_s)


def _kinds(ran: Sequence[_Ran]) -> tuple[KindTime, ...]:
    found: dict[str, _Sums] = {}
    for each in ran:
        for kind, cost in zip(each.issue.work.kinds, each.issue.work.costs, strict=True):
            found.setdefault(kind, _Sums()).add(cost, each.issue.part, each.times, each.stretch)
    kinds = [sums.made(kind) for kind, sums in found.items()]
    return tuple(sorted(kinds, key=lambda kind: -round(kind.time_s, 12)))


def _layers(ran: Sequence[_Ran]) -> tuple[LayerTime, ...]:
    times: dict[str, float] = {}
    longest: dict[str, tuple[KernelCost, Part]] = {}
    for each in ran:
        issue = each.issue
        name = issue.layer or issue.name
        times[name] = times.get(name, 0.0) + each.times * each.busy_s
        for cost in issue.work.costs:
            if name not in longest or cost.time_s > longest[name][0].time_s:
                longest[name] = cost, issue.part
    layers = []
    for name, time_s in times.items():
        if name in longest:
            cost, part = longest[name]
            layers.append(LayerTime(name, time_s, cost.bound, cost.detail, part))
    return tuple(sorted(layers, key=lambda layer: -round(layer.time_s, 12)))
