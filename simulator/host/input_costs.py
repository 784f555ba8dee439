"""What loading a batch takes: of the disks, of the cores, of the memory (:func:`batch_load`).

A worker reads a sample, decodes it, augments it, and so on to the last of its batch, then copies all into one tensor;
so it takes ``read_s + core_s``, in which it uses the disks and a core for a part of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.memory import bandwidth
from simulator.errors import InputError, nearest
from simulator.host.disks import block_time
from simulator.network.machine import Machine, Node
from simulator.questions.disk import DiskQuestion
from simulator.questions.input import MEMORY, InputQuestion
from simulator.questions.where import Where
from simulator.topology.parts import StoragePart

__all__ = ["BatchLoad", "DiskUse", "InputCosts", "batch_load", "disks_of", "hit_share", "is_resized"]

_DEEP = 256  # requests at once, of which no disk takes more in hand
_CHANNELS = 3
_LABELS = 0.02  # of what is fed, at most
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
    """What a batch takes of the disk that is node ``node``: ``busy_s`` of it at depth, and ``bytes`` over its link.

    ``by_operations``: its operations a second bound it, not its bandwidth.
    """

    node: int
    busy_s: float
    bytes: float
    by_operations: bool


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """What a batch of ``samples`` takes a worker that has all to itself.

    ``read_s`` it waits for disks, ``core_s`` it computes, of which ``decode_s`` decoding; ``pin_s`` is what copying
    ``batch_bytes`` to page-locked memory takes, ``taken_s`` what taking the batch takes the process that feeds devices.
    """

    samples: int
    read_s: float
    core_s: float
    decode_s: float
    pin_s: float
    taken_s: float
    batch_bytes: float
    disks: tuple[DiskUse, ...]
    is_resized: bool = False  # images of the set have another size than the network reads, and are not cropped anyhow

    @property
    def worker_s(self) -> float:
        """Seconds of a worker."""
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
    """Return what loading *samples* takes, each of so many elements as the network reads it.

    *missed* is the share of them that is not in memory.  Raises InputError where the machine has no such disk, or the
    disk lacks a figure.
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
    """Return whether images have another size than the network reads, in one channel or in three, but for labels."""
    if not asked.pixels:
        return False
    return all(abs(sample_elements / (channels * asked.pixels) - 1.0) > _LABELS for channels in (1, _CHANNELS))


def _reads(asked: InputQuestion, disks: Sequence[Node], samples: float) -> tuple[float, tuple[DiskUse, ...]]:
    """Return for how long one worker waits for *samples*, and what they take of each disk."""
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
    """Return the disks that the set is spread over, none where it is in memory; raises InputError."""
    if asked.disks == (MEMORY,):
        return []
    found = [node for node in machine.nodes_of(0) if isinstance(node.part, StoragePart)]
    if not asked.disks:
        if not found:
            raise InputError(
                f"--input: {machine.name} has no disk; devices needs for example ssd0: {{part: nvme-gen4}} with a "
                f"link to a CPU, or write disk=memory"
            )
        return found[:1]
    named = {node.name: node for node in found}
    named.update({node.name.rpartition(".")[2]: node for node in found})  # of a cluster, those of its first machine
    for name in asked.disks:
        if name not in named:
            raise InputError(f"--input disk={name}: {machine.name} has no such disk; {nearest(name, [*named, MEMORY])}")
    return [named[name] for name in asked.disks]


def hit_share(asked: InputQuestion, memory_bytes: float) -> float:
    """Return the share of samples that later epochs find in *memory_bytes*, of which what was used last is kept.

    In the same order again nothing is found where not all fits.  In a random order an item that was used at the share
    u of one epoch and v of the next is found where what was used between, 1 - u (1 - v) of the set, fits: for a share c
    that fits, with q = 1 - c, that is 1 - q + q ln q.
    """
    from math import log

    if asked.cache == "none" or not asked.set_bytes:
        return 0.0
    missing = 1.0 - memory_bytes / asked.set_bytes
    if missing <= 0.0:
        return 1.0
    if not asked.shuffle or missing >= 1.0:
        return 0.0
    return 1.0 - missing + missing * log(missing)
