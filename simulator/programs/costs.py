"""What a program's plan is written from: costs, labels, and the writer's state (docs/decisions/host.md)."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from simulator.devices import KernelCost
from simulator.devices.cpu import Cpu
from simulator.devices.dispatch import bare_launch_time, cpu_call_time, dispatch_time, graph_launch_time
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.predict import kernel_cost, steady_device
from simulator.kept import Kept
from simulator.places import Place
from simulator.plan.plan import Fragment, Plan
from simulator.programs.statements import FrontEnd, Statement, Times
from simulator.questions.options import StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass, field, replace, sums_by_key
from simulator.step.issue import launches_of
from simulator.step.operator import operator_kernels
from simulator.workload.network import Network
from simulator.workload.precision import ELEMENT_BYTES

Bound = Literal["arithmetic", "memory", "latency", "given"]
_BOUNDS: dict[str, Bound] = {"compute": "arithmetic", "memory": "memory", "latency": "latency"}
Networks = Callable[[str, int, StepOptions], Network]
Collectives = Callable[[Statement], Plan]


@dataclass(frozen=True, slots=True)
class CallPrice:
    """One call of the front end: seconds of the host and of the device, and the memory of its result."""

    label: str
    issue_s: float
    compute_s: float
    back_s: float  # from its end until a waiting host continues
    holds_bytes: float = 0.0  # of the result while the call is queued (MXNet; PyTorch's are in stream order)
    bound: Bound = "given"
    shares: tuple[float, float] = (1.0, 0.0)  # of SMs and of memory bandwidth, when it runs alone


class ProgramPricer:
    """Prices the operations of a program, each distinct one once; all networks may be ``compiled`` or ``captured``."""

    def __init__(
        self, software: FrontEnd, networks: Networks, collectives: Collectives, *, compiled: bool, captured: bool
    ) -> None:
        self.networks, self.collectives, self.compiled, self.captured = networks, collectives, compiled, captured
        self.is_mxnet = software.front_end == "mxnet"
        self.has_networks = False  # whether a network has been priced
        self._fragments = Kept()
        self._kept: dict[tuple[object, ...], tuple[tuple[CallPrice, ...], float]] = {}

    def of(self, run: Statement, place: Place) -> tuple[tuple[CallPrice, ...], float]:
        """Return the calls of *run* at *place*, and the bytes of its result; raises InputError as pricing does."""
        what, key = run.what, (run.what, place.name, run.keys.batch, run.options, run.keys.holds)
        if key not in self._kept:
            if isinstance(what, Times):
                held = run.keys.holds or 0.0
                self._kept[key] = (CallPrice("operator", what.issue, what.compute, what.back, held),), held
            elif isinstance(what, OperatorQuestion):
                self._kept[key] = self._operator(run, what, place)
            else:
                self._kept[key] = self._network(run, what, place)
        return self._kept[key]

    def exchanged(self, exchange: Statement) -> Fragment:
        """Return the plan fragment of *exchange*, the same object for equal exchanges; raises Unsuitable."""
        key = exchange.keys.exchange, exchange.size_bytes, exchange.keys.gpus, exchange.keys.strategy
        return self._fragments.once(key, lambda: Fragment(self.collectives(exchange)))

    def call_s(self, place: Place) -> float:
        """Return the host time, in seconds, to issue a copy or another small operator."""
        if self.is_mxnet:
            return place.device.constants["front_ends.mxnet"].operator_s
        return cpu_call_time(place.device) if isinstance(place.device, Cpu) else bare_launch_time(place.device)

    def _operator(self, run: Statement, what: OperatorQuestion, place: Place) -> tuple[tuple[CallPrice, ...], float]:
        device, wait_s = steady_device(place.device), place.device.constants["front_ends"].wait_s
        mxnet = place.device.constants["front_ends.mxnet"]
        costs = [kernel_cost(device, kernel, 1.0 if what.is_cold else 0.0) for kernel in operator_kernels(what)]
        if self.is_mxnet:
            issue_s = mxnet.operator_s if what.phase == "fwd" else mxnet.backward_s
        elif isinstance(device, Cpu) and not what.calls:
            issue_s = cpu_call_time(device)
        else:
            issue_s = dispatch_time(device, what.operator, what.phase)
        size = float(what.operator.output_elements * ELEMENT_BYTES[what.precision])
        compute_s, bound, shares = _together(device, costs, sum(cost.time_s for cost in costs))
        label = getattr(what.operator, "function", type(what.operator).__name__.lower())
        usual = size if self.is_mxnet else 0.0
        held = usual if run.keys.holds is None else run.keys.holds
        return (CallPrice(label, issue_s, compute_s, wait_s, held, bound, shares),), size

    def _network(self, run: Statement, what: str, place: Place) -> tuple[tuple[CallPrice, ...], float]:
        self.has_networks = True
        device, of = place.device, run.options
        wait_s, mxnet = device.constants["front_ends"].wait_s, device.constants["front_ends.mxnet"]
        captured = of.cuda_graph or (self.captured and isinstance(device, Gpu))
        options = replace(of, compiled=of.compiled or self.compiled, cuda_graph=captured)
        network = self.networks(what, run.keys.batch, options)
        sizes = {layer.name: float(network.elements[layer.output] * ELEMENT_BYTES["fp32"]) for layer in network.layers}
        updated = sum(p.trained for p in network.parameters)
        forward_s = mxnet.compiled_s if options.compiled else mxnet.layer_s
        mxnet_s = {"forward": forward_s, "backward": mxnet.backward_s, "update": mxnet.operator_s * updated}
        priced = []
        for issue in launches_of(device, network, replace(options, compiled=False) if self.is_mxnet else options):
            compute_s, bound, shares = _together(device, issue.work.costs, issue.device_s)
            host_s = mxnet_s[issue.part] if self.is_mxnet else issue.host_s
            held = sizes.get(issue.layer, 0.0) if self.is_mxnet and issue.part != "update" else 0.0
            priced.append(CallPrice(issue.name, host_s, compute_s, wait_s, held, bound, shares))
        if options.cuda_graph:
            priced = [_captured(what, priced, graph_launch_time(device))]
        return tuple(priced), sizes[network.layers[-1].name]


def _together(device: Any, costs: Sequence[KernelCost], seconds: float) -> tuple[float, Bound, tuple[float, float]]:
    """Return the *seconds* of kernels run in sequence, their main bound, and the shares of the device they use."""
    by_bound = sums_by_key((_BOUNDS[cost.bound], cost.time_s) for cost in costs)
    bound = max(by_bound, key=lambda name: by_bound[name]) if by_bound else "given"
    if not isinstance(device, Gpu) or not seconds:
        return seconds, bound, (1.0, 0.0)
    moving_s = sum(cost.bytes for cost in costs) / achieved_bandwidth(device)
    filling_rate = device.constants["contention"].filling_share * device.peak_flops_per_s["fp32"]
    filled_s = (cost.flop / filling_rate for cost in costs if cost.bound == "compute")
    computing_s = min(by_bound.get("arithmetic", 0.0), sum(filled_s))
    return seconds, bound, (min(1.0, computing_s / seconds), min(1.0, moving_s / seconds))


def _captured(what: str, priced: Sequence[CallPrice], launch_s: float) -> CallPrice:
    total_s = sum(each.compute_s for each in priced)
    by_bound = sums_by_key((each.bound, each.compute_s) for each in priced)
    bound = max(by_bound, key=lambda name: by_bound[name])
    share = [sum(each.shares[i] * each.compute_s for each in priced) / total_s if total_s else 0.0 for i in (0, 1)]
    held = sum(each.holds_bytes for each in priced)
    return CallPrice(f"graph of {what}", launch_s, total_s, priced[-1].back_s, held, bound, (share[0], share[1]))


Use = Literal["issue", "python", "wait", "mark", "kernel", "copy", "hidden"]


@dataclass(frozen=True, slots=True)
class ProgramLabel:
    """The host issues, computes or waits, a device computes, data is copied, or (``hidden``) a delay passes."""

    use: Use
    bound: Bound = "given"
    bytes: float = 0.0
    issue_s: float = 0.0  # front end's share of an operator that the host itself computes


@dataclass(frozen=True, slots=True)
class SkippedRepetitions:
    """Repetitions that were skipped at once: their number, and the stream's busy seconds in all, by use and bound."""

    count: int
    busy_s: tuple[tuple[Use, Bound, float], ...]


QueueEntry = tuple[int, float]  # the end of an operator, so many seconds after that of the activity


@dataclass(frozen=True, slots=True)
class _Passed:
    """``times`` repetitions of the operators ``base`` at intervals of ``period_s``, numbered from ``first``."""

    first: int
    base: tuple[QueueEntry, ...]
    times: int
    period_s: float

    def at(self, number: int) -> QueueEntry:
        again, place = divmod(number - self.first, len(self.base))
        ended, late_s = self.base[place]
        return ended, late_s + (again + 1) * self.period_s


@dataclass(slots=True)
class StreamQueue:
    """The operators of a stream in order of issue; ``count`` is the number issued so far."""

    depth: int
    count: int = 0
    _written: dict[int, int] = field(default_factory=dict)  # operator -> activity
    _passed: list[_Passed] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Record the activity *number* as the next operator."""
        self._written[self.count] = number
        self.count += 1

    def entry(self, operator: int) -> QueueEntry:
        """Return the end of the operator with that number."""
        number = self._written.get(operator)
        if number is not None:
            return number, 0.0
        return next(passed for passed in reversed(self._passed) if passed.first <= operator).at(operator)

    def blocker(self) -> QueueEntry | None:
        """Return the entry for which the next operator waits; None where the queue has room."""
        return None if not self.depth or self.count < self.depth else self.entry(self.count - self.depth)

    def skip(self, operators: int, times: int, period_s: float) -> None:
        """Record *times* further repetitions of the last *operators*, each *period_s* after the one before."""
        if operators and times:
            base = tuple(self.entry(n) for n in range(self.count - operators, self.count))
            self._passed.append(_Passed(self.count, base, times, period_s))
            self.count += operators * times

    def pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return (first, last) of the ranges of operators from *first* to before *last* with evenly spaced ends."""
        passed = (each.first + len(each.base) * times for each in self._passed for times in (0, each.times))
        after = (n + 1 for n in self._written)
        cuts = {first, last, min(max(self.count, first), last), *passed, *self._written, *after}
        inside = sorted(cut for cut in cuts if first <= cut <= last)
        return [(a, b - 1) for a, b in itertools.pairwise(inside) if b > a]


@dataclass(slots=True)
class DeviceTensor:
    """A tensor: its device, its bytes, and the activities after which it is ready."""

    device: str
    size_bytes: float
    ready: tuple[int, ...] = ()
    back_s: float = 0.0


@dataclass(slots=True)
class Stream:
    """A stream of a device: its last activity, further ones the next must wait for, and the delay of a wait for it."""

    device: str
    queue: StreamQueue
    last: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Repetitions:
    """``times`` repetitions, each ``issue_s`` later on the host and ``done_s`` later on the device than the last."""

    times: int
    issue_s: float
    done_s: float


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Memory held from issue to end, also in the skipped repetitions ``again``, the innermost loop's first."""

    issued: int
    done: int
    size_bytes: float
    again: tuple[Repetitions, ...] = ()


@dataclass(slots=True)
class MarkState:
    """A mark: the activities that passed it, and their number."""

    numbers: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class State:
    """The whole state."""

    tensors: dict[str, DeviceTensor] = field(default_factory=dict)
    events: dict[str, tuple[int, ...]] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    held: list[HeldMemory] = field(default_factory=list)
    marks: dict[str, MarkState] = field(default_factory=dict)
    operators: int = 0
    copies: int = 0
