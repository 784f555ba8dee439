"""A step on one or several devices, as plain data: :class:`TrainingRun`; one change of it; failures of a run of it."""

from collections.abc import Mapping
from math import exp, expm1, inf, sqrt
from typing import TYPE_CHECKING, Literal

from simulator.engine.timeline import Timeline
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field, replace, sums_by_key
from simulator.results.bottleneck import LinkUse
from simulator.results.changed import ChangeEffect
from simulator.results.ran import StreamUse
from simulator.results.step import StepResult
from simulator.step.memory import MemoryNeed
from simulator.topology.schema import Price

if TYPE_CHECKING:
    from simulator.bands.composition import SharedNetwork
    from simulator.results.input import InputRun
    from simulator.results.offload import OffloadRun
    from simulator.results.servers import ServerRun
    from simulator.workload.network import Network


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory that each of ``count`` devices of a part needs, all of one pipeline ``stage`` if there are several.

    ``network`` is then that of the stage, whose chunks save the ``shares`` of what it saves.  ``peak_flops_per_s``
    is the peak of each, as :class:`StepResult` has it.
    """

    part: str
    count: int
    need: MemoryNeed
    peak_flops_per_s: float
    stage: int | None = None
    network: "Network | None" = field(default=None, compare=False, repr=False)
    shares: tuple[float, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StepClock:
    """What the clock of a long run costs a step: its kernels take ``kernels_s``, and ``rested_s`` after rest.

    ``state``: ``sustained`` where the board runs faster for some milliseconds, ``held`` where its power holds it below
    its boost clock from the start, ``measured`` where a calibration says what it holds.
    """

    state: Literal["sustained", "held", "measured"]
    kernels_s: float
    rested_s: float
    board_power_W: float


@dataclass(frozen=True, slots=True, repr=False)
class TrainingRun:
    """What a step does and how long it takes.

    ``step`` is the view of the first device of the slowest role, or of the busiest pipeline stage.  ``alone_rate`` is
    the sum of the devices' samples per second if each steps alone, at the usual pace of its part.  ``exposed_s`` is
    exposed communication, ``exchanging_s`` (never less) all communication, ``bubble_s`` a stage's wait for other
    stages.  ``tied_s``, a part of ``exposed_s``, is the sum of gradients of parameters that two stages hold (a tied
    embedding).  ``exchanges`` is the number of exchanges of a rank in a step, of ``exchanged_bytes`` in all as
    nccl-tests counts them.  ``counts_software``: the times of exchanges include launches and protocols; otherwise they
    are the least that the links allow.  ``is_bound``: they are those of an ideal schedule, which users cannot select.
    """

    question: StepQuestion
    step: StepResult
    device_count: int
    alone_rate: float
    memory: tuple[DeviceMemory, ...]
    streams: dict[str, StreamUse]
    timeline: Timeline
    counts_software: bool = True
    exposed_s: float = 0.0
    exchanging_s: float = 0.0
    bottleneck: LinkUse | None = None
    notes: tuple[str, ...] = ()
    bubble_s: float = 0.0
    tied_s: float = 0.0
    exchanges: int = 0
    exchanged_bytes: float = 0.0
    pace: float = 1.0  # time of the slowest rank relative to the mean
    is_bound: bool = False
    servers: "ServerRun | None" = None
    offload: "OffloadRun | None" = None
    checkpoints: "Checkpoints | None" = None
    shares: tuple[tuple[str, str, int], ...] = ()
    clock: StepClock | None = None
    alternatives: "tuple[Alternative, ...]" = ()
    remedies: "tuple[Remedy, ...]" = ()
    input: "InputRun | None" = None
    what_if: "tuple[Alternative, ...]" = ()  # gains of single changes, the largest first
    changed: ChangeEffect | None = None
    shared: "SharedNetwork | None" = None

    @property
    def machine(self) -> str:
        """The name of the machine."""
        return self.step.machine

    @property
    def parts(self) -> Mapping[str, int]:
        """The number of devices of each part."""
        return sums_by_key((device.part, device.count) for device in self.memory)

    @property
    def price_per_hour(self) -> Price | None:
        """The price of the whole machine per hour, if its file has one."""
        return self.timeline.machine.price_per_hour

    @property
    def price_per_million(self) -> Price | None:
        """The price of a million samples, if the machine's file has one."""
        price = self.price_per_hour
        return price.times(1e6 / 3600.0 / self.throughput) if price is not None and self.throughput > 0 else None

    @property
    def alone_s(self) -> float:
        """Seconds in which the devices do as many samples as in a step if each steps alone."""
        samples = self.samples if self.servers is None else self.step.samples * self.device_count
        return samples / self.alone_rate if self.alone_rate else self.step_time_s

    @property
    def strategy(self) -> str:
        """The strategy for gradients or shards; empty if nothing is exchanged."""
        return self.question.strategy if self.exchanging_s else ""

    @property
    def parallel(self) -> str:
        """How devices divide the work, in words of ``--parallel``; empty if each computes alone."""
        return self.question.layout.words if self.exchanging_s else ""

    @property
    def way(self) -> str:
        """Strategy, parallelism and overlap in a few words."""
        if self.exchanging_s:
            return self.question.way
        return self.step.device if self.device_count == 1 else "each alone"

    @property
    def called(self) -> str:
        """How the field calls that: DDP, FSDP, TP=8."""
        return self.question.called if self.exchanging_s else self.way

    @property
    def step_time_s(self) -> float:
        """Seconds of the step; with an input or servers, of a step in the steady state."""
        if self.input is not None:
            return self.input.period_s
        return self.timeline.end_s if self.servers is None else self.servers.period_s

    @property
    def replicas(self) -> int:
        """The number of replicas, each of one device or of several that divide the network."""
        return self.device_count // self.question.layout.model_ranks

    @property
    def samples(self) -> int:
        """Samples of all devices in a step."""
        if self.shares:
            return sum(samples for _, _, samples in self.shares) * self.step.micro_batches
        return self.step.samples * self.replicas

    @property
    def tokens(self) -> int:
        """Tokens of all devices in a step; 0 if there are none."""
        if self.shares:
            return self.step.tokens // self.step.samples * self.samples
        return self.step.tokens * self.replicas

    @property
    def throughput(self) -> float:
        """Samples per second of all devices."""
        if self.servers is not None:
            return self.step.samples * sum(pace.gpu_count / pace.period_s for pace in self.servers.paces)
        return self.samples / self.step_time_s if self.step_time_s > 0 else 0.0

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch; the last may have fewer samples, but takes as long.  0 if no epoch was asked for."""
        return -(-self.question.epoch_samples // self.samples)

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch: its steps, or with asynchronous servers its samples over the throughput."""
        if self.servers is not None and self.question.staleness is None:
            return self.question.epoch_samples / self.throughput
        return self.epoch_steps * self.step_time_s

    @property
    def scaling_efficiency(self) -> float:
        """Throughput relative to that of the devices if each steps alone."""
        return self.throughput / self.alone_rate if self.alone_rate else 1.0

    @property
    def fits(self) -> bool:
        """Whether the step fits in the memory of each device, and of each host if that holds a part."""
        return all(device.need.fits for device in self.memory) and (self.offload is None or self.offload.fits)

    @property
    def tightest(self) -> DeviceMemory:
        """The devices with the least memory left, or that lack most."""
        return max(self.memory, key=lambda device: device.need.total_bytes - device.need.available_bytes)

    @property
    def bound(self) -> str:
        """What bounds the step: ``input``, or what most of its critical path is spent on.

        That is ``host``, ``compute``, ``memory``, ``latency``, ``copies``, ``exchange``, a pipeline's ``fill``
        or, if the host updates, ``update`` or ``host_copies``.
        """
        return "input" if self.input is not None and self.input.is_slower else self.step.bound


NOT_TRIED = "no changes tried: each takes as long to simulate as this step; ask for one, as --precision or --batch"

WORTH_SAYING = 1.03  # least speed-up worth mentioning


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change and its time for as many samples; with it, ``batch`` in a micro-batch, ``samples`` on a device.

    ``total_bytes``, what a device then needs, is only of the first that fits.
    """

    change: str
    step_time_s: float
    fits: bool
    batch: int
    samples: int
    total_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change with which a step fits in memory, as command-line options or, for other devices, in words.

    ``step_time_s``, for as many samples as the original step has, and ``total_bytes``, what a device then needs, are
    None where the step with it was not simulated.
    """

    change: str
    step_time_s: float | None = None
    total_bytes: float | None = None

    @property
    def trains_all(self) -> bool:
        """Whether it trains what the original step trains; adapters are another task."""
        return "lora=" not in self.change


def best_interval_s(write_s: float, mtbf_s: float) -> float:
    """Return the interval between checkpoints that loses least time, in seconds of training.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
    Computer Systems 22 (2006), equation 37; to first order sqrt(2 write_s mtbf_s), as J. W. Young found ("A first
    order approximation to the optimum checkpoint interval", Communications of the ACM 17 (1974)).
    """
    if write_s >= 2.0 * mtbf_s:
        return mtbf_s
    x = write_s / (2.0 * mtbf_s)
    return sqrt(2.0 * write_s * mtbf_s) * (1.0 + sqrt(x) / 3.0 + x / 9.0) - write_s


@dataclass(frozen=True, slots=True)
class Cycle:
    """What is between two checkpoints, in seconds: ``trained_s`` of steps, evaluations, and the stop to write.

    A checkpoint is safe ``background_s`` after the stop.  Failures are independent, ``mtbf_s`` apart on average
    (infinite: none), and happen at any time; a failed run is back at its last safe checkpoint after ``restart_s``.
    """

    trained_s: float
    evaluated_s: float = 0.0
    stopped_s: float = 0.0
    background_s: float = 0.0
    restart_s: float = 0.0
    mtbf_s: float = inf

    @property
    def length_s(self) -> float:
        """Seconds of a cycle in which nothing fails."""
        return self.trained_s + self.evaluated_s + self.stopped_s

    @property
    def goodput(self) -> float:
        """Fraction of the run spent on steps that are kept: the effective training time.

        With a cycle of c = t + e + s, of which t trains, and restarts that fail too, a run that fails once in M loses
        t / M exp(-(R + b) / M) / (exp(c / M) - 1): J. T. Daly, "A higher order estimate of the optimum checkpoint
        interval for restart dumps" (2006), equation 20, where the first checkpoint after a restart is safe b later.
        """
        if self.mtbf_s == inf:
            return self.trained_s / self.length_s
        m, c = self.mtbf_s, self.length_s / self.mtbf_s
        return self.trained_s / m * exp(-(self.restart_s + self.background_s) / m - c) / -expm1(-c)

    @property
    def shares(self) -> Mapping[str, float]:
        """The fractions of the run: kept steps, evaluations, stops to write, restarts, and steps done again."""
        kept = self.goodput
        found = {
            "training": kept,
            "evaluation": kept * self.evaluated_s / self.trained_s,
            "checkpoints": kept * self.stopped_s / self.trained_s,
            "restarts": 0.0 if self.mtbf_s == inf else -expm1(-self.restart_s / self.mtbf_s),
        }
        return {**found, "repeated": max(0.0, 1.0 - sum(found.values()))}


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A run with a checkpoint after every ``every_steps`` steps of ``step_s``, and random failures.

    Failures are independent, ``mtbf_s`` apart on average, and also occur while writing and restarting.
    """

    step_s: float
    every_steps: int
    write_s: float
    restart_s: float
    mtbf_s: float

    @property
    def interval_s(self) -> float:
        """Seconds of training between two checkpoints."""
        return self.every_steps * self.step_s

    @property
    def goodput(self) -> float:
        """Fraction of the run spent on steps that are kept."""
        return Cycle(self.interval_s, 0.0, self.write_s, 0.0, self.restart_s, self.mtbf_s).goodput

    @property
    def written_share(self) -> float:
        """Fraction of the run spent on writing checkpoints that are kept."""
        return self.goodput * self.write_s / self.interval_s

    @property
    def failed_share(self) -> float:
        """Fraction of the run spent on repeated steps and restarts."""
        return 1.0 - self.goodput - self.written_share

    @property
    def young_s(self) -> float:
        """Young's first-order estimate of the best interval, in seconds."""
        return sqrt(2.0 * self.write_s * self.mtbf_s)

    @property
    def best_steps(self) -> int:
        """The best interval, in whole steps."""
        return max(1, round(best_interval_s(self.write_s, self.mtbf_s) / self.step_s))

    @property
    def best_goodput(self) -> float:
        """The goodput with the best interval."""
        return replace(self, every_steps=self.best_steps).goodput
