"""A comparison as one JSON document: printed by ``--json``, and the only input of the report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from simulator.errors import one_line
from simulator.results import plain, taken
from validate.compare.classes import FAR
from validate.compare.comparison import Comparison
from validate.compare.drift import BOUND, Drift
from validate.compare.explain import in_words
from validate.compare.folder import VALUES
from validate.compare.rows import MEASURED_ONLY
from validate.kinds.row import MeasuredRow
from validate.tables.cells import figure

SCHEMA_VERSION = 1
_SHOWN_CELLS = (
    *("op", "dtype", "phase", "cache", "model", "issue", "bench", "kernel", "kind", "pinned", "bytes", "mode"),
    *("threads", "engine", "src", "dst", "note", "collective", "n_gpus", "network"),
)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return *found* as plain data; errors are fractions, times are in seconds."""
    far = {(o.row.table, o.row.line): o.deviations for o in found.outliers}
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": one_line(found.folder.path, 1000),
        **taken(found, "machine=folder.machine device=folder.device part=places.part part_known_by=places.how"),
        "topology": one_line(found.places.topology or "", 1000),
        **taken(found, "method trust"),
        "run": {key: found.folder.record.get(key) for key in ("date", "finished", "end", "seconds", "rows")},
        **taken(found, "environment=folder.environment notes"),
        "rows_total": len(found.rows),
        "rows_scored": sum(row.counts for row in found.rows),
        "classes": [{"label": item.label, **plain(item)} for item in found.classes],
        "outliers": [{**_place(o.row), **taken(o, "error=row.error deviations")} for o in found.outliers],
        "outlier_bound_deviations": FAR,
        "worst": [
            {
                **_place(row),
                **taken(row, "error predicted_s measured_s"),
                **_band(row),
                "rules": [cause.rule for cause in causes],
                "explanation": in_words(causes, row.log_ratio),
            }
            for row, causes in found.worst
        ],
        "asked": [_own(row) for row in found.own],
        "own_code": [
            {**_place(row), "times": times, "words": own_code_words(row.name, times)} for row, times in found.own_code
        ],
        "held": [
            {**_place(row), **taken(each, "figure=name predicted_bytes measured_bytes error")}
            for row, each in found.held
        ],
        **taken(found, "calibration=judged calibration_notes=judged_notes"),
        "drift": None if found.drift is None else _drift(found.drift),
        "skipped": skipped_of(found),
        "left": [{key: one_line(text, 300) for key, text in row.items()} for row in found.folder.left],
        "rows": [_row(row, far.get((row.table, row.line))) for row in found.rows],
    }


def skipped_of(found: Comparison) -> dict[str, dict[str, int]]:
    """Return the number of skipped rows by table and reason, the most frequent reason first."""
    reasons: dict[str, Counter[str]] = {}
    for row in found.rows:
        if row.skipped:
            reasons.setdefault(row.table, Counter())[row.skipped] += 1
    return {
        table: dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        for table, counts in sorted(reasons.items())
    }


def _place(row: MeasuredRow) -> dict[str, Any]:
    return taken(row, "table line name")


def _band(row: MeasuredRow) -> dict[str, float]:
    """Return the ends of the 80 % band of a row's predicted time, in seconds; empty if it has no band."""
    return {} if row.band is None else taken(row.band, "low_s high_s")


def own_code_words(name: str, times: float) -> str:
    """Return a sentence that compares the step *name*, run with its own code, with the module of its operators."""
    return f"{name}: takes {times:.3g} times as long as the module that is built of its operators"


def _own(row: MeasuredRow) -> dict[str, Any]:
    """Return a step that the user asked to measure: its name, and its predicted and measured time and memory."""
    held = next((each for each in row.memory if each.name == "allocated" and each.error is not None), None)
    told = {**_place(row), **taken(row, "predicted_s measured_s"), **_band(row)}
    told["error"] = row.error
    return told | taken(held, "predicted_bytes measured_bytes") | {"skipped": row.skipped}


def _row(row: MeasuredRow, deviations: float | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        **_place(row),
        "cells": {name: row.labels[name] for name in _SHOWN_CELLS if name in row.labels},
        "interval": row.interval,
        "measured": _measured(row),
    }
    if row.predicted_s is not None:
        shown |= {"predicted_s": row.predicted_s, **_band(row)}
    if row.measured_s is not None:
        shown["measured_s"] = row.measured_s
    if row.counts:
        shown["error"] = row.error
    if deviations is not None:
        shown["outlier"] = True
    if row.skipped:
        shown["skipped"] = "measured only" if row.skipped == MEASURED_ONLY else row.skipped
    return {key: value for key, value in shown.items() if not isinstance(value, float) or math.isfinite(value)}


def _measured(row: MeasuredRow) -> dict[str, float]:
    """Return all measured values of *row*, by column."""
    found: dict[str, float] = {}
    for name in VALUES:
        value = figure(row.labels.get(name.lower(), ""))
        if value is not None and value > 0:
            found[name] = value
    return found


def _drift(drift: Drift) -> Mapping[str, Any]:
    return {
        "folder": one_line(drift.path, 1000),
        "bound": BOUND,
        **taken(drift, "classes beyond only_first only_second"),
        "environment": [{"name": name, "first": first, "second": second} for name, first, second in drift.environment],
    }
