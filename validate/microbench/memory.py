"""Tables of memory: bandwidth by what is touched, gathers, and the latency of loads that wait for each other.

Read are what ``validate run`` measures with torch, and published runs of BabelStream and gpu-benches.
A rate counts what the kernel reads and writes; BabelStream's size is that of one array, the others' is
that of all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_call_time
from simulator.devices.kernels import Gather, Kernel, Streaming
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import InputError, one_line
from simulator.topology.parts import CpuPart
from validate.microbench.cells import Cell, measured_s, size_bytes, threads_of
from validate.microbench.scorer import FunctionScorer
from validate.operators.devices import DeviceBook
from validate.operators.issuing import in_graph
from validate.score.kind import Kind
from validate.score.query import NotScored, number

__all__ = ["MEMORY", "MemoryQuery", "chase_latency", "memory_scorer", "read_memory"]

Work = Literal["stream", "gather", "chase"]
MEMORY = Kind(
    name="memory",
    needed=("device", "bench", "kernel", "bytes"),
    asked=("device", "bench", "kernel", "bytes", "threads", "dtype", "software", "note"),
    measured=("gbps", "time_s", "latency_s", "latency_cycles", "clock_mhz"),
    place="device",
    axes=(("bench",), ("work",), ("device",), ("work", "level"), ("bench", "kernel"), ("device", "work")),
    shown=(("work", "level"), ("bench",), ("device",)),
    labels=("device", "work", "level"),
    baseline="data sheet",
    baseline_label="data sheet",
    legend="data sheet: bytes over the nominal rate of memory; level: whether the last cache holds what is touched",
)
# Arrays read and written by a kernel, by the beginning of its name.
_ARRAYS: tuple[tuple[str, int, int], ...] = (
    ("read", 1, 0),
    ("dot", 2, 0),
    ("write", 0, 1),
    ("init", 0, 1),
    ("copy", 1, 1),
    ("mul", 1, 1),
    ("scale", 1, 1),
    ("stencil", 1, 1),
    ("triad", 2, 1),
    ("add", 2, 1),
)
_FUNCTIONS = {(1, 0): "sum", (2, 0): "sum", (0, 1): "fill", (1, 1): "copy", (2, 1): "add"}
_ELEMENT = {"fp32": 4, "fp64": 8, "double": 8, "float": 4, "": 8}
_GATHER = re.compile(r"gather rows of (\d{1,6}) B", re.ASCII)
_OCCUPANCY = re.compile(r"occupancy (\d{1,3}(?:\.\d+)?) ?%", re.ASCII)
_VARIANT = re.compile(r"variant (\d{1,3}) of (\d{1,3})", re.ASCII)  # from one block to as many as fill the device
_FULL = 95.0  # percent of the threads that a device holds: fewer leave bandwidth unused, which is not modelled
_GATHERED, _CPU_GATHERED = 64 << 20, 8 << 20  # bytes of rows that validate run picks at once
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A pass over ``bytes``, picks of ``row_bytes`` from a table of so many, or a walk over them.

    ``reads`` and ``writes`` are arrays, each a share of ``bytes``.  ``in_graph``: a GPU's calls come from a
    captured graph.
    """

    device: str
    work: Work
    bytes: float
    reads: int = 1
    writes: int = 0
    element_bytes: int = 8
    row_bytes: int = 0
    threads: int | None = None
    in_graph: bool = False


def read_memory(cell: Cell) -> MemoryQuery:
    """Return what a row asks; raises NotScored where it is incomplete or asks for what is not modelled."""
    bench, kernel, dtype = cell("bench"), cell("kernel"), cell("dtype").lower()
    device, size = cell("device"), size_bytes(cell)
    if "chase" in f"{bench} {kernel}".replace("-", " "):
        return MemoryQuery(device, "chase", size, threads=1)
    if dtype not in _ELEMENT:
        raise NotScored(f"no such dtype: {one_line(dtype, 20)}")
    occupancy = _OCCUPANCY.search(cell("note"))
    if occupancy and float(occupancy[1]) < _FULL:
        raise NotScored("fewer threads than fill the device")
    variant = _VARIANT.search(cell("note"))
    if variant and int(variant[1]) + 1 < int(variant[2]):
        raise NotScored("fewer blocks than fill the device")
    threads = threads_of(cell) if occupancy is None else None
    if "gsync" in kernel or "persistent" in kernel:
        raise NotScored("one kernel that stays, and waits for all its blocks")
    gather = _GATHER.search(kernel)
    if gather:
        row_bytes = int(gather[1])
        if row_bytes < _FLOAT_BYTES or row_bytes > size:
            raise NotScored("rows that are no part of their table")
        return MemoryQuery(device, "gather", size, row_bytes=row_bytes, element_bytes=4, threads=threads, in_graph=True)
    for name, reads, writes in _ARRAYS:
        if kernel.lower().startswith(name):
            whole = size * (reads + writes) if bench.startswith(("BabelStream", "superbench")) else size
            graph = "graph" in kernel.lower() or bench.startswith("torch")
            return MemoryQuery(device, "stream", whole, reads, writes, _ELEMENT[dtype], 0, threads, graph)
    raise NotScored(f"no model of {one_line(kernel, 40) or 'a kernel without a name'}")


def memory_scorer(book: DeviceBook) -> FunctionScorer:
    """Return the scorer of tables of memory on the devices of *book*."""

    def predict(query: MemoryQuery) -> float:
        if query.work == "chase":
            return _chase(book, query)
        device = book.get(query.device, query.threads)
        try:
            time_s = kernel_cost(device, _kernel(query, device)).time_s
        except InputError as error:
            raise NotScored(one_line(error)) from None
        if isinstance(device, Cpu):
            return cpu_call_time(device) + time_s
        return in_graph(device, time_s) if query.in_graph else time_s

    def data_sheet_s(query: MemoryQuery) -> float:
        if query.work == "chase":
            raise NotScored("a latency has no rate")
        device = book.get(query.device, query.threads)
        sockets = device.sockets if isinstance(device, Cpu) else 1
        return _counted(query, isinstance(device, Cpu)) / (device.memory_bandwidth_Bps * sockets)

    def measured(cell: Cell) -> float:
        query = read_memory(cell)
        if query.work == "chase":
            if cell("latency_s"):
                return number("latency_s", cell("latency_s"))
            return number("latency_cycles", cell("latency_cycles")) / (number("clock_MHz", cell("clock_mhz")) * 1e6)
        return measured_s(cell, _counted(query, isinstance(book.get(query.device), Cpu)))

    def labels(cell: Cell) -> dict[str, str]:
        try:
            query = read_memory(cell)
            device = book.get(query.device, query.threads)
        except NotScored:
            return {}
        return {"work": query.work, "level": "cache" if query.bytes <= _last_cache(device) else "memory"}

    needed = tuple(column for column in MEMORY.needed if column != "device" or book.needs_names)
    return FunctionScorer(
        kind=replace(MEMORY, needed=needed),
        method="caches and memory of the data sheet, shared constants",
        reader=read_memory,
        predict=predict,
        baseline=data_sheet_s,
        measured=measured,
        check_names=book.check_used,
        labelled=labels,
    )


def _kernel(query: MemoryQuery, device: Device) -> Kernel:
    if query.work == "gather":
        rows = int(_counted(query, isinstance(device, Cpu)) / 2 / query.row_bytes)
        return Gather("fwd", rows, query.row_bytes // _FLOAT_BYTES, int(query.bytes / query.row_bytes), "fp32")
    arrays = query.reads + query.writes
    each = query.bytes / arrays
    function = _FUNCTIONS[query.reads, query.writes]
    elements = max(1, int(each / query.element_bytes))
    return Streaming(function, elements, int(each * query.reads), int(each * query.writes))


def _counted(query: MemoryQuery, on_cpu: bool) -> float:
    """Return the bytes that the rate of a row counts: those of a stream, or of rows read and written."""
    if query.work != "gather":
        return query.bytes
    most = _CPU_GATHERED if on_cpu else _GATHERED
    return 2.0 * min(int(query.bytes / query.row_bytes), most // query.row_bytes) * query.row_bytes


def _last_cache(device: Device) -> float:
    if isinstance(device, Cpu):
        return device.caches[-1].size_bytes if device.caches else 0.0
    return device.l2_bytes


def _chase(book: DeviceBook, query: MemoryQuery) -> float:
    part = book.described(query.device)
    if not isinstance(part, CpuPart):
        raise NotScored("the parts of GPUs have no latencies of their caches and memory")
    return chase_latency(part, query.bytes)


def chase_latency(part: CpuPart, working_set_bytes: float) -> float:
    """Return the mean latency of loads that go through *working_set_bytes* in no order, by one core, in seconds.

    Each level holds as large a share of the set as it is large; translations of addresses are left out.

    Raises
    ------
    NotScored
        Where the set goes beyond the caches and the part has no latency of memory.

    """
    latency_s = found = 0.0
    for level in part.caches.values():
        held = min(1.0, level.size / working_set_bytes)
        latency_s += max(0.0, held - found) * level.latency
        found = max(found, held)
    if found < 1.0:
        if part.memory_latency is None:
            raise NotScored("the part has no memory_latency")
        latency_s += (1.0 - found) * part.memory_latency
    return latency_s
