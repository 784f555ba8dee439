"""What offload costs a step: the update on the host, the copies, and the host's memory (:class:`OffloadRun`)."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from simulator.engine.timeline import Timeline
from simulator.network.machine import Machine
from simulator.questions.layout import REPLICAS
from simulator.questions.step import StepQuestion
from simulator.records import dataclass
from simulator.results.ran import run_counts
from simulator.step.memory import held_in
from simulator.topology.parts import CpuPart
from simulator.training.offload import scheme_of
from simulator.training.worker import FROM_DISK, ON_CPU, STREAM, TO_CPU, TO_DISK, TO_GPU, HostLabel, SkippedMicroBatches
from simulator.workload.network import Network

_Spans = list[tuple[float, float]]  # in order, apart


@dataclass(frozen=True, slots=True)
class OffloadRun:
    """Seconds and bytes of a step whose host updates; bytes moved are those of one rank.

    ``exposed_`` are seconds in which the device waits for the update, for copies alone, and for exchanges alone.
    ``host_bytes`` are those of the host that lacks most or has least left, ``host_available_bytes`` its memory,
    infinite if the machine's file does not say.
    ``disk_bytes`` are what its disks hold, of all ranks.
    """

    what: str
    update_s: float
    to_host_s: float
    to_device_s: float
    exposed_update_s: float
    exposed_copies_s: float
    exposed_exchange_s: float
    to_host_bytes: float
    to_device_bytes: float
    host_bytes: float
    host_available_bytes: float
    disk_bytes: float = 0.0
    from_disks_s: float = 0.0
    to_disks_s: float = 0.0
    from_disks_bytes: float = 0.0
    to_disks_bytes: float = 0.0

    @property
    def host_missing_bytes(self) -> float:
        """Bytes by which the need exceeds the host's memory; 0 if it fits."""
        return HostNeed(self.host_bytes, self.host_available_bytes).missing_bytes

    @property
    def fits(self) -> bool:
        """Whether the need fits into the host's memory."""
        return self.host_missing_bytes == 0.0


def offload_run(
    question: StepQuestion, network: Network, timeline: Timeline, prefix: str, ranks: Sequence[int]
) -> OffloadRun:
    """Return what offload costs *question* in *timeline*, for the device whose streams start with *prefix*.

    *network* is the part of each of the GPU nodes *ranks*.
    """
    stages = TO_CPU, ON_CPU, TO_GPU, FROM_DISK, TO_DISK
    busy_s, n_bytes = dict.fromkeys(stages, 0.0), dict.fromkeys(stages, 0.0)
    for task, span, times in zip(timeline.plan.tasks, timeline.spans, run_counts(timeline), strict=True):
        if isinstance(task.about, HostLabel):
            busy_s[task.stream] += times * span.length_s
            n_bytes[task.stream] += times * task.about.size_bytes
    update, copies, exchange = _exposed(timeline, f"{prefix}compute")
    host = host_memory(question, network, timeline.machine, ranks)
    return OffloadRun(
        *(question.offload, busy_s[ON_CPU], busy_s[TO_CPU], busy_s[TO_GPU]),
        *(update, copies, exchange, n_bytes[TO_CPU], n_bytes[TO_GPU], *host),
        *(busy_s[FROM_DISK], busy_s[TO_DISK], n_bytes[FROM_DISK], n_bytes[TO_DISK]),
    )


def _exposed(timeline: Timeline, compute: str) -> list[float]:
    """Return the seconds in which the stream *compute* waits for updates, for copies alone, for exchanges alone."""
    waits: list[tuple[float, float, int]] = []  # skipped micro-batches wait like others
    last_s = 0.0
    spans: dict[str, _Spans] = {"update": [], "copies": [], "exchange": []}
    for task, span, times in zip(timeline.plan.tasks, timeline.spans, run_counts(timeline), strict=True):
        skipped = isinstance(task.about, SkippedMicroBatches)
        if task.stream == compute:
            waits += [(last_s, span.start_s, times)] if not skipped and span.start_s > last_s else []
            last_s = span.end_s
        if isinstance(task.about, HostLabel):
            spans["update" if task.stream == ON_CPU else "copies"].append((span.start_s, span.end_s))
        elif task.stream.endswith(STREAM) and not skipped:
            spans["exchange"].append((span.start_s, span.end_s))
    waits.append((last_s, timeline.end_s, 1))
    covered: _Spans = []
    waited_s = [0.0]
    for own in spans.values():
        covered = _merged([*covered, *own])
        in_each = [
            sum(max(0.0, min(until_s, end_s) - max(since_s, start_s)) for start_s, end_s in covered)
            for since_s, until_s, _ in waits
        ]
        waited_s.append(sum(times * found for found, (*_, times) in zip(in_each, waits, strict=True)))
    return [after_s - before_s for before_s, after_s in pairwise(waited_s)]


def _merged(spans: _Spans) -> _Spans:
    found: _Spans = []
    for start_s, end_s in sorted(spans):
        if found and start_s <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_s)
        else:
            found.append((start_s, end_s))
    return found


class HostNeed(NamedTuple):
    """Bytes that a host needs, its memory, and the bytes that its disks hold."""

    needed_bytes: float
    available_bytes: float
    disk_bytes: float = 0.0

    @property
    def missing_bytes(self) -> float:
        """Bytes by which the need exceeds the memory; 0 if it fits."""
        return max(0.0, self.needed_bytes - self.available_bytes)


def host_memory(question: StepQuestion, network: Network, machine: Machine, ranks: Sequence[int]) -> HostNeed:
    """Return what *question* needs on the host with the least left; *network* is the part of each of *ranks*."""
    held = held_in(network, question.rank_options)
    layout = question.layout.on(len(ranks)) if len(ranks) > 1 else REPLICAS
    updated = held.trained_count * layout.kept_share(held.trained_count, held.trained_of_experts)
    kept = held.parameter_count * layout.kept_share(held.parameter_count, held.of_experts)
    scheme = scheme_of(question)
    each, on_disks = (of(question, updated, kept) for of in (scheme.host_bytes, scheme.disk_bytes))
    counts = Counter(machine.locate(rank)[1] for rank in ranks)
    found = []
    for host, count in dict.fromkeys((machine.like(host), count) for host, count in counts.items()):  # unlike ones
        sizes = [node.part.memory_size or inf for node in machine.nodes_of(host) if isinstance(node.part, CpuPart)]
        found.append(HostNeed(count * each, sum(sizes), count * on_disks))
    return max(found, key=lambda need: (need.needed_bytes - need.available_bytes, need.needed_bytes))
