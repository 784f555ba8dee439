"""How gradients reach other ranks: a communication stream of a step, and the buckets that its collectives carry.

A stream runs collectives over the same groups, one after the other.  PyTorch's DistributedDataParallel divides each
gradient by the number of ranks as it copies it into its bucket, and copies the sums back into the gradients before the
update (Reducer; Horovod's fusion buffer does the same).  Both copies are made in C++, without autograd.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator.collectives.communicator import ConcurrentGroups, Strategy
from simulator.devices.dispatch import bucket_copy_time
from simulator.devices.predict import Device
from simulator.plan.plan import Fragment, PlanBuilder
from simulator.questions.layout import Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import dataclass, field
from simulator.step.issue import work_of
from simulator.step.launch import Launch
from simulator.workload import Collective
from simulator.workload.kernels import Streaming

STREAM = "communication"
TO_CPU, ON_CPU, TO_GPU = "copies to the CPU", "update on the CPU", "copies to the GPU"
FROM_DISK, TO_DISK = "reads from disks", "writes to disks"
"""Streams between GPUs and the CPUs of hosts that update (:mod:`simulator.training.offload`)."""


@dataclass(frozen=True, slots=True)
class CollectiveLabel:
    """Label of an activity on such a stream: a collective, its size in bytes, and its micro-batch.

    ``of_tied``: it sums gradients of parameters that two pipeline stages hold, as of a tied embedding.  ``among``: the
    groups that run it at once.
    """

    op: Collective
    size_bytes: float
    micro_batch: int
    of_tied: bool = False
    among: Sequence[ConcurrentGroups] = field(default=(), compare=False, repr=False)


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
    """Return the parts of *exchanges* by activity, if *strategy* runs them and they load *loads_on*.

    Raises Unsuitable if it does not fit.
    """
    made: dict[tuple[object, ...], tuple[Fragment, ...]] = {}  # blocks repeat
    for _, bundles, op, size_bytes in sorted(exchanges, key=lambda each: each.activity):
        if (key := (id(bundles), op, size_bytes)) not in made:
            parts = [bundle.collective(op, float(size_bytes), strategy, loads_on=loads_on) for bundle in bundles]
            made[key] = tuple(parts)
    return {each.activity: made[id(each.bundles), each.op, each.size_bytes] for each in exchanges}


class GroupExchange:
    """Adds collectives over all groups of *bundles* at once to *stream* of a plan; they load the GPUs *loads_on*.

    While their *strategy* is open, it is a list, to which they are added, and their activities have no parts.
    *once*: of equal copies, only one is sent to each machine.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        bundles: Sequence[ConcurrentGroups],
        strategy: Strategy | list[OpenExchange],
        loads_on: Mapping[int, float] | None = None,
        *,
        stream: str = STREAM,
        once: bool = False,
    ) -> None:
        self.builder, self.n_ranks, self._bundles = builder, bundles[0].n_ranks, tuple(bundles)
        self._strategy, self._loads_on, self._stream = strategy, loads_on, stream
        self._made: dict[tuple[Collective, float], list[Fragment]] = {}  # blocks repeat
        groups = [group for bundle in bundles for group in bundle.groups] if once else []
        counts = (len({group.machine.locate(rank)[1] for rank in group.ranks}) for group in groups)
        self._machines = max(counts, default=1)

    def sent_share(self, copies: int) -> float:
        """Return the share of bytes to send if *copies* copies of each token go to random ranks.

        On average, n (1 - (1 - 1/n) ** copies) of n machines get at least one copy, and one is sent to each.  On a
        single machine, every copy is sent.  Of groups over unequal numbers of machines, the most machines count:
        their exchange crosses the network most often.
        """
        n = self._machines
        return 1.0 if n == 1 else n * (1.0 - (1.0 - 1.0 / n) ** copies) / copies

    def __call__(self, op: Collective, size_bytes: float, after: Sequence[int], micro_batch: int = 0) -> int:
        """Add *op* of *size_bytes* after *after*; return its activity.  Raises Unsuitable."""
        about = CollectiveLabel(op, size_bytes, micro_batch, among=self._bundles)
        if isinstance(self._strategy, list):
            number = self.builder.add(op, (), stream=self._stream, after=after, about=about)
            self._strategy.append(OpenExchange(number, self._bundles, op, size_bytes))
            return number
        if (op, size_bytes) not in self._made:
            how, loads_on = self._strategy, self._loads_on
            fragments: list[Fragment] = [
                each.collective(op, float(size_bytes), how, loads_on=loads_on) for each in self._bundles
            ]
            self._made[op, size_bytes] = fragments
        return self.builder.add(op, self._made[op, size_bytes], stream=self._stream, after=after, about=about)


# Megatron-core's (bucket_size of its DistributedDataParallelConfig): larger with many ranks, so that the chunk of each
# rank does not become too small.
_LEAST_ELEMENTS, _ELEMENTS_A_RANK = 40_000_000, 1_000_000


def least_elements(layout: Layout) -> int:
    """Return the elements of one of Megatron-core's buckets."""
    return max(_LEAST_ELEMENTS, _ELEMENTS_A_RANK * (layout.dp or 1) * layout.cp)


def bucket_size(question: StepQuestion, layout: Layout, element_bytes: int) -> float:
    """Return the bytes of a bucket: *question*'s, or Megatron-core's if it runs with the default bucket size."""
    if question.options.framework != "megatron" or question.bucket_bytes != BUCKET_BYTES:
        return question.bucket_bytes
    return float(least_elements(layout) * element_bytes)


def copy_in(device: Device, layer: str, elements: tuple[int, ...], element_bytes: int) -> Launch:
    """Return the copies of *layer*'s gradients, with *elements* each, into a bucket."""
    return _copies(f"{layer} (into bucket)", device, layer, "mul_scalar", elements, element_bytes)


def copy_out(device: Device, elements: tuple[int, ...], element_bytes: int) -> Launch:
    """Return the copies of a bucket's sums into gradients with *elements* each."""
    return _copies("out of bucket", device, "", "copy", elements, element_bytes)


@lru_cache(maxsize=1024)
def _copies(
    name: str, device: Device, layer: str, function: str, elements: tuple[int, ...], element_bytes: int
) -> Launch:
    kernels = [Streaming(function, n, n * element_bytes, n * element_bytes) for n in elements]
    host_s = len(elements) * bucket_copy_time(device)
    return Launch(name, "backward", host_s, work_of(device, kernels), layer=layer)
