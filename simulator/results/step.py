"""The result of one simulated step, computed from its timeline."""

from collections.abc import Sequence
from functools import cached_property

from simulator.bands.composition import ClassShare as BandPart
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import arithmetic_rate, computes_in_fp32
from simulator.devices.predict import Device
from simulator.engine.timeline import Timeline
from simulator.places import Place
from simulator.questions.calibration import Calibration
from simulator.questions.options import StepOptions
from simulator.records import dataclass, field, replace, sums_by_key
from simulator.results import ran
from simulator.results.confidence import generation_of, main_format
from simulator.step.memory import MemoryNeed
from simulator.step.precision import precision_of, product_precision
from simulator.training.worker import ChunkRun
from simulator.workload.backward import gradient_order, training_flop
from simulator.workload.network import Family, Network, family_of, once
from simulator.workload.precision import Precision


@dataclass(frozen=True)
class StepResult:
    """The answer to one step on one device.

    The device computes for ``busy_s`` and the host launches for ``host_s``; for the rest of ``step_time_s`` the device
    waits for the host.  ``torch_flop`` counts FLOPs of products as torch does, forward and backward (model FLOPs, as
    Megatron-LM counts them, are in ``Rates``); ``flop_by_format`` counts those of the forward pass, by number format.
    ``family`` is the family of the network.
    ``host_measured``: a calibration has the host's times.  ``launched`` is what the device ran, of one of ``programs``.
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
    host_measured: bool
    step_time_s: float
    parts_s: dict[str, float]
    busy_s: float
    host_s: float
    torch_flop: float
    peak_flops_per_s: float
    flop_by_format: dict[Precision, int]
    memory: MemoryNeed
    gradient_order: tuple[str, ...]
    parameter_count: int
    trained_count: int
    simulation_events: int
    timeline: Timeline
    launched: Sequence[ran.LaunchRun] = field(repr=False, compare=False)
    network: Network = field(repr=False, compare=False)  # the network that one rank computes
    on_host: bool  # whether the device is a CPU, which computes where it launches
    micro_batches: int = 1
    prefix: str = ""  # prefix of the device's streams in the timeline
    programs: int = 1  # that share the device

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
        """FLOPs, as torch counts them, over those of the device at its peak in the same time; MFU is ``Rates.mfu``."""
        possible = self.peak_flops_per_s * self.step_time_s
        return self.torch_flop / possible if possible > 0 else 0.0

    @cached_property
    def kinds(self) -> tuple[ran.KindTime, ...]:
        """The kernels of all programs by class, the longest first."""
        found = ran.kinds_of(self.launched)
        return found if self.programs == 1 else tuple(kind.times(self.programs) for kind in found)

    @cached_property
    def layers(self) -> tuple[ran.LayerTime, ...]:
        """The layers of all programs, the longest first."""
        found = ran.layers_of(self.launched)
        return tuple(replace(layer, time_s=self.programs * layer.time_s) for layer in found)

    @cached_property
    def kernel_parts(self) -> tuple[BandPart, ...]:
        """The kernels by error class, in seconds."""
        return ran.kernel_parts(self.launched, main_format(self.flop_by_format) or "fp32")

    @cached_property
    def limits_s(self) -> dict[str, float]:
        """Seconds of the critical path by limiter, the most first (:mod:`simulator.results.ran`)."""
        return ran.critical_seconds(self.timeline, self.prefix)

    @property
    def bound(self) -> str:
        """What most of the critical path is spent on: compute, memory, latency, host, copies, exchange or fill."""
        return next(iter(self.limits_s), "host")


def make_step_result(
    place: Place,
    network: Network,
    options: StepOptions,
    memory: MemoryNeed,
    timeline: Timeline,
    prefix: str,
    micro_batches: int,
) -> StepResult:
    """Return the result of *timeline* for the device *place* with streams *prefix*, over all *micro_batches*."""
    runs = ran.issues_run(timeline, place, prefix)
    chunks = [] if runs else timeline.ran(ChunkRun)
    passes = [(task.about, span.length_s) for task, span in chunks if task.stream == f"{prefix}compute"]
    by_pass = sum(run.share * each.host_s for run, _ in passes for each in run.issues if each.part == run.part)
    return StepResult(
        machine=timeline.machine.name,
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
        host_measured=bool(place.device.calibration.host),
        step_time_s=timeline.end_s,
        parts_s=ran.lengths_of(runs) if runs else sums_by_key((run.part, seconds) for run, seconds in passes),
        busy_s=sum(each.times * each.busy_s for each in runs) if runs else sum(s for _, s in passes),
        host_s=_host(runs, timeline, place, prefix) if runs else by_pass,
        torch_flop=torch_flop_of(network, options) * micro_batches,
        peak_flops_per_s=peak_of(network, options, place),
        flop_by_format=flop_by_format_of(network, options, place),
        memory=memory,
        gradient_order=tuple(gradient_order(network)) if options.has_backward else (),
        parameter_count=network.parameter_count,
        trained_count=network.trained_count,
        simulation_events=timeline.simulation_events,
        timeline=timeline,
        launched=runs or ran.issues_of_passes(passes),
        network=network,
        on_host=place.name == place.host,
        micro_batches=micro_batches,
        prefix=prefix,
    )


def of_programs(step: StepResult, count: int) -> StepResult:
    """Return *step*, of one of *count* programs on the same device, as the device's work for all of them."""
    if count == 1:
        return step
    sums = {name: count * getattr(step, name) for name in ("samples", "tokens", "torch_flop", "busy_s")}
    return replace(step, **sums, programs=count, memory=step.memory.times(count))


def torch_flop_of(network: Network, options: StepOptions) -> float:
    """Return the FLOPs of products in a step of *network*, without recomputation."""
    backward = training_flop(network) - network.flop if options.has_backward else 0
    return float(backward + (network.flop if options.mode != "backward" else 0))


@once
def flop_by_format_of(network: Network, options: StepOptions, place: Place) -> dict[Precision, int]:
    """Return the FLOPs of products and convolutions in the forward pass, by number format."""
    return sums_by_key(
        (precision_of(options.precision, layer.operator, place.device), layer.operator.flop)
        for layer in network.layers
        if layer.operator.flop
    )


def peak_of(network: Network, options: StepOptions, place: Place) -> float:
    """Return the device's peak in FLOP/s, averaged over the formats of the network's FLOPs."""
    flop = flop_by_format_of(network, options, place)
    if not flop:
        return _rate(place.device, product_precision(options.precision, place.device))
    return sum(flop.values()) / sum(count / _rate(place.device, precision) for precision, count in flop.items())


def _rate(device: Device, precision: Precision) -> float:
    """Return the peak rate in *precision*, in FLOP/s, or without units for it the rate of the substitute."""
    if isinstance(device, Gpu) and (precision not in device.peak_flops_per_s or computes_in_fp32(device, precision)):
        return arithmetic_rate(device, precision)
    return device.peak(precision)


def _host(runs: Sequence[ran.LaunchRun], timeline: Timeline, place: Place, prefix: str) -> float:
    """Return the seconds of the host's launches: of a graph, those of one call; on a CPU, all but the kernels."""
    if place.name == place.host:
        return sum(each.times * each.issue.host_s for each in runs)
    own = (f"{prefix}host", "host")  # its own host stream, or the only one of one process
    return sum(span.length_s for task, span in timeline.ran() if task.stream in own)
