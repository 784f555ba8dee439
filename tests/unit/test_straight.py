"""Fits along straight lines, compared with fits that predict each time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from validate.constants.families import Prior, read_rows
from validate.constants.fit import draw_lines, fit_along, least_errors
from validate.kinds.kind import MeasuredRow
from validate.tables.names import RowNames

pytest.importorskip("scipy")

FREE = {name: Prior(1.0, 2.0, 0.1, 10.0) for name in ("start", "rate")}
SIZES = (0.2, 0.5, 1.0, 2.0, 5.0)


def rows_of(tmp_path: object) -> list[MeasuredRow]:
    """Return placeholder rows; their questions are never asked."""
    text = "\n".join(f"dgx-h100,8,all_reduce,{n},1e-5" for n in range(1, len(SIZES) + 1))
    table = f"{tmp_path}/rows.csv"
    with open(table, "w", encoding="utf-8") as file:
        file.write(f"machine,n_gpus,collective,bytes,time_s\n{text}\n")
    return read_rows([table], RowNames(), {"collectives"})


def errors_of(measured: Sequence[float], values: Mapping[str, float]) -> list[float]:
    """Return the log errors of a model with a start and a rate, for each size."""
    return [
        math.log((values["start"] + size / values["rate"]) / time) for size, time in zip(SIZES, measured, strict=True)
    ]


def test_a_fit_along_lines_ends_near_one_that_predicts(tmp_path: object) -> None:
    measured = [1.1 + size / 1.15 for size in SIZES]
    rows = rows_of(tmp_path)
    lines = draw_lines(rows, {"start": 1.0, "rate": 1.0}, lambda values: errors_of(measured, values))
    along = fit_along(lines, FREE, range(len(SIZES)), [1.0] * len(SIZES)).values
    asked = least_errors(FREE, lambda values: errors_of(measured, values), ["all_reduce"] * len(SIZES)).values
    assert along == pytest.approx(asked, rel=0.01)


def test_slopes_are_the_share_of_the_time_that_a_constant_makes() -> None:
    lines = draw_lines([], {"start": 1.0, "rate": 1.0}, lambda values: errors_of([1.0] * len(SIZES), values))
    assert lines.slopes["start"] == pytest.approx([1.0 / (1.0 + size) for size in SIZES], rel=0.02)
    assert lines.slopes["rate"] == pytest.approx([-size / (1.0 + size) for size in SIZES], rel=0.02)


def test_rows_that_are_left_out_have_no_part(tmp_path: object) -> None:
    rows = rows_of(tmp_path)
    found = []
    for spoilt in (1.0, 50.0):
        measured = [1.1 + size / 1.15 for size in SIZES[:-1]] + [spoilt]
        lines = draw_lines(rows, {"start": 1.0, "rate": 1.0}, lambda values, m=measured: errors_of(m, values))
        found.append(fit_along(lines, FREE, range(len(SIZES) - 1), [1.0] * (len(SIZES) - 1)).values)
    assert found[0] == found[1]
