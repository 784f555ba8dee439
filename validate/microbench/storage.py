"""Tables of disks: sequential and random reads, and writes that wait until they are on the disk."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.devices.cpu.cpu import cpu_from_part
from simulator.devices.cpu.memory import bandwidth
from simulator.errors import InputError, one_line
from simulator.network.machine import Machine
from simulator.topology.parts import CpuPart, StoragePart
from validate.microbench.cells import Cell, measured_s, size_bytes, threads_of
from validate.microbench.scorer import FunctionScorer
from validate.score.kind import Kind
from validate.score.machines import MachineBook
from validate.score.query import NotScored

__all__ = ["STORAGE", "StorageQuery", "block_time", "read_storage", "storage_scorer"]

STORAGE = Kind(
    name="storage",
    needed=("machine", "kind", "block_bytes", "cache"),
    asked=("machine", "kind", "block_bytes", "threads", "cache"),
    measured=("gbps", "time_s"),
    place="machine",
    axes=(("kind",), ("cache",), ("kind", "cache"), ("machine",)),
    shown=(("kind", "cache"), ("machine",)),
    labels=("machine",),
    baseline="data sheet",
    baseline_label="data sheet",
    legend="data sheet: bytes over the disk's rate",
)
_KINDS = ("read_sequential", "read_random", "write_sequential")
_CACHES = ("direct", "dropped", "page cache")


@dataclass(frozen=True, slots=True)
class StorageQuery:
    """A block read or written, by each of ``threads``; ``cached``: the system's copy in memory serves it."""

    machine: str
    kind: str
    block_bytes: float
    threads: int
    cached: bool


def read_storage(cell: Cell) -> StorageQuery:
    """Return what a row asks; raises NotScored where it is incomplete or asks for what is not modelled."""
    kind, cache = cell("kind"), cell("cache")
    if kind not in _KINDS:
        raise NotScored(f"no model of accesses of kind {one_line(kind, 30) or 'none'}")
    if cache not in _CACHES:
        raise NotScored(f"cache is {one_line(cache, 20) or 'missing'}; it may be {', '.join(_CACHES)}")
    if not cell("block_bytes"):
        raise NotScored("block_bytes missing")
    size = size_bytes(cell, "block_bytes")
    cached = cache == "page cache" and kind != "write_sequential"  # a write is waited for until it is on the disk
    return StorageQuery(cell("machine"), kind, size, threads_of(cell) or 1, cached)


def storage_scorer(book: MachineBook) -> FunctionScorer:
    """Return the scorer of tables of disks on the machines of *book*: the first disk of each."""

    def predict(query: StorageQuery) -> float:
        machine = book.get(query.machine, 1).machine
        return _from_memory(machine, query) if query.cached else block_time(_disk(machine), query)

    def data_sheet_s(query: StorageQuery) -> float:
        if query.cached:
            raise NotScored("memory serves it, not the disk")
        return query.block_bytes / _rate(_disk(book.get(query.machine, 1).machine), query)

    needed = tuple(column for column in STORAGE.needed if column != "machine" or book.needs_names)
    return FunctionScorer(
        kind=replace(STORAGE, needed=needed),
        method="figures of the disk",
        reader=read_storage,
        predict=predict,
        baseline=data_sheet_s,
        measured=lambda cell: measured_s(cell, read_storage(cell).block_bytes),
        check_names=book.check_used,
    )


def block_time(disk: StoragePart, query: StorageQuery) -> float:
    """Return the seconds of a block: what it waits for, or what the disk's rates allow, whichever is longer.

    A request waits for the latency of a small one, or for its bytes.  Each thread has one at a time, up to as
    many in all as the disk does in a second.

    Raises
    ------
    NotScored
        Where the part lacks a figure; names it.

    """
    writes = query.kind.startswith("write")
    latency_s = disk.write_latency if writes else disk.read_latency
    if latency_s is None:
        raise NotScored(f"the disk has no {'write' if writes else 'read'}_latency")
    bytes_s = query.block_bytes / _rate(disk, query)
    time_s = max(bytes_s, latency_s / query.threads)
    if disk.operation_rate and query.kind == "read_random":
        time_s = max(time_s, 1.0 / disk.operation_rate)
    return time_s


def _rate(disk: StoragePart, query: StorageQuery) -> float:
    writes = query.kind.startswith("write")
    rate_Bps = disk.write_bandwidth if writes else disk.read_bandwidth
    if not rate_Bps:
        raise NotScored(f"the disk has no {'write' if writes else 'read'}_bandwidth")
    return rate_Bps


def _disk(machine: Machine) -> StoragePart:
    for node in machine.nodes:
        if isinstance(node.part, StoragePart) and node.host == 0:
            return node.part
    raise NotScored("the machine has no disk; devices needs for example ssd0: {part: nvme-gen4}")


def _from_memory(machine: Machine, query: StorageQuery) -> float:
    """Return the seconds of copying a block out of the system's memory by one thread."""
    for node in machine.nodes:
        if isinstance(node.part, CpuPart):
            try:
                cpu = cpu_from_part(node.part_name or node.name, node.part, threads=query.threads)
            except InputError as error:
                raise NotScored(one_line(error)) from None
            return 2.0 * query.block_bytes / bandwidth(cpu, float("inf"), query.threads)
    raise NotScored("the machine has no CPU")
