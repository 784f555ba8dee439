"""Tables of disks: sequential and random reads, and synchronous writes."""

from __future__ import annotations

from simulator.errors import one_line
from simulator.questions.single import DISK_ACCESSES, DiskQuestion
from validate.kinds.kind import Cell, Kind, RowQuestion
from validate.tables.cells import NotScored, measured_s, size_bytes, threads_of
from validate.tables.names import RowNames

_CACHES = ("direct", "dropped", "page cache")


def read_storage(cell: Cell, names: RowNames) -> RowQuestion:
    """Return the question that a row asks; raises NotScored if the row is incomplete or not modelled."""
    kind, cache = next((kind for kind in DISK_ACCESSES if kind == cell("kind")), None), cell("cache")
    if kind is None:
        raise NotScored(f"no model of accesses of kind {one_line(cell('kind'), 30) or 'none'}")
    if cache not in _CACHES:
        raise NotScored(f"cache is {one_line(cache, 20) or 'missing'}; it may be {', '.join(_CACHES)}")
    if not cell("block_bytes"):
        raise NotScored("block_bytes missing")
    return RowQuestion(
        DiskQuestion(
            where=names.machines.where(cell("machine"), 1),
            kind=kind,
            block_bytes=size_bytes(cell, "block_bytes"),
            threads=threads_of(cell) or 1,
            # Writes wait until the data are on the disk.
            cached=cache == "page cache" and kind != "write_sequential",
        )
    )


STORAGE = Kind(
    name="storage",
    method="figures of the disk",
    needed=("machine", "kind", "block_bytes", "cache"),
    asked=("machine", "kind", "block_bytes", "threads", "cache"),
    measured=("gbps", "time_s"),
    place="machine",
    axes=(("kind",), ("cache",), ("kind", "cache"), ("machine",)),
    shown=(("kind", "cache"), ("machine",)),
    labels=("machine",),
    legend="data sheet: bytes over the disk's rate",
    read=read_storage,
    measured_s=lambda cell, _names: measured_s(cell, size_bytes(cell, "block_bytes")),
)
