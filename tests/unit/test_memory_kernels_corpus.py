"""Memory-bound kernels compared with published measurements, where these are available."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from simulator.constants import DEFAULT, Constants
from simulator.devices.gpu.memory import StreamingCosts
from validate.constants.families import FAMILIES, read_rows
from validate.constants.fit import fit_errors, fit_family, rows_of
from validate.kinds.kind import MeasuredRow
from validate.kinds.timing import TimingCosts
from validate.tables.names import RowNames

pytestmark = [pytest.mark.corpus, pytest.mark.slow]
NAMES = RowNames()
(MEMORY_BOUND,) = [family for family in FAMILIES if family.name == "memory_bound"]


@pytest.fixture(scope="module")
def rows(corpus: Path) -> list[MeasuredRow]:
    return rows_of(MEMORY_BOUND, read_rows([str(corpus / "ops.csv")], NAMES, {"operators"}))


def alone(rows: Sequence[MeasuredRow], op: str, grades: str = "A") -> list[MeasuredRow]:
    return [
        row
        for row in rows
        if row.op == op and row.cells["dataset"] == "neusight_ops" and row.cells.get("trust", "A") in grades
    ]


def errors(rows: list[MeasuredRow], constants: Constants) -> Iterator[float]:
    for error in fit_errors(rows, NAMES.session, constants):
        assert error is not None
        yield abs(error)


@pytest.mark.parametrize(("op", "mean"), [("elementwise", 0.03), ("softmax", 0.09), ("layer_norm", 0.07)])
def test_errors_of_the_constants_in_use(rows: list[MeasuredRow], op: str, mean: float) -> None:
    judged = alone(rows, op)
    assert len(judged) > 200
    assert statistics.mean(errors(judged, DEFAULT)) < mean


@pytest.mark.parametrize("device", ["t4", "v100-pcie-32gb"])
def test_errors_on_a_device_that_was_left_out(rows: list[MeasuredRow], device: str) -> None:
    pytest.importorskip("scipy")
    fitted_to = alone(rows, "softmax", "AB") + alone(rows, "layer_norm", "AB")
    found = fit_family(MEMORY_BOUND, fitted_to, NAMES.session, [("place", device)], share=0.5, max_evaluations=6)
    assert found.rows
    assert device not in {row.place for row in found.rows}
    judged = [row for row in alone(rows, "softmax") if row.place == device]
    assert statistics.mean(errors(judged, found.constants)) < 0.15


def test_free_constants_are_found_in_the_costs_they_belong_to() -> None:
    changed = {"memory.late_share": 0.5, "rowwise.softmax_slots": 1.0}
    changed |= {"timing.isolated_end_s": 2.0, "streaming.pow_slots": 3.0}
    (stage,) = MEMORY_BOUND.stages
    assert changed.keys() < stage.free.keys()
    costs = Constants(changed)
    assert (costs["memory"].late_share, costs["rowwise"].softmax_slots) == (0.5, 1.0)
    assert (costs(TimingCosts).isolated_end_s, costs(StreamingCosts).pow_slots) == (2.0, 3.0)
