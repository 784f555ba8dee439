"""A step of several GPUs that each hold the whole network, or a share of it (FSDP), as their frameworks overlap it.

What one GPU computes is a list of issues (:mod:`simulator.step.issue`); what they exchange are collectives of NCCL on
the machine's routes.  Both are put on two streams, computing and communicating:

- ``all-reduce`` (DDP, Horovod): gradients go into buckets of 25 MiB as they become ready (Li et al., "PyTorch
  Distributed", VLDB 2020, section 4.2), a bucket is exchanged while the backward pass goes on; the update waits for
  the last.  Micro-batches but the last exchange nothing.
- ``shard`` (FSDP, ZeRO-3): the parameters of each unit, a repeated block or what lies between two, are gathered
  before its forward and again before its backward pass, one unit ahead, and its gradients are reduced and scattered
  after (Zhao et al., "PyTorch FSDP", VLDB 2023, sections 3.2 and 3.3); in every micro-batch.  A rank updates its share.

That kernels of a collective take multiprocessors and bandwidth from those that compute is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from simulator.api import simulate
from simulator.devices.predict import Device
from simulator.step.backward import backward_steps
from simulator.step.issue import Issue, issues_of
from simulator.step.options import StepOptions
from simulator.step.precision import casts, storage_of
from simulator.workload.collective import Collective
from simulator.workload.network import Network, block_name
from simulator.workload.precision import ELEMENT_BYTES
from validate.score.machines import Compiled
from validate.training.spread import Spread

__all__ = ["BUCKET_BYTES", "Exchange", "exchange_on", "step_of_copies"]

BUCKET_BYTES = 25 * 2**20  # bucket_cap_mb of PyTorch's DistributedDataParallel
Exchange = Callable[[Collective, float], float]


@dataclass(slots=True)
class _Streams:
    """Until when host, computing and communicating are taken, in seconds from the start of the step."""

    host_s: float = 0.0
    computing_s: float = 0.0
    communicating_s: float = 0.0

    def compute(self, issue: Issue, after_s: float = 0.0) -> float:
        """Issue and compute *issue*, not before *after_s*; return when it ends."""
        begins_s = max(self.host_s, self.computing_s) if issue.waits else self.host_s
        self.host_s = begins_s + issue.host_s
        self.computing_s = max(self.host_s, self.computing_s, after_s) + issue.device_s
        return self.computing_s

    def communicate(self, time_s: float, after_s: float) -> float:
        """Exchange for *time_s*, not before *after_s*; return when it ends."""
        self.communicating_s = max(self.communicating_s, after_s) + time_s
        return self.communicating_s


@dataclass(frozen=True, slots=True)
class _Unit:
    """Issues of one unit in one pass; elements that are gathered before them, and scattered after."""

    issues: tuple[Issue, ...]
    gathered: int
    scattered: int


def step_of_copies(
    device: Device,
    network: Network,
    options: StepOptions,
    spread: Spread,
    exchange: Exchange,
    micro_batches: int = 1,
) -> float:
    """Return the seconds of a step over several GPUs; *exchange* says what a collective of some bytes takes."""
    issues = issues_of(device, network, options)
    passes = [issue for issue in issues if issue.part != "update"]
    streams = _Streams()
    for number in range(micro_batches):
        if spread.kind == "shard":
            _shard(streams, _units(network, passes), options, spread, exchange)
        elif number + 1 < micro_batches:
            for issue in passes:
                streams.compute(issue)
        else:
            _all_reduce(streams, network, passes, options, exchange)
    exchanged_s = streams.communicating_s
    share = 1.0 / spread.ranks if spread.kind == "shard" else 1.0
    for issue in issues:
        if issue.part == "update":
            part = replace(issue, work=replace(issue.work, time_s=share * issue.work.time_s))
            streams.compute(part, exchanged_s)
    return max(streams.computing_s, streams.communicating_s)


def exchange_on(compiled: Compiled, spread: Spread) -> Exchange:
    """Return what NCCL's collectives take over the GPUs of *spread*, each size simulated once."""
    machine, local = compiled.machine, spread.ranks // spread.nodes
    per_node = len(machine.gpus) // spread.nodes
    gpus = [node * per_node + gpu for node in range(spread.nodes) for gpu in range(local)]

    @lru_cache(maxsize=1024)
    def exchange(collective: Collective, size_bytes: float) -> float:
        result = simulate(machine, "nccl", size_bytes, collective=collective, gpus=gpus, router=compiled.router)
        return result.sync_time_s

    return exchange


def _all_reduce(
    streams: _Streams, network: Network, passes: Sequence[Issue], options: StepOptions, exchange: Exchange
) -> None:
    """Go through one micro-batch and exchange its gradients, a bucket as soon as it is full."""
    element = ELEMENT_BYTES["fp32" if casts(options.precision) else storage_of(options.precision)]
    sizes = {parameter.name: parameter.elements * element for parameter in network.parameters}
    ready = {step.layer.name: sum(sizes[name] for name in step.ready) for step in backward_steps(network)}
    bucket = 0
    for issue in passes:
        end_s = streams.compute(issue)
        if issue.part == "backward" and not issue.name.endswith(" (again)"):
            bucket += ready.pop(issue.name.split(" (")[0], 0)
        if bucket >= BUCKET_BYTES:
            streams.communicate(exchange("all-reduce", float(bucket)), end_s)
            bucket = 0
    rest = bucket + sum(ready.values())
    if rest:
        streams.communicate(exchange("all-reduce", float(rest)), streams.computing_s)


def _units(network: Network, passes: Sequence[Issue]) -> list[_Unit]:
    """Return the units of one micro-batch in the order in which they run, forward and backward."""
    elements: dict[str, int] = {}
    seen: set[str] = set()
    for layer in network.layers:
        name = block_name(layer.name)
        for parameter in layer.parameters:
            if parameter.name not in seen:
                seen.add(parameter.name)
                elements[name] = elements.get(name, 0) + parameter.elements
    found: list[_Unit] = []
    outside: list[int] = []  # units of what lies in no block: gathered at first, and kept until the end
    for (part, name), issues in groupby(passes, key=lambda issue: (issue.part, block_name(issue.name))):
        size = elements.get(name, 0)
        if not name:
            outside.append(len(found))
            size = 0
        found.append(_Unit(tuple(issues), size, size if part == "backward" else 0))
    if outside:
        found[outside[0]] = replace(found[outside[0]], gathered=elements.get("", 0))
        found[outside[-1]] = replace(found[outside[-1]], scattered=elements.get("", 0))
    return found


def _shard(streams: _Streams, units: Sequence[_Unit], options: StepOptions, spread: Spread, exchange: Exchange) -> None:
    """Go through one micro-batch: each unit gathered while the one before computes, gradients scattered after."""
    element = ELEMENT_BYTES[storage_of(options.precision)]
    summed = ELEMENT_BYTES["fp32"] if spread.sums_in_fp32 else element
    ends_s = [streams.computing_s]
    for unit in units:
        after_s = 0.0
        if unit.gathered:  # no more than two units are there at once: it waits for the one before the last
            before_s = ends_s[-2] if len(ends_s) > 1 else ends_s[-1]
            after_s = streams.communicate(exchange("all-gather", float(unit.gathered * element)), before_s)
        for issue in unit.issues:
            streams.compute(issue, after_s)
        ends_s.append(streams.computing_s)
        if unit.scattered:
            streams.communicate(exchange("reduce-scatter", float(unit.scattered * summed)), streams.computing_s)
