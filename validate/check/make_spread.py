"""Write ``spread.json`` from what ``validate score --out SCORED.csv`` writes.

``python -m validate.check.make_spread SCORED.csv...``
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from validate.check.spread import is_large, key_of
from validate.tables.statistics import weighted_quantile

__all__ = ["RUN", "is_of_nccl", "logs_of", "spreads"]

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
# What times NCCL by a program of its own, with nothing of a framework's inside.
_NCCL = re.compile(r"\bnccl\b", re.IGNORECASE | re.ASCII)
_FRAMEWORK = re.compile(r"\b(?:xla|jax|torch|pytorch|horovod)\b", re.IGNORECASE | re.ASCII)
_TAIL = 0.05  # of the logs, at either end

Row = Mapping[str, str]
Log = list[tuple[float, float]]  # bytes, and measured over predicted time


def is_of_nccl(software: str) -> bool:
    """Return whether a row of that *software* times NCCL itself, as nccl-tests does."""
    return bool(_NCCL.search(software)) and not _FRAMEWORK.search(software)


def logs_of(rows: Iterable[Row], grades: Sequence[str] = ("A", "B")) -> dict[tuple[str, ...], Log]:
    """Return the logs that *rows*, scored, make up: those of one run together, by what the run was."""
    found: dict[tuple[str, ...], Log] = {}
    for row in rows:
        if not is_of_nccl(row["software"]) or row["trust"] not in grades or not row["predicted_s"]:
            continue
        key = tuple(row[column] for column in RUN)
        found.setdefault(key, []).append((float(row["bytes"]), float(row["time_s"]) / float(row["predicted_s"])))
    return found


def spreads(logs: Mapping[tuple[str, ...], Log]) -> dict[str, dict[str, float]]:
    """Return the band of each class of *logs*, each machine counting as one."""
    found = {}
    for several in (False, True):
        for large in (True, False):
            errors: dict[str, list[float]] = {}
            for key, log in logs.items():
                run = dict(zip(RUN, key, strict=True))
                top = max(size for size, _ in log)
                mine = [ratio for size, ratio in log if is_large(size, top) == large]
                if mine and (int(run["n_nodes"] or 1) > 1) == several:
                    errors.setdefault(run["machine"], []).append(statistics.median(mine))
            weighted = sorted((error, 1.0 / len(its)) for its in errors.values() for error in its)
            found[key_of(several_nodes=several, large=large)] = {
                "fastest": round(weighted_quantile(weighted, _TAIL), 3),
                "slowest": round(weighted_quantile(weighted, 1.0 - _TAIL), 3),
                "logs": len(weighted),
                "machines": len(errors),
            }
    return {name: figures for name, figures in found.items() if not math.isnan(figures["slowest"])}


def _main(paths: Sequence[str]) -> None:
    rows = [row for path in paths for row in csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8")))]
    text = json.dumps(spreads(logs_of(rows)), indent=2) + "\n"
    Path(__file__).with_name("spread.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
