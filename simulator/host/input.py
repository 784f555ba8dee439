"""The input pipeline: loading of a batch, and batches beside steps (docs/decisions/host.md)."""

from collections.abc import Sequence
from math import log
from typing import Any, Literal, NamedTuple

from simulator.devices.cpu import Cpu
from simulator.devices.cpu.memory import bandwidth
from simulator.errors import nearest, refused
from simulator.host.disks import block_time
from simulator.network.machine import Machine, Node
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Part, Plan, PlanBuilder, Resource, Work
from simulator.questions.input import MEMORY, InputQuestion
from simulator.questions.single import DiskAccess, DiskQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, sums_by_key
from simulator.topology.parts import StoragePart

_DEEP = 256  # requests in flight: more than any disk serves at once
_CHANNELS = 3
_LABELS = 0.02  # largest share of labels in the input
_EQUAL = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class DiskUse:
    """A batch's use of the disk at ``node``."""

    node: int
    busy_s: float  # at full queue depth
    bytes: float  # over its link
    by_operations: bool  # operations per second bound it, not bandwidth


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The time of loading a batch of ``samples`` in a worker that has the machine to itself."""

    samples: int
    read_s: float  # waits for disks
    core_s: float
    decode_s: float  # part of ``core_s``
    pin_s: float  # copies ``batch_bytes`` to page-locked memory
    taken_s: float  # of the process that feeds the devices
    batch_bytes: float
    disks: tuple[DiskUse, ...]
    is_resized: bool = False  # images differ in size from the network's input and are not cropped by augmentation

    @property
    def worker_s(self) -> float:
        """Seconds of a worker per batch."""
        return self.read_s + self.core_s


def batch_load(
    asked: InputQuestion,
    machine: Machine,
    cpu: Cpu,
    *,
    samples: int,  # of so many elements each
    sample_elements: float,  # as the network reads a sample
    element_bytes: int,
    is_image: bool,
    missed: float = 1.0,  # share of the samples that is not in memory
) -> BatchLoad:
    """Return the load of *samples*, of which the share *missed* is not in memory; or InputError."""
    costs, clock_Hz = cpu.constants["input"], cpu.core_clock(cpu.core_count)
    decode_s = costs.decode_cycles * asked.pixels / clock_Hz if asked.decode == "jpeg" else 0.0
    cycles, resized = costs.sample_cycles, False
    if is_image and not asked.augment and asked.pixels:  # in one or three channels, labels left aside
        ratios = [sample_elements / (channels * asked.pixels) for channels in (1, _CHANNELS)]
        resized = all(abs(ratio - 1.0) > _LABELS for ratio in ratios)
    if is_image:
        cycles += costs.tensor_cycles * sample_elements
        if asked.pixels and (asked.augment or resized):
            share = costs.crop_share if asked.augment else 1.0
            cycles += costs.resize_cycles * (share * asked.pixels + sample_elements / _CHANNELS)
    sample_s = decode_s + cycles / clock_Hz
    if asked.sample_s is not None:
        sample_s, decode_s = asked.sample_s, asked.sample_s if asked.decode == "jpeg" else 0.0
    batch_bytes = samples * sample_elements * element_bytes
    copy_s = 2.0 * batch_bytes / bandwidth(cpu, float("inf"), 1)
    read_s, uses = _reads(asked, disks_of(asked, machine), samples * missed)
    return BatchLoad(
        samples=samples,
        read_s=read_s,
        core_s=samples * sample_s + copy_s,
        decode_s=samples * decode_s,
        pin_s=copy_s if asked.pinned else 0.0,
        taken_s=costs.batch_s,
        batch_bytes=batch_bytes,
        disks=uses,
        is_resized=resized,
    )


def _reads(asked: InputQuestion, disks: Sequence[Node], samples: float) -> tuple[float, tuple[DiskUse, ...]]:
    """Return the seconds that one worker waits for *samples*, and their use of each disk."""
    if not disks or not samples:
        return 0.0, ()
    packed = max(asked.block_bytes, asked.sample_bytes) if asked.block_bytes else asked.sample_bytes
    blocks = samples * asked.sample_bytes / packed / len(disks)
    kind: DiskAccess = "read_random" if asked.shuffle else "read_sequential"
    waits_s, uses = 0.0, []
    for disk in disks:
        part = disk.part
        assert isinstance(part, StoragePart)
        alone_s, deep_s = (
            block_time(part, DiskQuestion(where=Where(""), kind=kind, block_bytes=packed, threads=threads))
            for threads in (1, _DEEP)
        )
        streamed_s = packed / part.read_bandwidth if part.read_bandwidth else 0.0
        waits_s += blocks * alone_s
        uses.append(DiskUse(disk.index, blocks * deep_s, blocks * packed, deep_s > streamed_s * _EQUAL))
    return waits_s, tuple(uses)


def disks_of(asked: InputQuestion, machine: Machine) -> list[Node]:
    """Return the disks over which the data set is spread, none where it is in memory; raises InputError."""
    if asked.disks == (MEMORY,):
        return []
    found = [node for node in machine.nodes_of(0) if isinstance(node.part, StoragePart)]
    if not asked.disks and not found:
        needs = "devices needs for example ssd0: {part: nvme-gen4} with a link to a CPU, or write disk=memory"
        raise refused("input", f"{machine.name} has no disk; {needs}")
    named = {node.name: node for node in found}
    named.update({node.name.rpartition(".")[2]: node for node in found})  # in a cluster: those of its first machine
    for name in asked.disks:
        if name not in named:
            why = f"{machine.name} has no such disk; {nearest(name, [*named, MEMORY])}"
            raise refused("input", why, "disk=" + name)
    return [named[name] for name in asked.disks] or found[:1]


def hit_share(asked: InputQuestion, memory_bytes: float) -> float:
    """Return the share of samples that later epochs find in memory: in random order 1 - q + q ln q, q being missing."""
    if asked.cache == "none" or not asked.set_bytes:
        return 0.0
    missing = 1.0 - memory_bytes / asked.set_bytes
    if missing <= 0.0:
        return 1.0
    if not asked.shuffle or missing >= 1.0:
        return 0.0
    return 1.0 - missing + missing * log(missing)


CORES = "cores"
_READY, _WAITING, _UNDER_WAY = "batches of worker", "batches on the devices", "steps under way"
What = Literal["load", "pin", "copy", "loop", "issue", "step", "end"]


class Loading(NamedTuple):
    """The stage of a step to which an activity belongs."""

    what: What
    step: int


@dataclass(frozen=True, slots=True)
class FedStep:
    """A step whose input is ready: the device waits ``lead_s`` for the host, then computes for ``device_s``."""

    lead_s: float
    device_s: float
    host_s: float  # of issuing, in each process
    processes: int  # each on one core
    loads: tuple[tuple[Resource, float], ...] = ()  # shares of links while the device computes
    core_share: float = 0.0  # of all cores, where these compute

    @property
    def alone_s(self) -> float:
        """Seconds of a step that shares the machine with nothing else."""
        return self.lead_s + max(self.device_s, self.host_s - self.lead_s)


@dataclass(frozen=True, slots=True)
class InputWork:
    """The work of one machine to feed a step: each of ``loaders`` processes loads ``batches`` batches of ``load``."""

    asked: InputQuestion
    load: BatchLoad
    loaders: int
    batches: int
    cores: int  # of the machine
    copies: tuple[Plan, ...]  # of a batch to all its devices
    pace: float = 1.0  # workers that one simulated one stands for


def plan_input(machine: Machine, router: Router, feeding: InputWork, step: FedStep, steps: int) -> Plan:
    """Return the plan of *steps* steps with this input."""
    asked, load, plan = feeding.asked, feeding.load, PlanBuilder()
    plan.queues |= {f"{_READY} {worker}": asked.prefetch for worker in range(asked.workers)}
    plan.queues |= {_WAITING: (1 + asked.ahead) * feeding.batches, _UNDER_WAY: asked.steps_under_way}
    cpu = router.nearest_cpu(machine.gpus[0]) if machine.gpus else 0
    host = CORES if cpu is None else machine.nodes[cpu].name
    issuing = ((CORES, min(1.0, step.processes / feeding.cores)),)
    computing = (*step.loads, (CORES, step.core_share)) if step.core_share else step.loads
    parts = _parts(router, feeding)
    busy = feeding.loaders / feeding.cores  # each process pins on a core, all at the same time
    pinning = Work(load.pin_s * max(1.0, busy), ((CORES, min(1.0, busy)),))
    for number in range(steps):
        ready, copied, slots = [], [], []
        for batch in range(feeding.batches):
            if not asked.workers:
                ready.append(plan.add("load", parts, stream="loop", place=host, about=Loading("load", number)))
                continue
            worker = (number * feeding.batches + batch) % asked.workers
            slots.append(f"{_READY} {worker}")
            about = Loading("load", number)
            loaded = plan.add("load", parts, stream=f"worker {worker}", place=host, takes=(slots[-1],), about=about)
            if asked.pinned:
                about = Loading("pin", number)
                loaded = plan.add("pin", [pinning], stream="pin", after=[loaded], place=host, about=about)
            ready.append(loaded)
        if asked.pinned:
            copied = [n for batch in ready for n in _copied(plan, feeding, batch, number)]
        looping: dict[str, Any] = {"place": host, "stream": "loop", "loads": issuing}
        for batch, loaded in enumerate(ready):
            looping |= {"after": [loaded], "takes": () if batch else (_UNDER_WAY,), "gives": tuple(slots[batch:][:1])}
            taken_s = load.taken_s * bool(asked.workers) + (0.0 if batch else asked.batch_s)
            taken = plan.work("next batch", duration_s=taken_s, about=Loading("loop", number), **looping)
        before = [taken]
        if not asked.pinned:
            before = copied = [n for _ in ready for n in _copied(plan, feeding, taken, number)]
        looping |= {"takes": (), "gives": (), "about": Loading("issue", number)}
        first = plan.work("issue", duration_s=step.lead_s, **looping | {"after": before})
        stepping: dict[str, Any] = {"stream": "devices", "after": [first, *copied], "loads": computing}
        free, about = (_WAITING,) * feeding.batches, Loading("step", number)
        device = plan.work("step", "devices", step.device_s, gives=free, about=about, **stepping)
        last = plan.work("issue", duration_s=step.host_s - step.lead_s, **looping | {"after": ()})
        ends, about = [device, last], Loading("end", number)
        plan.work("end", "devices", 0.0, stream="end", after=ends, gives=(_UNDER_WAY,), about=about)
    return plan.build()


def _parts(router: Router, feeding: InputWork) -> list[Part]:
    """Return the parts of loading a batch, by all processes at once: the workers' time, and bytes from the disks."""
    load = feeding.load
    worker_s = load.worker_s / feeding.pace
    if not worker_s:
        return [Work(0.0)]
    on_disks = ((f"disk {disk.node}", feeding.loaders * disk.busy_s) for disk in load.disks)
    busy_s = sums_by_key([(CORES, feeding.loaders * load.core_s / feeding.cores), *on_disks])
    duration_s = max(worker_s, *busy_s.values())
    parts: list[Part] = [Work(duration_s, tuple((name, s / duration_s) for name, s in busy_s.items() if s))]
    for disk in load.disks:
        cpu = router.nearest_cpu(disk.node)
        if cpu is not None and disk.bytes:
            n_bytes = feeding.loaders * disk.bytes
            parts.append(Flow(router.route(disk.node, cpu), n_bytes, cap_Bps=n_bytes / duration_s))
    return parts


def _copied(plan: PlanBuilder, feeding: InputWork, after: int, step: int) -> Sequence[int]:
    """Add the copies of a batch to all devices of a machine, once there is room; return the last tasks."""
    if not feeding.copies:
        return [after]
    about = Loading("copy", step)
    room = plan.work("room", "devices", 0.0, stream="room", after=[after], takes=(_WAITING,), about=about)
    first = len(plan.tasks)
    last = [n for copy in feeding.copies for n in plan.inline(copy, "copy ", [room])]
    plan.tasks[first:] = [task._replace(about=about) for task in plan.tasks[first:]]
    return last
