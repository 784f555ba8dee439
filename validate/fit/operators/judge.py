"""How well constants do: in sample, on devices left out, and after a calibration on a few rows."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from validate.fit.operators.rows import Measured

__all__ = ["Predict", "balanced", "calibrated", "error_lines", "evenly_spaced", "left_out"]

C = TypeVar("C")
Predict = Callable[[Measured], float]

_CALIBRATION_ROWS = 50


def balanced(rows: Sequence[Measured], most: int, *, seed: int = 0) -> list[Measured]:
    """Return at most *most* rows of each device, phase and precision, drawn at random but always alike."""
    groups: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
    for row in rows:
        groups[row.query.device, row.query.phase, row.query.precision].append(row)
    drawn = random.Random(seed)
    return [row for key in sorted(groups) for row in drawn.sample(groups[key], min(most, len(groups[key])))]


def evenly_spaced(rows: Sequence[Measured], most: int, group: Callable[[Measured], Hashable]) -> list[Measured]:
    """Return at most *most* rows of each *group*, evenly spaced in the order of *rows*."""
    groups: dict[Hashable, list[Measured]] = {}
    for row in rows:
        groups.setdefault(group(row), []).append(row)
    return [of[int(i * max(1.0, len(of) / most))] for of in groups.values() for i in range(min(most, len(of)))]


def left_out(rows: Sequence[Measured], fit: Callable[[Sequence[Measured]], C]) -> dict[str, C]:
    """Return for each device the constants that *fit* finds without its rows."""
    devices = sorted({row.query.device for row in rows})
    return {device: fit([row for row in rows if row.query.device != device]) for device in devices}


def calibrated(rows: Sequence[Measured], predict: Predict, *, seed: int = 0) -> tuple[Predict, list[Measured]]:
    """Return *predict* times one factor, from 50 of *rows*, and the rows that are left to judge it by.

    The factor is the median of measured over predicted.
    """
    shuffled = random.Random(seed).sample(list(rows), len(rows))
    known, judged = shuffled[:_CALIBRATION_ROWS], shuffled[_CALIBRATION_ROWS:]
    factor = statistics.median(row.time_s / predict(row) for row in known)
    return (lambda row: factor * predict(row)), judged


def error_lines(rows: Sequence[Measured], predict: Callable[[Measured], Predict]) -> list[str]:
    """Return a line for each device and phase: number of rows, mean and median absolute error, median error.

    *predict* gives the predictor for a row (that which was fitted without its device, say).
    """
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        error = predict(row)(row) / row.time_s - 1.0
        for group in (
            (row.query.device, row.query.phase),
            (row.query.device, ""),
            ("all", row.query.phase),
            ("all", ""),
        ):
            groups[group].append(error)
    lines = [f"{'device':18} {'phase':10} {'rows':>5} {'mean':>7} {'median':>7} {'bias':>7}"]
    for device, phase in sorted(groups, key=lambda group: (group[0] == "all", group)):
        errors = groups[device, phase]
        sizes = [abs(error) for error in errors]
        figures = (statistics.mean(sizes), statistics.median(sizes), statistics.median(errors))
        percent = " ".join(f"{100 * figure:6.1f}%" for figure in figures)
        lines.append(f"{device:18} {phase or 'every':10} {len(errors):5d} {percent}")
    return lines
