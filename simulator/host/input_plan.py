"""The plan of an input pipeline: samples are loaded concurrently with the steps that use them (:func:`plan_input`).

Identical processes are simulated as one that loads the resources as all of them do.  Workers take turns to load whole
batches, each up to ``prefetch`` batches ahead of the loop.  A batch is copied to page-locked memory and then to the
devices, as long as fewer than ``ahead`` wait there; the loop takes it, issues the step, and continues while fewer than
``steps_under_way`` are in flight (PyTorch's DataLoader with pin_memory, and a prefetcher on its own stream).  From
pageable memory the loop itself copies before it issues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from simulator.host.input_costs import BatchLoad
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Part, Plan, PlanBuilder, Resource, Work
from simulator.questions.input import InputQuestion
from simulator.records import dataclass

CORES = "cores"
_READY, _WAITING, _UNDER_WAY = "batches of worker", "batches on the devices", "steps under way"
What = Literal["load", "pin", "copy", "loop", "issue", "step", "end"]


class Loading(NamedTuple):
    """The stage of a step to which an activity belongs."""

    what: What
    step: int


@dataclass(frozen=True, slots=True)
class FedStep:
    """A step whose input is ready: the device waits ``lead_s`` for the host, then computes for ``device_s``.

    The host issues for ``host_s`` in each of ``processes`` processes, each on one core.  ``loads`` are the shares of
    links that the step uses while the device computes; ``core_share`` is its share of all cores where these compute.
    """

    lead_s: float
    device_s: float
    host_s: float
    processes: int
    loads: tuple[tuple[Resource, float], ...] = ()
    core_share: float = 0.0

    @property
    def alone_s(self) -> float:
        """Seconds of a step that shares the machine with nothing else."""
        return self.lead_s + max(self.device_s, self.host_s - self.lead_s)


@dataclass(frozen=True, slots=True)
class InputWork:
    """The work of one machine to feed a step: each of ``loaders`` processes loads ``batches`` batches of ``load``.

    ``copies`` are the copies of a batch to all devices of the machine, which has ``cores`` cores.  ``pace``: the number
    of workers that one simulated worker stands for; it is as fast as all of them together.
    """

    asked: InputQuestion
    load: BatchLoad
    loaders: int
    batches: int
    cores: int
    copies: tuple[Plan, ...]
    pace: float = 1.0


def plan_input(machine: Machine, router: Router, feeding: InputWork, step: FedStep, steps: int) -> Plan:
    """Return the plan of *steps* steps with this input."""
    asked, load = feeding.asked, feeding.load
    plan = PlanBuilder()
    for worker in range(asked.workers):
        plan.queues[f"{_READY} {worker}"] = asked.prefetch
    plan.queues[_WAITING] = (1 + asked.ahead) * feeding.batches
    plan.queues[_UNDER_WAY] = asked.steps_under_way
    cpu = router.nearest_cpu(machine.gpus[0]) if machine.gpus else 0
    host = CORES if cpu is None else machine.nodes[cpu].name
    issuing = ((CORES, min(1.0, step.processes / feeding.cores)),)
    computing = (*step.loads, (CORES, step.core_share)) if step.core_share else step.loads
    parts = _parts(router, feeding)
    busy = feeding.loaders / feeding.cores  # each process pins on a core, all at the same time
    pinning = Work(load.pin_s * max(1.0, busy), ((CORES, min(1.0, busy)),))
    for number in range(steps):
        ready, copied, taken_from = [], [], []
        for batch in range(feeding.batches):
            about = Loading("load", number)
            if not asked.workers:
                ready.append(plan.add("load", parts, stream="loop", place=host, about=about))
                continue
            worker = (number * feeding.batches + batch) % asked.workers
            slots = f"{_READY} {worker}"
            loaded = plan.add("load", parts, stream=f"worker {worker}", place=host, takes=(slots,), about=about)
            taken_from.append(slots)
            if asked.pinned:
                about = Loading("pin", number)
                loaded = plan.add("pin", [pinning], stream="pin", after=[loaded], place=host, about=about)
            ready.append(loaded)
        if asked.pinned:
            copied = [n for batch in ready for n in _copied(plan, feeding, batch, number)]
        for batch, loaded in enumerate(ready):
            taken_s = load.taken_s * bool(asked.workers) + (0.0 if batch else asked.batch_s)
            taken = plan.work(
                "next batch",
                host,
                taken_s,
                stream="loop",
                after=[loaded],
                loads=issuing,
                takes=() if batch else (_UNDER_WAY,),
                gives=tuple(taken_from[batch : batch + 1]),
                about=Loading("loop", number),
            )
        before = [taken]
        if not asked.pinned:
            before = copied = [n for _ in ready for n in _copied(plan, feeding, taken, number)]
        first = plan.work(
            "issue", host, step.lead_s, stream="loop", after=before, loads=issuing, about=Loading("issue", number)
        )
        device = plan.work(
            "step",
            "devices",
            step.device_s,
            stream="devices",
            after=[first, *copied],
            loads=computing,
            gives=(_WAITING,) * feeding.batches,
            about=Loading("step", number),
        )
        last = plan.work(
            "issue", host, step.host_s - step.lead_s, stream="loop", loads=issuing, about=Loading("issue", number)
        )
        plan.work(
            "end", "devices", 0.0, stream="end", after=[device, last], gives=(_UNDER_WAY,), about=Loading("end", number)
        )
    return plan.build()


def _parts(router: Router, feeding: InputWork) -> list[Part]:
    """Return the parts of loading a batch, by all processes at once: the workers' time, and bytes from the disks."""
    load = feeding.load
    worker_s = load.worker_s / feeding.pace
    if not worker_s:
        return [Work(0.0)]
    busy_s: dict[Resource, float] = {CORES: feeding.loaders * load.core_s / feeding.cores}
    for disk in load.disks:
        name = f"disk {disk.node}"
        busy_s[name] = busy_s.get(name, 0.0) + feeding.loaders * disk.busy_s
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
