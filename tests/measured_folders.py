"""Folders of measurements made from the model's own predictions with known errors."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.questions.calibration import Calibration
from validate.compare.comparison import table_kind
from validate.machine.measure.cases.shapes import CallLimits, shapes
from validate.machine.measure.table import COLUMNS
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.cells import NotScored

PART, DEVICE, TOPOLOGY = "h200-sxm", "nvidia-h200", "dgx-h200"
FACTS = {"name": "NVIDIA H200", "count": 8, "sm_count": 132, "memory_bytes": 150_754_820_096}
ENVIRONMENT: dict[str, Any] = {
    "device": DEVICE,
    "torch": "2.11.0",
    "driver": "570.1",
    "cpu": {"model": "Xeon", "logical_cores": 16},
    "gpu": FACTS,
    "links": ["GPU0 X NV18", "GPU1 NV18 X"],
}
Row = dict[str, Any]
Factor = Callable[[Mapping[str, str], random.Random], float]


def operators(count: int) -> list[Row]:
    """Return *count* operators, without times."""
    limits = CallLimits(2e12, 4e9, ("fp32", "fp16", "bf16", "bf16", "tf32"))
    return [
        {**shape.cells, "device": DEVICE, "includes_dispatch": 0, "cache": "warm", "trust": "A"}
        for shape in shapes(limits, count)
    ]


def steps(networks: Sequence[str] = ("resnet18", "resnet50", "vgg16", "alexnet"), batch: int = 16) -> list[Row]:
    """Return training steps, without times."""
    return [
        {
            "row_id": f"{name}-{size}",
            "machine": DEVICE,
            "n_nodes": 1,
            "n_gpus": 1,
            "framework": "pytorch",
            "model": name,
            "phase": "train",
            "dtype": "fp32",
            "batch_per_gpu": size,
            "global_batch": size,
            "optimizer": "momentum",
            "trust": "A",
        }
        for name in networks
        for size in (batch, 2 * batch)
    ]


def timed(
    table: str, rows: Sequence[Row], factor: Factor, *, seed: int = 1, calibration: Calibration | None = None
) -> list[Row]:
    """Return *rows* of *table* with times: the prediction (with *calibration*) times each row's *factor*."""
    draw = random.Random(seed)
    named = {PART: calibration} if calibration is not None else {}
    scoring = Scoring(ScoringOptions(topology=TOPOLOGY, devices=(f"{DEVICE}={PART}",), calibrations=named))
    text = [{name: str(value) for name, value in row.items()} for row in rows]
    value = "step_time_s" if table == "training.csv" else "time_s"
    kind = table_kind(_Header(COLUMNS[table]), scoring.kinds)  # type: ignore[arg-type]
    assert kind is not None
    found = []
    for row, cells in zip(rows, text, strict=True):
        try:
            asked = kind.read(lambda column, cells=cells: cells.get(column, ""), scoring.names)  # type: ignore[misc]
            predicted_s = asked.time_s(scoring.names.session)
        except NotScored:
            continue
        found.append({**row, value: predicted_s * factor(cells, draw), "interval": row.get("interval", 0.004)})
    return found


class _Header:
    def __init__(self, names: Sequence[str]) -> None:
        self.position = {name.lower(): i for i, name in enumerate(names)}


def constant(factor: float) -> Factor:
    """Return a factor that is equal for all rows."""
    return lambda cells, draw: factor


def scattered(sigma: float, factor: float = 1.0) -> Factor:
    """Return a factor that is log-normally distributed around *factor*."""
    return lambda cells, draw: factor * math.exp(draw.gauss(0.0, sigma))


def write(path: Path, tables: Mapping[str, Sequence[Row]], **record: Any) -> Path:
    """Write *tables* and the record of a run into the folder *path*; return *path*."""
    path.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (path / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS[name], restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(
                {key: f"{value:.9g}" if isinstance(value, float) else value for key, value in row.items()}
                for row in rows
            )
    whole = {
        "schema_version": 1,
        "finished": True,
        "end": "all cases",
        "date": "2026-11-20",
        "machine": DEVICE,
        "seconds": 600.0,
        "environment": ENVIRONMENT,
        "rows": {name: len(rows) for name, rows in tables.items()},
        "left": [],
    }
    (path / "run.json").write_text(json.dumps(whole | record), encoding="utf-8")
    return path


def bandwidths() -> list[Row]:
    """Return the bandwidths and latencies of a GPU by working set."""
    found: list[Row] = []
    for i in range(16, 33):
        size = 2**i
        for kernel, peak in (("copy", 4000.0), ("read", 4400.0)):
            rate = peak * 1.9 / (1 + (size / 45e6) ** 4) + peak * (size / 45e6) ** 4 / (1 + (size / 45e6) ** 4)
            rate *= 1 / (1 + 3e5 / size)
            found.append({"device": DEVICE, "bench": "stream", "kernel": kernel, "bytes": size, "dtype": "fp32",
                          "GBps": rate, "time_s": size / rate / 1e9, "interval": 0.005, "trust": "A"})  # fmt: skip
        found.append({"device": DEVICE, "bench": "chase", "bytes": size, "interval": 0.002, "trust": "A",
                      "latency_s": 20e-9 if size < 2e5 else 150e-9 if size < 4e7 else 400e-9})  # fmt: skip
    return found


def without_times(rows: Sequence[Row]) -> list[Row]:
    """Return *rows* without their measured times."""
    return [{key: value for key, value in row.items() if key not in ("time_s", "step_time_s")} for row in rows]


def recalibrated(calibration: Calibration, **changes: Any) -> Calibration:
    """Return *calibration* with *changes*."""
    return replace(calibration, **changes)
