"""The time that loading a batch takes on disks, cores and memory (:func:`batch_load`).

A worker reads, decodes and augments the samples of its batch one by one, then copies them into one tensor.  This takes
``read_s + core_s``; the disks and a core are each busy for part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from simulator.constants import constants
from simulator.devices.cpu import Cpu
from simulator.devices.cpu.memory import bandwidth
from simulator.errors import nearest, refused
from simulator.host.disks import block_time
from simulator.network.machine import Machine, Node
from simulator.questions.input import MEMORY, InputQuestion
from simulator.questions.single import DiskQuestion
from simulator.questions.where import Where
from simulator.records import dataclass
from simulator.topology.parts import StoragePart

_DEEP = 256  # requests in flight: more than any disk serves at once
_CHANNELS = 3
_LABELS = 0.02  # largest share of labels in the input
_EQUAL = 1.0 + 1e-9


@constants("input")
@dataclass(frozen=True, slots=True)
class InputCosts:
    """Constants of loading samples, the same for all machines."""

    decode_cycles: float
    crop_share: float
    resize_cycles: float
    tensor_cycles: float
    sample_cycles: float
    batch_s: float
    cache_share: float


@dataclass(frozen=True, slots=True)
class DiskUse:
    """A batch's use of the disk at node ``node``: ``busy_s`` seconds at full queue depth, ``bytes`` over its link.

    ``by_operations``: operations per second bound it, not bandwidth.
    """

    node: int
    busy_s: float
    bytes: float
    by_operations: bool


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The time of loading a batch of ``samples`` in a worker that has the machine to itself.

    The worker waits for disks for ``read_s`` and computes for ``core_s``, of which ``decode_s`` is decoding.  Copying
    ``batch_bytes`` to page-locked memory takes ``pin_s``; taking the batch costs the process that feeds the devices
    ``taken_s``.
    """

    samples: int
    read_s: float
    core_s: float
    decode_s: float
    pin_s: float
    taken_s: float
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
    samples: int,
    sample_elements: float,
    element_bytes: int,
    is_image: bool,
    missed: float = 1.0,
) -> BatchLoad:
    """Return the load of *samples* samples, each of *sample_elements* elements as the network reads it.

    *missed* is the share of the samples that is not in memory.  Raises InputError where the machine has no such disk,
    or the disk lacks a figure.
    """
    costs = cpu.constants(InputCosts)
    clock_Hz = cpu.core_clock(cpu.core_count)
    decode_s = costs.decode_cycles * asked.pixels / clock_Hz if asked.decode == "jpeg" else 0.0
    cycles = costs.sample_cycles
    resized = is_image and not asked.augment and is_resized(asked, sample_elements)
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


def is_resized(asked: InputQuestion, sample_elements: float) -> bool:
    """Return whether images differ in size from the network's input, in one or three channels, labels left aside."""
    if not asked.pixels:
        return False
    return all(abs(sample_elements / (channels * asked.pixels) - 1.0) > _LABELS for channels in (1, _CHANNELS))


def _reads(asked: InputQuestion, disks: Sequence[Node], samples: float) -> tuple[float, tuple[DiskUse, ...]]:
    """Return the seconds that one worker waits for *samples*, and their use of each disk."""
    if not disks or not samples:
        return 0.0, ()
    packed = max(asked.block_bytes, asked.sample_bytes) if asked.block_bytes else asked.sample_bytes
    blocks = samples * asked.sample_bytes / packed / len(disks)
    kind = "read_random" if asked.shuffle else "read_sequential"
    waits_s, uses = 0.0, []
    for disk in disks:
        part = disk.part
        assert isinstance(part, StoragePart)
        one = DiskQuestion(where=Where(""), kind=kind, block_bytes=packed)  # type: ignore[arg-type]
        alone_s = block_time(part, one)
        deep_s = block_time(part, DiskQuestion(where=Where(""), kind=one.kind, block_bytes=packed, threads=_DEEP))
        streamed_s = packed / part.read_bandwidth if part.read_bandwidth else 0.0
        waits_s += blocks * alone_s
        uses.append(DiskUse(disk.index, blocks * deep_s, blocks * packed, deep_s > streamed_s * _EQUAL))
    return waits_s, tuple(uses)


def disks_of(asked: InputQuestion, machine: Machine) -> list[Node]:
    """Return the disks over which the data set is spread, none where it is in memory; raises InputError."""
    if asked.disks == (MEMORY,):
        return []
    found = [node for node in machine.nodes_of(0) if isinstance(node.part, StoragePart)]
    if not asked.disks:
        if not found:
            raise refused(
                "input",
                f"{machine.name} has no disk; devices needs for example ssd0: "
                f"{{part: nvme-gen4}} with a "
                f"link to a CPU, or write disk=memory",
            )
        return found[:1]
    named = {node.name: node for node in found}
    named.update({node.name.rpartition(".")[2]: node for node in found})  # in a cluster: those of its first machine
    for name in asked.disks:
        if name not in named:
            raise refused(
                "input", f"{machine.name} has no such disk; {nearest(name, [*named, MEMORY])}", "disk=" + name
            )
    return [named[name] for name in asked.disks]


def hit_share(asked: InputQuestion, memory_bytes: float) -> float:
    """Return the share of samples that later epochs find in *memory_bytes*, which keeps the most recently used.

    In a repeated order, nothing is found unless everything fits.  In a random order, a sample used at the fraction u of
    one epoch and v of the next is found where the samples used in between, 1 - u (1 - v) of the set, fit.  Where a
    share c of the set fits, with q = 1 - c, that is 1 - q + q ln q.
    """
    if asked.cache == "none" or not asked.set_bytes:
        return 0.0
    missing = 1.0 - memory_bytes / asked.set_bytes
    if missing <= 0.0:
        return 1.0
    if not asked.shuffle or missing >= 1.0:
        return 0.0
    return 1.0 - missing + missing * log(missing)
