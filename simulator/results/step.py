"""The result of one simulated step, computed from its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.devices.calibration import Calibration
from simulator.devices.cost import Bound, KernelCost
from simulator.engine.timeline import Timeline
from simulator.plan.plan import Work
from simulator.results.trust import Family, Trust, format_of, trust_in
from simulator.step.issue import Issue, Part
from simulator.step.memory import MemoryNeed
from simulator.step.options import StepOptions
from simulator.step.place import Place
from simulator.step.precision import precision_of, product_precision
from simulator.workload.backward import training_flop
from simulator.workload.network import Network
from simulator.workload.precision import Precision

__all__ = ["Alternative", "KindTime", "LayerTime", "StepResult", "make_step_result"]

_PARTS: tuple[Part, ...] = ("forward", "backward", "update")


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds that one class of kernels takes on the device, and what they are spent on."""

    kind: str
    time_s: float
    count: int
    flop: float
    bytes: float
    compute_s: float
    memory_s: float
    latency_s: float
    parts_s: dict[str, float]  # of the time, what each part of the step takes


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of one layer on the device, all parts together; the rest is of its longest kernel."""

    name: str
    time_s: float
    bound: str
    detail: str
    part: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """What else could be done, with a batch of ``batch``, and the time for as many samples as the step has."""

    change: str
    step_time_s: float
    fits: bool
    batch: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a user asks for of one step.

    ``busy_s`` is how long the device computes, ``host_s`` how long the host issues; what is left of
    ``step_time_s`` the device waits for the host.  ``model_flop`` are the FLOPs of products as torch
    counts them, forward and backward; ``flop_by_format`` are those of the forward pass, by number format.
    ``alternatives`` are what would be faster, ``remedies`` what would each make it fit, in words; both are
    empty unless they were asked for.
    """

    machine: str
    device: str
    part: str
    workload: str
    samples: int
    sample: str
    tokens: int  # of all samples together; 0 where there are none
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
    memory: MemoryNeed
    gradient_order: tuple[str, ...]
    parameter_count: int
    simulation_events: int
    timeline: Timeline
    issues: tuple[Issue, ...]
    on_host: bool  # a CPU, which computes where it issues
    alternatives: tuple[Alternative, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return self.samples / self.step_time_s if self.step_time_s > 0 else 0.0

    @property
    def waiting_s(self) -> float:
        """Seconds that the device waits for the host."""
        return max(0.0, self.step_time_s - self.busy_s)

    @property
    def utilisation(self) -> float:
        """Model FLOPs against what the device's peak would do in the same time (MFU)."""
        possible = self.peak_flops_per_s * self.step_time_s
        return self.model_flop / possible if possible > 0 else 0.0

    @property
    def family(self) -> Family | None:
        """What kind of network it is: by convolutions, or by tokens without them and without recurrent layers."""
        flop = {kind.kind: kind.flop for kind in self.kinds}
        if flop.get("convolution", 0.0) > 0.5 * sum(flop.values()):
            return "CNN"
        return "transformer" if self.tokens and not {"convolution", "recurrence"}.intersection(flop) else None

    @property
    def trust(self) -> Trust | None:
        """How good predictions of such steps were, where others have measured them."""
        main = max(self.flop_by_format, key=lambda name: self.flop_by_format[name], default=None)
        return trust_in("CPU" if self.on_host else "GPU", self.family, None if main is None else format_of(main))

    @property
    def bound(self) -> str:
        """What most of the step's time goes to: compute, memory, latency or host."""
        times = {"host": self.waiting_s}
        for kind in self.kinds:
            for name in ("compute", "memory", "latency"):
                times[name] = times.get(name, 0.0) + getattr(kind, f"{name}_s")
        return max(times, key=lambda name: round(times[name], 12))


def make_step_result(
    *,
    machine: str,
    place: Place,
    network: Network,
    options: StepOptions,
    issues: Sequence[Issue],
    memory: MemoryNeed,
    timeline: Timeline,
    gradient_order: Sequence[str],
) -> StepResult:
    """Return the result of *timeline*, which ran *issues* at *place*."""
    model_flop = float(training_flop(network) if options.mode in ("train", "backward") else network.flop)
    if options.mode == "backward":
        model_flop -= network.flop
    flop_by_format = _flop_by_format(network, options, place)
    return StepResult(
        machine=machine,
        device=place.name,
        part=place.part,
        workload=network.name,
        samples=network.samples,
        sample=network.sample,
        tokens=network.tokens,
        options=options,
        calibrated=place.device.calibration != Calibration(),
        step_time_s=timeline.end_s,
        parts_s=_parts(issues, timeline, place.name),
        busy_s=sum(issue.device_s for issue in issues),
        host_s=_host(issues, timeline, place),
        model_flop=model_flop,
        peak_flops_per_s=_peak(flop_by_format, options, place),
        flop_by_format=flop_by_format,
        kinds=_kinds(issues),
        layers=_layers(issues),
        memory=memory,
        gradient_order=tuple(gradient_order),
        parameter_count=network.parameter_count,
        simulation_events=timeline.simulation_events,
        timeline=timeline,
        issues=tuple(issues),
        on_host=place.name == place.host,
    )


def _flop_by_format(network: Network, options: StepOptions, place: Place) -> dict[Precision, int]:
    """Return the FLOPs of products and convolutions, forward, by the number format that they are done in."""
    flop: dict[Precision, int] = {}
    for layer in network.layers:
        if layer.operator.flop:
            precision = precision_of(options.precision, layer.operator, place.device)
            flop[precision] = flop.get(precision, 0) + layer.operator.flop
    return flop


def _peak(flop: dict[Precision, int], options: StepOptions, place: Place) -> float:
    """Return the device's peak in FLOP/s, of formats mixed as the network's FLOPs are."""
    if not flop:
        return place.device.peak(product_precision(options.precision, place.device))
    return sum(flop.values()) / sum(count / place.device.peak(precision) for precision, count in flop.items())


def _host(issues: Sequence[Issue], timeline: Timeline, place: Place) -> float:
    """Return how long the host issues: where a graph is launched, by one call; a CPU, all that is not a kernel."""
    if place.name == place.host:
        return sum(issue.host_s for issue in issues)
    spans = zip(timeline.plan.tasks, timeline.spans, strict=True)
    return sum(span.end_s - span.start_s for task, span in spans if isinstance(task, Work) and task.stream == "host")


def _parts(issues: Sequence[Issue], timeline: Timeline, device: str) -> dict[str, float]:
    """Return how long each part lasts: from the end of the one before to its own last kernel."""
    ends: dict[Part, float] = {}
    place = iter(
        span.end_s
        for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True)
        if getattr(task, "place", "") == device and not task.label.startswith("launch graph")
    )
    for issue, end_s in zip(issues, place, strict=True):
        ends[issue.part] = end_s
    lengths: dict[str, float] = {}
    before_s = 0.0
    for part in _PARTS:
        if part in ends:
            lengths[part] = ends[part] - before_s
            before_s = ends[part]
    return lengths


@dataclass(slots=True)
class _Sums:
    """What is added up of one class of kernels."""

    count: int = 0
    flop: float = 0.0
    bytes: float = 0.0
    by_bound_s: dict[Bound, float] = field(default_factory=lambda: {"compute": 0.0, "memory": 0.0, "latency": 0.0})
    by_part_s: dict[str, float] = field(default_factory=dict)

    def add(self, cost: KernelCost, part: Part) -> None:
        self.count += 1
        self.flop += cost.flop
        self.bytes += cost.bytes
        self.by_bound_s[cost.bound] += cost.time_s
        self.by_part_s[part] = self.by_part_s.get(part, 0.0) + cost.time_s

    def made(self, kind: str) -> KindTime:
        bounds = self.by_bound_s
        time_s = sum(bounds.values())
        shares = bounds["compute"], bounds["memory"], bounds["latency"]
        return KindTime(kind, time_s, self.count, self.flop, self.bytes, *shares, self.by_part_s)


def _kinds(issues: Sequence[Issue]) -> tuple[KindTime, ...]:
    found: dict[str, _Sums] = {}
    for issue in issues:
        for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
            found.setdefault(kind, _Sums()).add(cost, issue.part)
    kinds = [sums.made(kind) for kind, sums in found.items()]
    return tuple(sorted(kinds, key=lambda kind: -round(kind.time_s, 12)))


def _layers(issues: Sequence[Issue]) -> tuple[LayerTime, ...]:
    times: dict[str, float] = {}
    longest: dict[str, tuple[KernelCost, Part]] = {}
    for issue in issues:
        name = issue.name.partition(" (")[0]
        times[name] = times.get(name, 0.0) + issue.device_s
        for cost in issue.work.costs:
            if name not in longest or cost.time_s > longest[name][0].time_s:
                longest[name] = cost, issue.part
    layers = []
    for name, time_s in times.items():
        if name in longest:
            cost, part = longest[name]
            layers.append(LayerTime(name, time_s, cost.bound, cost.detail, part))
    return tuple(sorted(layers, key=lambda layer: -round(layer.time_s, 12)))
