"""Turn published rows of nccl-tests back into logs, and check these."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from simulator.api import Session
from simulator.errors import InputError
from simulator.workload import Collective
from tests.nccl_logs import as_log
from validate.check.check import check_log
from validate.importing.nccl_tests import read_nccl_tests
from validate.tables.names import MachineNames
from validate.tables.software import nccl_of

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


def judged(tables: Sequence[Path]) -> list[tuple[str, str, str]]:
    """Return the grade, the machine and the verdict of each log that the rows of *tables* make up.

    Only logs on built-in machines count, with a single group and NCCL's own choice of algorithm.
    """
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for table in tables:
        if table.is_file():
            with table.open(encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream):
                    if is_of_nccl(row["software"]):
                        runs.setdefault((str(table), *(row[column] for column in RUN)), []).append(row)
    session, names = Session(), MachineNames()
    found = []
    for rows in runs.values():
        run = rows[0]
        nodes, gpus = int(run["n_nodes"] or 1), int(run["n_gpus"])
        plain = run["n_groups_concurrent"] in ("", "1") and not run["algorithm_forced"]
        if not plain or names.topology(run["machine"]) is None or gpus % nodes or gpus < 2:
            continue
        where = names.where(run["machine"], nodes, gpus // nodes)
        times = [(int(float(row["bytes"])), float(row["time_s"])) for row in rows]
        collective = cast(
            Collective, {"sendrecv": "send-recv"}.get(run["collective"], run["collective"].replace("_", "-"))
        )
        text = as_log(times, nodes, _devices(run["gpu_set"], gpus // nodes), collective, per_thread=_per_thread(run))
        log = read_nccl_tests(text, run["machine"])
        try:
            nccl = nccl_of(run["software"], None)
            checked = check_log(session, log, where.topology, nodes=where.nodes, nccl=nccl, explains=False)
        except InputError:
            continue
        found.append((run["trust"], run["machine"], checked.verdict))
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
