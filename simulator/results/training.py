"""The result of a step, on one device or over several: :class:`TrainingResult`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.collectives.communicator import Communicator
from simulator.engine.executor import alone
from simulator.engine.timeline import Timeline
from simulator.plan.plan import Fragment
from simulator.questions.step import StepQuestion
from simulator.results.alternatives import Alternative
from simulator.results.result import LinkUse
from simulator.results.step import StepResult
from simulator.results.streams import StreamUse, stream_uses, times_of
from simulator.results.trust import Trust
from simulator.step.memory import MemoryNeed
from simulator.training.exchange import STREAM
from simulator.training.roles import Role

__all__ = ["DeviceMemory", "TrainingResult", "alone_result", "together_result"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What ``count`` devices of a part need each."""

    part: str
    count: int
    need: MemoryNeed


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a user asks for of a step.

    ``step`` is the step as the first device of the slowest role sees it.  ``alone_s`` is what that device takes by
    itself for as many samples of its own.  ``exposed_s`` is for how long it waits for an exchange, ``exchanging_s`` how
    long exchanges take in all.  ``counts_software``: launches and protocols are in the time of an exchange; without
    them nobody can select it, and it is a bound.
    """

    question: StepQuestion
    step: StepResult
    device_count: int
    alone_s: float
    exposed_s: float
    exchanging_s: float
    bottleneck: LinkUse | None
    memory: tuple[DeviceMemory, ...]
    streams: dict[str, StreamUse]
    counts_software: bool
    notes: tuple[str, ...]
    timeline: Timeline
    alternatives: tuple[Alternative, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def machine(self) -> str:
        """The machine's name."""
        return self.step.machine

    @property
    def strategy(self) -> str:
        """How gradients or shards are exchanged; nothing where none are."""
        return self.question.strategy if self.exchanging_s else ""

    @property
    def parallel(self) -> str:
        """How devices divide the work; nothing where each steps alone."""
        return self.question.parallel if self.exchanging_s else ""

    @property
    def way(self) -> str:
        """Strategy, parallelism and overlap in a few words."""
        if self.exchanging_s:
            return self.question.way
        return self.step.device if self.device_count == 1 else "each alone"

    @property
    def step_time_s(self) -> float:
        """Seconds of the step."""
        return self.timeline.end_s

    @property
    def samples(self) -> int:
        """Samples of all devices."""
        return self.step.samples * self.device_count

    @property
    def tokens(self) -> int:
        """Tokens of all devices; 0 where there are none."""
        return self.step.tokens * self.device_count

    @property
    def throughput(self) -> float:
        """Samples a second, of all devices."""
        return self.samples / self.step_time_s if self.step_time_s > 0 else 0.0

    @property
    def scaling_efficiency(self) -> float:
        """Throughput against that of as many devices that exchange nothing."""
        return self.alone_s / self.step_time_s if self.step_time_s > 0 else 1.0

    @property
    def fits(self) -> bool:
        """Whether each device has the memory."""
        return all(device.need.fits for device in self.memory)

    @property
    def tightest(self) -> DeviceMemory:
        """Those devices that have least memory left, or lack most."""
        return max(self.memory, key=lambda device: device.need.total_bytes - device.need.available_bytes)

    @property
    def trust(self) -> Trust | None:
        """How good predictions of such steps were, where others have measured them."""
        return self.step.trust_of(self.device_count)


def alone_result(question: StepQuestion, step: StepResult) -> TrainingResult:
    """Return the result of a *step* on one device."""
    return TrainingResult(
        question=question,
        step=step,
        device_count=1,
        alone_s=step.step_time_s,
        exposed_s=0.0,
        exchanging_s=0.0,
        bottleneck=None,
        memory=(DeviceMemory(step.part, 1, step.memory),),
        streams=stream_uses(step.timeline),
        counts_software=True,
        notes=(),
        timeline=step.timeline,
    )


def together_result(
    question: StepQuestion,
    group: Communicator,
    roles: Sequence[Role],
    steps: Sequence[StepResult],
    memory: Sequence[MemoryNeed],
    alone_s: Sequence[float],
    timeline: Timeline,
) -> TrainingResult:
    """Return the result of *timeline*, in which the ranks of *group* played *roles*.

    *steps*, *memory* and *alone_s* are by role: the step as it sees it, what it needs, how long it takes alone.
    """
    slowest = max(range(len(roles)), key=lambda i: alone_s[i])
    uses = dict(sorted(stream_uses(timeline).items(), key=lambda use: use[0] == STREAM))  # devices first
    prefix = f"{roles[slowest].place.name}/" if len(roles) > 1 else ""
    compute = uses.get(f"{prefix}compute", StreamUse())
    fragments = [part for task in timeline.plan.tasks for part in task.parts if isinstance(part, Fragment)]
    largest = max(fragments, key=lambda part: alone(timeline.machine, part).end_s, default=None)
    return TrainingResult(
        question=question,
        step=steps[slowest],
        device_count=group.n_ranks,
        alone_s=alone_s[slowest],
        exposed_s=compute.waits_s.get(STREAM, 0.0),
        exchanging_s=uses.get(STREAM, StreamUse()).busy_s,
        bottleneck=None if largest is None else _bottleneck(timeline, largest),
        memory=tuple(DeviceMemory(role.place.part, role.count, need) for role, need in zip(roles, memory, strict=True)),
        streams=uses,
        counts_software=largest is None or "software" in largest.plan.facts,
        notes=() if largest is None else largest.plan.notes,
        timeline=timeline,
    )


def _bottleneck(timeline: Timeline, largest: Fragment) -> LinkUse | None:
    """Return the link that bounds the *largest* exchange, and how much of the step it is in use."""
    machine = timeline.machine
    shares = [
        (round(n_bytes / machine.capacity_Bps[r], 12), -r)
        for r, n_bytes in enumerate(alone(machine, largest).resource_bytes)
        if n_bytes
    ]
    if not shares:
        return None
    resource = -max(shares)[1]
    bound = largest.plan.facts.get("bound_link")
    link = next((link for link in machine.links if link.name == bound), None)
    resource = link.resource if link is not None else resource
    moved = sum(
        times * alone(machine, part).resource_bytes[resource]
        for task, times in zip(timeline.plan.tasks, times_of(timeline), strict=True)
        for part in task.parts
        if isinstance(part, Fragment)
    )
    capacity = machine.capacity_Bps[resource] * timeline.end_s
    return LinkUse(machine.resource_names[resource], moved, moved / capacity if capacity else 0.0)
