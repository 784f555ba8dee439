"""Turn published rows of nccl-tests back into logs, and check these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from simulator.api import Session
from simulator.errors import InputError
from simulator.questions.where import Where
from simulator.workload import Collective
from tests.nccl_logs import as_log
from validate.check.check import check_log
from validate.importing.nccl_tests import NcclLog, read_nccl_tests
from validate.tables.cells import nccl_of
from validate.tables.names import MachineNames
from validate.tables.table import PUBLISHED, added_cells, conventions_of, read_table

RUN = (
    *(
        "dataset",
        "machine",
        "fabric",
        "n_nodes",
        "n_gpus",
        "gpu_set",
        "group_size",
        "n_groups_concurrent",
        "collective",
    ),
    *("dtype", "placement", "algorithm_forced", "software", "trust"),
)
# Software that times NCCL itself, without a framework.
_NCCL = re.compile(r"\bnccl\b", re.IGNORECASE | re.ASCII)
_FRAMEWORK = re.compile(r"\b(?:xla|jax|torch|pytorch|horovod)\b", re.IGNORECASE | re.ASCII)


def is_of_nccl(software: str) -> bool:
    """Return whether a row with this *software* times NCCL itself, as nccl-tests does."""
    return bool(_NCCL.search(software)) and not _FRAMEWORK.search(software)


@dataclass(frozen=True)
class PublishedRun:
    """One run of NCCL's tests on a built-in machine: ``times`` are (bytes, seconds)."""

    trust: str
    machine: str
    where: Where
    collective: Collective
    times: tuple[tuple[int, float], ...]
    devices: tuple[int, ...]
    per_thread: int
    nccl: tuple[int, int]
    hosts: int

    def log(self, times: Sequence[tuple[int, float]] | None = None) -> NcclLog:
        """Return the run, or one like it with other *times*, as it is read from nccl-tests' text."""
        major, minor = self.nccl
        version = 10_000 * major + 100 * minor if self.nccl >= (2, 9) else 1_000 * major + 100 * minor
        given = times or self.times, self.hosts, self.devices, self.collective
        text = as_log(*given, per_thread=self.per_thread, version=version)
        return read_nccl_tests(text, self.machine)


def published_runs(tables: Sequence[Path]) -> list[PublishedRun]:
    """Return the runs that the rows of *tables* make up.

    Only runs on built-in machines count, with a single group and NCCL's own choice of algorithm.  The conventions of
    published tables complete the rows; those that they call unclear make no log, nor do rows that do not say how fast
    their network is.
    """
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for path in filter(Path.is_file, tables):
        table = read_table(path.read_bytes(), str(path), RUN, RUN)
        for record, added in zip(table.rows, added_cells(table, conventions_of(PUBLISHED)), strict=True):
            row = {column: table.written(record, column) for column in ("measured", *table.position)}
            row |= {column: value for column, (value, _) in added.items()}
            unclear = row.get("unclear") or "not stated" in row["fabric"]
            if is_of_nccl(row["software"]) and not unclear:
                runs.setdefault((str(path), *(row[column] for column in RUN)), []).append(row)
    names = MachineNames()
    found = []
    for rows in runs.values():
        run = rows[0]
        nodes, gpus = int(run["n_nodes"] or 1), int(run["n_gpus"])
        plain = run["n_groups_concurrent"] in ("", "1") and not run["algorithm_forced"]
        if not plain or names.topology(run["machine"]) is None or gpus % nodes or gpus < 2:
            continue
        collective = {"sendrecv": "send-recv"}.get(run["collective"], run["collective"].replace("_", "-"))
        found.append(
            PublishedRun(
                trust=run["trust"],
                machine=run["machine"],
                where=names.where(run["machine"], nodes, gpus // nodes),
                collective=cast(Collective, collective),
                times=tuple((int(float(row["bytes"])), float(row["time_s"])) for row in rows),
                devices=tuple(_devices(run["gpu_set"], gpus // nodes)),
                per_thread=_per_thread(run),
                nccl=nccl_of(f"{run['software']} {run['measured']}", None),
                hosts=nodes,
            )
        )
    return found


def judged(tables: Sequence[Path]) -> list[tuple[str, str, str]]:
    """Return the grade, the machine and the verdict of each log that the rows of *tables* make up."""
    session = Session()
    found = []
    for run in published_runs(tables):
        try:
            checked = check_log(
                session, run.log(), run.where.topology, nodes=run.where.nodes, nccl=run.nccl, explains=False
            )
        except InputError:
            continue
        found.append((run.trust, run.machine, checked.verdict))
    return found


def _devices(text: str, count: int) -> Sequence[int]:
    """Return the GPU indices of each machine; the first ones where *text* lists pairs or nothing."""
    try:
        listed = [
            gpu
            for piece in text.split(",")
            for low, _, high in [piece.partition("-")]
            for gpu in range(int(low), int(high or low) + 1)
        ]
    except ValueError:
        return range(count)
    return listed if len(listed) == count else range(count)


def _per_thread(run: dict[str, str]) -> int:
    """Return the GPUs per thread: all of a machine, nccl-tests' usual mode, unless the run says otherwise."""
    return 1 if int(run["n_nodes"] or 1) > 1 or "mpi" in run["software"].lower() else int(run["n_gpus"])
