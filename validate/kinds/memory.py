"""Tables of memory: bandwidth by working set, gathers, and the latency of dependent loads (pointer chasing).

It reads rows of ``validate run``, and published runs of BabelStream and gpu-benches.  A rate counts all bytes that the
kernel reads and writes.  BabelStream's size is that of one array, otherwise it is the size of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from simulator.errors import one_line
from simulator.questions.single import AccessQuestion
from simulator.topology.parts import CpuPart
from validate.kinds.kind import Cell, RowQuestion, kind_of
from validate.tables.cells import NotScored, measured_s, number, size_bytes, threads_of
from validate.tables.names import RowNames

# Kernels by the start of their names, with the numbers of arrays read and written.
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
_ELEMENT = {"fp32": 4, "fp64": 8, "double": 8, "float": 4, "": 8}
_GATHER = re.compile(r"gather rows of (\d{1,6}) B", re.ASCII)
_OCCUPANCY = re.compile(r"occupancy (\d{1,3}(?:\.\d+)?) ?%", re.ASCII)
_VARIANT = re.compile(r"variant (\d{1,3}) of (\d{1,3})", re.ASCII)  # each has blocks twice as large as the one before
_LARGEST_BLOCK = 1024
_FULL = 95.0  # percent occupancy; below it bandwidth stays unused
_GATHERED, _CPU_GATHERED = 64 << 20, 8 << 20  # bytes that validate run gathers at once
_FLOAT_BYTES = 4


def _question(cell: Cell, names: RowNames) -> AccessQuestion:
    """Return the question that a row asks; raises NotScored if the row is incomplete or not modelled."""
    bench, kernel, dtype = cell("bench"), cell("kernel"), cell("dtype").lower()
    size = size_bytes(cell)
    where, device = names.devices.where(cell("device"))
    ask = partial(AccessQuestion, where=where, device=device)
    on_cpu = isinstance(names.devices.described(cell("device")), CpuPart)
    if "chase" in f"{bench} {kernel}".replace("-", " "):
        return ask(kind="chase", size_bytes=size, threads=1 if on_cpu else None)
    if dtype not in _ELEMENT:
        raise NotScored(f"no such dtype: {one_line(dtype, 20)}")
    occupancy = _OCCUPANCY.search(cell("note"))
    few = occupancy is not None and float(occupancy[1]) < _FULL
    threads = threads_of(cell) if on_cpu and occupancy is None else None
    stays = "gsync" in kernel or "persistent" in kernel
    variant = _VARIANT.search(cell("note"))
    block_threads = 0
    if variant and int(variant[1]) + 1 < int(variant[2]):
        block_threads = _LARGEST_BLOCK >> (int(variant[2]) - 1 - int(variant[1]))
        if "gsync" in kernel:
            raise NotScored("how many small blocks stay is not said")
    gather = _GATHER.search(kernel)
    if gather:
        row_bytes = int(gather[1])
        if row_bytes < _FLOAT_BYTES or row_bytes > size:
            raise NotScored("rows that are no part of their table")
        return ask(
            kind="gather",
            size_bytes=size,
            rows=min(int(size / row_bytes), (_CPU_GATHERED if on_cpu else _GATHERED) // row_bytes),
            row_bytes=row_bytes,
            threads=threads,
            in_graph=True,
        )
    for name, reads, writes in _ARRAYS:
        if kernel.lower().startswith(name):
            of_one_array = bench.startswith(("BabelStream", "superbench"))
            return ask(
                kind="stream",
                size_bytes=size * (reads + writes) if of_one_array else size,
                reads=reads,
                writes=writes,
                element_bytes=_ELEMENT[dtype],
                threads=threads,
                in_graph="graph" in kernel.lower() or bench.startswith("torch"),
                resident=int(number("threads", cell("threads"))) if few else 0,
                block_threads=block_threads,
                persistent=stays,
            )
    raise NotScored(f"no model of {one_line(kernel, 40) or 'a kernel without a name'}")


def _measured_s(cell: Cell, names: RowNames) -> float:
    """Return the measured time in seconds, or compute it from the rate; a gather's rate counts reads and writes."""
    question = _question(cell, names)
    if question.kind == "chase":
        if cell("latency_s"):
            return number("latency_s", cell("latency_s"))
        return number("latency_cycles", cell("latency_cycles")) / (number("clock_MHz", cell("clock_mhz")) * 1e6)
    gathered = 2.0 * question.rows * question.row_bytes
    return measured_s(cell, gathered if question.kind == "gather" else question.size_bytes)


def _labels(cell: Cell, names: RowNames) -> Mapping[str, str]:
    """Return the kind of access, and whether the last-level cache holds the working set."""
    try:
        question = _question(cell, names)
    except NotScored:
        return {}
    held = question.size_bytes <= names.session.account(question).cache_bytes
    return {"work": question.kind, "level": "cache" if held else "memory"}


MEMORY = kind_of(
    "memory",
    read=lambda cell, names: RowQuestion(_question(cell, names)),
    measured_s=_measured_s,
    labelled=_labels,
)
