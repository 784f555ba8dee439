"""NCCL collectives on one machine.

``collector/collect_nccl.py`` of the package's repository runs nccl-tests with one thread per GPU (``-t n``, so
``-g 1``), with 40 warm-up and 100 to 1,000 timed iterations, and keeps the out-of-place time.  ``message_size`` is
nccl-tests' size in elements of 2 bytes (half) or 1 byte (int8).
"""

from __future__ import annotations

from collections.abc import Sequence

from validate.importing.aiconfigurator import MACHINES, Source, Table
from validate.importing.tables import DATASET, LeftOut, Row, graded, latency_s, seconds

_NEEDED = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_ELEMENTS = {"half": ("fp16", 2), "int8": ("int8", 1)}
_COLLECTIVES = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
}


def collective_rows(source: Source, device: str, left_out: LeftOut) -> tuple[list[Row], Sequence[Table]]:
    """Return the rows of *device*'s machine and their tables; *left_out* counts skipped rows by reason.

    Raises InputError if a table cannot be read.
    """
    tables = source.newest("nccl", device)
    for table in source.tables("nccl"):
        if table.device == device and table not in tables:
            left_out["collective in a version besides the newest"] += source.count(table)
    machine = MACHINES.get(device)
    if machine is None:
        for table in tables:
            left_out[f"collective on a machine of {device}: no topology of it"] += source.count(table)
        return [], ()
    found: dict[tuple[str, str, str], dict[tuple[int, ...], list[float]]] = {}
    for table in tables:
        for cell, number in source.rows(table, _NEEDED):
            collective, element = _COLLECTIVES.get(cell("op_name")), _ELEMENTS.get(cell("nccl_dtype"))
            time_s = latency_s(cell("latency"))
            if collective is None or element is None or time_s is None:
                left_out[f"collective {'without a time' if time_s is None else 'of another kind'}"] += 1
                continue
            dtype, element_bytes = element
            shape = number("num_gpus"), number("message_size") * element_bytes
            key = collective, dtype, cell("version") or table.version
            found.setdefault(key, {}).setdefault(shape, []).append(time_s)
    rows: list[Row] = []
    for (collective, dtype, version), times in sorted(found.items()):
        for (n_gpus, size_bytes), (time_s, trust, note) in graded({"": times})[""].items():
            rows.append(
                {
                    "machine": machine,
                    "n_nodes": 1,
                    "n_gpus": n_gpus,
                    "collective": collective,
                    "bytes": size_bytes,
                    "dtype": dtype,
                    "placement": "out",
                    "time_s": seconds(time_s),
                    "software": f"nccl-tests -g 1; NCCL {version}",
                    "trust": trust,
                    "note": note,
                    "dataset": DATASET,
                }
            )
    return rows, tables
