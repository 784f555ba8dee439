"""Disks: sequential and random reads, and writes that wait until they are on the disk."""

from __future__ import annotations

from simulator.devices.cpu.memory import bandwidth
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.places import Places
from simulator.questions.disk import DiskQuestion
from simulator.topology.parts import StoragePart

__all__ = ["block_time", "disk_bound_s", "disk_s"]


def disk_s(question: DiskQuestion, machine: Machine, places: Places) -> float:
    """Return the seconds of a block of the machine's first disk, or of what memory holds of it; raises InputError."""
    if question.cached:  # copied out of the system's memory, by each thread
        host = places.host_of(None, question.threads, 1)
        return 2.0 * question.block_bytes / bandwidth(host, float("inf"), question.threads)
    return block_time(_disk(machine), question)


def disk_bound_s(question: DiskQuestion, machine: Machine) -> float:
    """Return the bytes over the disk's rate; raises InputError where memory serves them."""
    if question.cached:
        raise InputError("memory serves it, not the disk")
    return question.block_bytes / _rate(_disk(machine), question)


def block_time(disk: StoragePart, question: DiskQuestion) -> float:
    """Return the seconds of a block: what it waits for, or what the disk's rates allow, whichever is longer.

    A request waits for the latency of a small one, or for its bytes.  Each thread has one at a time, up to as
    many in all as the disk does in a second.  Raises InputError where the part lacks a figure; names it.
    """
    writes = question.kind.startswith("write")
    latency_s = disk.write_latency if writes else disk.read_latency
    if latency_s is None:
        raise InputError(f"the disk has no {'write' if writes else 'read'}_latency")
    time_s = max(question.block_bytes / _rate(disk, question), latency_s / question.threads)
    if disk.operation_rate and question.kind == "read_random":
        time_s = max(time_s, 1.0 / disk.operation_rate)
    return time_s


def _rate(disk: StoragePart, question: DiskQuestion) -> float:
    writes = question.kind.startswith("write")
    rate_Bps = disk.write_bandwidth if writes else disk.read_bandwidth
    if not rate_Bps:
        raise InputError(f"the disk has no {'write' if writes else 'read'}_bandwidth")
    return rate_Bps


def _disk(machine: Machine) -> StoragePart:
    for node in machine.nodes:
        if isinstance(node.part, StoragePart) and node.host == 0:
            return node.part
    raise InputError("the machine has no disk; devices needs for example ssd0: {part: nvme-gen4}")
