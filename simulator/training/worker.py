"""Ranks in a plan: their exchanges and their work, each in order (docs/decisions/parallelism.md)."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from simulator.collectives.communicator import ConcurrentGroups, Strategy
from simulator.devices.dispatch import graph_launch_time
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.network.machine import Machine
from simulator.places import Place
from simulator.plan.plan import Fragment, PlanBuilder, Resource
from simulator.records import dataclass, field, named_tuple, replace
from simulator.step.launch import NOTHING, DeviceWork, Launch, Part
from simulator.training.roles import Role
from simulator.workload import Collective
from simulator.workload.network import block_name

STREAM = "communication"
TO_CPU, ON_CPU, TO_GPU = "copies to the CPU", "update on the CPU", "copies to the GPU"
FROM_DISK, TO_DISK = "reads from disks", "writes to disks"
"""Streams between GPUs and the CPUs of hosts that update (:mod:`simulator.training.offload`)."""


@dataclass(frozen=True, slots=True)
class CollectiveLabel:
    """Label of an activity on such a stream: a collective, its size in bytes, and its micro-batch."""

    op: Collective
    size_bytes: float
    micro_batch: int
    of_tied: bool = False  # sums gradients that two pipeline stages hold
    among: Sequence[ConcurrentGroups] = field(default=(), compare=False, repr=False)  # the groups that run it at once


class HostLabel(NamedTuple):
    """Label of an activity between GPUs and CPUs: its stage, which is its stream, and bytes, of a rank."""

    stage: str
    size_bytes: float
    micro_batch: int


class OpenExchange(NamedTuple):
    """A collective of a plan whose strategy is still open: its activity, which has no parts yet, and what it does."""

    activity: int
    bundles: tuple[ConcurrentGroups, ...]
    op: Collective
    size_bytes: float


def parts_of(
    exchanges: Iterable[OpenExchange], strategy: Strategy, loads_on: Mapping[int, float]
) -> dict[int, tuple[Fragment, ...]]:
    """Return the parts of *exchanges* by activity, as *strategy* runs them; raises Unsuitable."""
    made: dict[tuple[object, ...], tuple[Fragment, ...]] = {}  # blocks repeat
    for _, bundles, op, size_bytes in sorted(exchanges, key=lambda each: each.activity):
        if (key := (id(bundles), op, size_bytes)) not in made:
            parts = [bundle.collective(op, float(size_bytes), strategy, loads_on=loads_on) for bundle in bundles]
            made[key] = tuple(parts)
    return {each.activity: made[id(each.bundles), each.op, each.size_bytes] for each in exchanges}


class GroupExchange:
    """Adds collectives over *bundles* to *stream*; an open *strategy* is a list; *once*: one copy a machine."""

    def __init__(
        self,
        builder: PlanBuilder,
        bundles: Sequence[ConcurrentGroups],
        strategy: Strategy | list[OpenExchange],  # while it is open: a list to which exchanges are added
        loads_on: Mapping[int, float] | None = None,  # GPUs
        *,
        stream: str = STREAM,
        once: bool = False,  # of equal copies, only one is sent to each machine
        turns: str = "",  # a queue with one slot: collectives of one communicator on several streams
    ) -> None:
        self.builder, self.n_ranks, self._bundles = builder, bundles[0].n_ranks, tuple(bundles)
        self._strategy, self._loads_on, self._stream = strategy, loads_on, stream
        self._turns = (turns,) if turns else ()
        if turns:
            builder.queues[turns] = 1
        self._made: dict[tuple[Collective, float], Sequence[Fragment]] = {}  # blocks repeat
        groups = [group for bundle in bundles for group in bundle.groups] if once else []
        counts = (len({group.machine.locate(rank)[1] for rank in group.ranks}) for group in groups)
        self._machines = max(counts, default=1)

    def sent_share(self, copies: int) -> float:
        """Return the share sent of *copies* to random ranks: n (1 - (1 - 1/n) ** copies) of n machines get any."""
        n = self._machines
        return 1.0 if n == 1 else n * (1.0 - (1.0 - 1.0 / n) ** copies) / copies

    def __call__(self, op: Collective, size_bytes: float, after: Sequence[int], micro_batch: int = 0) -> int:
        """Add *op* of *size_bytes* after *after*; return its activity.  Raises Unsuitable."""
        about = CollectiveLabel(op, size_bytes, micro_batch, among=self._bundles)
        add = partial(
            self.builder.add, op, stream=self._stream, after=after, takes=self._turns, gives=self._turns, about=about
        )
        if isinstance(self._strategy, list):
            number = add(())
            self._strategy.append(OpenExchange(number, self._bundles, op, size_bytes))
            return number
        if (op, size_bytes) not in self._made:
            how, loads_on = self._strategy, self._loads_on
            made = [each.collective(op, float(size_bytes), how, loads_on=loads_on) for each in self._bundles]
            self._made[op, size_bytes] = made
        return add(self._made[op, size_bytes])


HOST = "host"  # the stream of a host, or the end of its name
AUTOGRAD = "autograd"  # likewise, of the thread that issues the backward pass of a device for one process


class LaunchLabel(NamedTuple):
    """Label of a worker's activity: an issue of a micro-batch, on the host or on the device."""

    issue: Launch
    micro_batch: int
    on_host: bool


@dataclass(frozen=True, slots=True)
class SkippedMicroBatches:
    """Label of an activity that stands for ``count`` micro-batches equal to ``micro_batch``, the one before."""

    count: int
    micro_batch: int


class ChunkRun(NamedTuple):
    """Label of an activity of a stage: *share* of a pass of its *chunk*."""

    issues: tuple[Launch, ...]
    part: Part
    micro_batch: int
    share: float
    chunk: int = 0


class Worker:
    """The streams of one rank, ``host`` and ``compute``; a CPU, which computes where it issues, has only ``host``."""

    def __init__(
        self,
        builder: PlanBuilder,
        machine: Machine,
        place: Place,
        *,
        captured: bool = False,  # one call launches the whole step, and the host never waits for results
        loads: bool = False,  # kernels load the device's multiprocessors and memory
        pace: float = 1.0,  # time of kernels relative to the mean device
        prefix: str = "",  # of its streams, among several workers
        host_stream: str = "",  # that several workers share
        turns: str = "",  # a queue with one slot that kernels take, where processes share the device
    ) -> None:
        self._builder, self._place, self._captured, self._pace = builder, place, captured, pace
        self.prefix, self._turns = prefix, (turns,) if turns else ()
        self._compute = f"{prefix}compute"
        self._node = machine.node(place.name) if loads and isinstance(place.device, Gpu) else None
        self._loaded: dict[int, tuple[DeviceWork, tuple[tuple[Resource, float], ...]]] = {}  # blocks repeat
        self._launched: tuple[int, ...] = ()
        self.host_stream = host_stream or f"{prefix}host"
        self.waits_once: tuple[int, ...] = ()  # extra dependencies of the next kernel
        self.last: tuple[int, ...] = ()  # the last activity of the device

    def issue(self, issue: Launch, *, after: Sequence[int] = (), micro_batch: int = 0, share: float = 1.0) -> int:
        """Add *issue* after *after*, with *share* of its time on the device; return its final activity."""
        place, host, work = self._place.name, self._place.host, self._builder.work
        about = named_tuple(LaunchLabel, (issue, micro_batch, place == host))
        if place == host:
            duration_s = issue.host_s + share * issue.device_s
            number = work(issue.name, host, duration_s, stream=f"{self.prefix}host", after=after, about=about)
        else:
            number = work(
                issue.name,
                place,
                share * self._pace * issue.work.time_s,
                stream=self._compute,
                after=(*self.launch(issue, micro_batch), *self.waits_once, *after),
                loads=self._loads(issue),
                takes=self._turns,
                gives=self._turns,
                about=about,
            )
        self.last = (number,)
        self.waits_once = ()
        return number

    def launch(self, issue: Launch, micro_batch: int = 0) -> tuple[int, ...]:
        """Add the host's part of *issue*; return the activities that its kernels or its exchange wait for."""
        stream, host = self.host_stream, self._place.host
        if self._captured:
            if not self._launched:
                launch_s = graph_launch_time(self._place.device)
                self._launched = (self._builder.work("launch graph", host, launch_s, stream=stream),)
            return self._launched
        waited = self.last if issue.waits else ()
        about = named_tuple(LaunchLabel, (issue, micro_batch, True))
        return (self._builder.work(issue.name, host, issue.host_s, stream=stream, after=waited, about=about),)

    def _loads(self, issue: Launch) -> tuple[tuple[Resource, float], ...]:
        """Return shares of SMs (kernels bound by arithmetic take all) and of memory that *issue* uses alone."""
        device, work = self._place.device, issue.work
        if self._node is None or not isinstance(device, Gpu) or not work.time_s:
            return ()
        known = self._loaded.get(id(work))
        if known is None:
            computing_s = sum(cost.time_s for cost in work.costs if cost.bound == "compute")
            moving_s = sum(cost.bytes for cost in work.costs) / achieved_bandwidth(device)
            moving = self._node.memory, min(1.0, moving_s / work.time_s)
            known = work, ((self._node.multiprocessors, computing_s / work.time_s), moving)
            self._loaded[id(work)] = known
        return known[1]


def equivalent(passes: Sequence[Sequence[Launch]]) -> list[tuple[Launch, ...]]:
    """Return *passes* of devices as tuples of equivalent issues; what some do not issue takes them no time."""
    if len({len(issues) for issues in passes}) == 1:
        return list(zip(*passes, strict=True))
    named: list[dict[tuple[Part, str, int], Launch]] = []  # by part, name, and how many of these came before
    for issues in passes:
        count, own = Counter[tuple[Part, str]](), dict[tuple[Part, str, int], Launch]()
        for issue in issues:
            own[issue.part, issue.name, count[issue.part, issue.name]] = issue
            count[issue.part, issue.name] += 1
        named.append(own)
    orders, found = [deque(each) for each in named], []
    while any(orders):
        heads = [order[0] for order in orders if order]
        key = next((head for head in heads if any(head not in each for each in named)), heads[0])
        same = [each.get(key) for each in named]
        issue = next(each for each in same if each is not None)
        idle = replace(issue, host_s=0.0, work=NOTHING, waits=False)
        found.append(tuple(idle if each is None else each for each in same))
        for order in (order for order, each in zip(orders, same, strict=True) if each is not None):
            order.popleft()
    return found


class RankRoles:
    """*workers* with roles, and *exchanges* within layers; those of the axis *passes_beside* overlap products."""

    def __init__(
        self,
        workers: Sequence[tuple[Role, Worker]],
        exchanges: Mapping[str, GroupExchange] | None = None,  # within layers, by axis of the layout
        passes_beside: str = "",  # the axis whose exchanges in blocks overlap with products
        *,
        blocking: bool = False,  # hosts wait for exchanges too
    ) -> None:
        self.roles = tuple(role for role, _ in workers)
        self.workers = tuple(worker for _, worker in workers)
        self._exchanges, self._passes_beside, self._blocking = exchanges or {}, passes_beside, blocking
        self._brought: dict[tuple[Part, str], int] = {}  # by pass: the last exchange of each layer
        self._passing: set[int] = set()  # all-gathers that overlap with the product that reads them
        self._before: list[int] | None = None  # dependencies of the last operator issued, if it was a product

    @property
    def last(self) -> list[int]:
        """The last activity of each device."""
        return [number for worker in self.workers for number in worker.last]

    def go_on(self, activities: Mapping[str, int]) -> None:
        """Continue after *activities*, by stream, which stand for skipped work."""
        for worker in self.workers:
            worker.waits_once = tuple(activities.values()) if worker.waits_once and activities else worker.waits_once
            for stream in ("host", "compute"):
                if (number := activities.get(worker.prefix + stream)) is not None:
                    worker.last = (number,)

    def wait_for(self, activities: Iterable[int]) -> None:
        """Let each device's next kernel wait for *activities*."""
        for worker in self.workers:
            worker.waits_once = tuple(activities)

    def passes(self) -> list[tuple[Launch, ...]]:
        """Return the issues of all roles before the update, as one tuple of equivalent issues per position."""
        return equivalent([role.passes for role in self.roles])

    def issue(self, same: Sequence[Launch], *, after: Sequence[int] = (), micro_batch: int = 0) -> list[int]:
        """Add equivalent issues, one for each role; return each role's final activity."""
        if same[0].adds and not micro_batch:
            return self.last
        part = same[0].part
        needed = [self._brought[part, layer] for layer in same[0].needs if (part, layer) in self._brought]
        sent, roles = same[0].sent, zip(self.workers, same, strict=True)
        if sent is None:  # after the exchanges, or during those that overlap with a product
            is_product = "gemm" in same[0].work.kinds
            during = [number for number in needed if is_product and number in self._passing]
            waited = [*after, *(number for number in needed if number not in during)] if needed else after
            self._before = [*self.last, *waited, *during] if is_product else None
            found = [worker.issue(issue, after=waited, micro_batch=micro_batch) for worker, issue in roles]
            if during:
                self.wait_for(during)
            return found
        launched = [number for worker, issue in roles for number in worker.launch(issue, micro_batch)]
        before = [*launched, *self.last, *after, *needed, *(n for worker in self.workers for n in worker.waits_once)]
        exchange = self._exchanges[sent.axis]
        beside = sent.axis == self._passes_beside and bool(block_name(same[0].layer))
        if beside and sent.spare:  # sent during a product ("bulk" overlap of Transformer Engine)
            return self.last
        size_bytes = float(sent.size_bytes) * exchange.sent_share(sent.copies)
        if beside and sent.op == "reduce-scatter" and self._before is not None:
            last_bytes = size_bytes / exchange.n_ranks
            before.append(exchange(sent.op, size_bytes - last_bytes, [*launched, *self._before], micro_batch))
            size_bytes = last_bytes
        number = exchange(sent.op, size_bytes, before, micro_batch)
        if beside and sent.op == "all-gather":
            self._passing.add(number)
        self._brought[part, same[0].layer] = number
        if self._blocking:
            for worker in self.workers:
                worker.last = (number,)
        return [number] * len(same)

    def update(self, after: Sequence[int], micro_batch: int, share: float = 1.0, *, sums: bool = False) -> None:
        """Add each role's update, of *share* of its time on the device; *sums*: the roles sum gradients."""
        for role, worker in zip(self.roles, self.workers, strict=True):
            for issue in role.issues:
                if issue.part == "update" and (sums or issue.over != "summed"):
                    part = share if issue.over == "kept" else 1.0
                    own = replace(issue, host_s=part * issue.host_s) if issue.whole else issue
                    worker.issue(own, after=after, micro_batch=micro_batch, share=part)
