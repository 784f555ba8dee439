"""Tables that are written row by row, so that no measured row is lost, and the lock that lets one run write them."""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CERTIFICATE = "certificate.json"
"""The file that says how a certificate was measured: its parts, each with its time and its end."""
RAN_DRY = "the queue ran dry: some of the host's time is in it"
CAPTURED = "captured graph"
_REMARKS = (RAN_DRY, CAPTURED)  # appended to a row's note by the measurement

_COMMON = (
    *("interval", "samples", "sm_clock_MHz", "memory_clock_MHz", "power_W", "temperature_C", "throttled"),
    *("dataset", "source", "software", "trust", "note"),
)
_OPERATOR = (
    *("device", "op", "variant", "phase", "dtype", "batch", "m", "n", "k", "c_in", "c_out", "h_in", "w_in"),
    *("kernel_h", "kernel_w", "stride", "pad", "stride_w", "pad_w", "groups", "rows", "cols", "hidden", "timesteps"),
    *("heads", "kv_heads", "threads", "time_s", "includes_dispatch", "cache", "issue"),
)
_STEP = (
    *("row_id", "machine", "fabric", "n_nodes", "n_gpus", "framework", "model", "network"),
    *("phase", "dtype", "policy", "batch_per_gpu", "grad_accum", "recompute", "channels_last", "fused_optimizer"),
    *("global_batch", "seq_len", "hidden", "heads", "layers", "vocab", "image", "optimizer", "schedule", "sync"),
    *("overlap", "fsdp", "shards", "modules"),
    *("issue", "step_time_s", "throughput", "throughput_unit"),
    *("max_allocated_bytes", "max_reserved_bytes", "smi_bytes"),
)
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ops.csv": (*_OPERATOR, *_COMMON),
    "training.csv": (*_STEP, *_COMMON),
    "copies.csv": (
        *("machine", "kind", "src", "dst", "bytes", "pinned", "engine", "work", "repeats"),
        *("GBps", "time_s", "latency_s"),
        *_COMMON,
    ),
    "memory.csv": (
        *("device", "bench", "kernel", "bytes", "threads", "dtype", "GBps", "latency_cycles", "latency_s"),
        *("clock_MHz", "time_s"),
        *_COMMON,
    ),
    "allocations.csv": (
        *("device", "pattern", "asked_bytes", "max_allocated_bytes", "max_reserved_bytes", "kept_bytes", "bytes_per"),
        *("time_s", *_COMMON),
    ),
    "storage.csv": (
        *("machine", "kind", "bytes", "block_bytes", "threads", "cache", "GBps", "latency_s", "time_s"),
        *_COMMON,
    ),
    "clocks.csv": ("device", "work", "dtype", "side", "elements", "repeats", "time_s", "burst_s", *_COMMON),
    "launch.csv": ("device", "metric", "mode", "time_s", *_COMMON),
    "collectives.csv": (
        *("machine", "fabric", "n_nodes", "n_gpus", "gpu_set", "group_size", "n_groups_concurrent", "collective"),
        *("bytes", "dtype", "placement", "strategy", "algorithm_forced", "time_s", "algbw_GBps", "busbw_GBps"),
        *_COMMON,
    ),
}
"""Columns of each table: those of published measurements (docs/scoring.md), plus the quality of each result.

``interval`` is half the 95 % interval of the median as a fraction of it; ``cache`` is warm or cold; ``issue`` is how
calls were issued: stream, single, graph, or queued (waiting on the device before the first began).
"""


def cell_text(value: Any) -> str:
    """Return *value* as a cell: floats with nine significant digits, None as an empty cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value)


def asked_note(text: str) -> str:
    """Return the part of a note that identifies the case, without remarks added by the measurement."""
    return "; ".join(part for part in text.split("; ") if part not in _REMARKS)


class RowFile:
    """The table at *path* with *columns*; existing rows are kept.

    A partial last line, left by a killed run, is removed.  Raises ValueError where it is no file or has other columns,
    OSError where it cannot be read.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = tuple(columns)
        self._rows: list[dict[str, str]] = []
        # row by cells, for each set of column names searched so far
        self._asked: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, str]]] = {}
        if not path.exists():
            return
        if not path.is_file():  # a pipe has no end
            raise ValueError(f"{path}: is not a table; name another folder")
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a run killed while writing leaves a partial row
        if whole != text:
            os.truncate(path, len(whole.encode()))
        lines = list(csv.reader(io.StringIO(whole)))
        if lines and tuple(lines[0]) != self._columns:
            raise ValueError(f"{path}: is a table of other columns; name another folder")
        self._rows = [dict(zip(self._columns, line, strict=False)) for line in lines[1:]]

    def holds(self, asked: Mapping[str, Any]) -> bool:
        """Return whether the table has a row with the cells *asked*."""
        return self.find(asked) is not None

    def find(self, asked: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the row with the cells *asked*; None where there is none."""
        names = tuple(asked)
        if names not in self._asked:
            self._asked[names] = {_asked(row, names): row for row in self._rows}
        return self._asked[names].get(tuple(cell_text(value) for value in asked.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append *row* and flush it to the disk.

        Raises ValueError for unknown columns; OSError where writing fails, leaving the file as it was.
        """
        unknown = set(row) - set(self._columns)
        if unknown:
            raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
        cells = {name: cell_text(row.get(name)) for name in self._columns}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        before = self.path.stat().st_size if self.path.exists() else 0
        if not before:
            writer.writerow(self._columns)
        writer.writerow(cells.values())
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(text.getvalue())
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            if self.path.exists():
                os.truncate(self.path, before)
            raise
        self._rows.append(cells)
        for names, known in self._asked.items():
            known[_asked(cells, names)] = cells


def _asked(row: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(asked_note(row.get(name, "")) if name == "note" else row.get(name, "") for name in names)


_NAME = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of *folder* while the body runs.

    Raises ValueError, with the process ID, where another process holds it, and OSError where the lock file cannot be
    created.  The lock is the system's (flock) and not the file itself, so a file left by a killed run does not block.
    """
    path = folder / _NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 20).decode("ascii", "replace").strip()
            os.close(file)
            who = f" (process {owner})" if owner.isdigit() else ""
            raise ValueError(
                f"{folder}: another run measures into it{who}; wait for it, or name another folder with --out"
            ) from None
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), path.stat()):
                break
        os.close(file)  # its owner has removed the file meanwhile
    try:
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)
