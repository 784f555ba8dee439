"""Memory-bound kernels against published measurements, where there are any at hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from validate.fit.operators.memory_bound import Free, MemoryBound, fit_memory_bound, predicted_s, with_free
from validate.fit.operators.rows import Measured, read_measured

pytestmark = pytest.mark.corpus


def alone(corpus: Path, op: str, grades: str = "A") -> list[Measured]:
    return [row for row in read_measured(corpus / "ops.csv", grades=grades, ops=(op,)) if row.dataset == "neusight_ops"]


def errors(rows: list[Measured], costs: MemoryBound) -> Iterator[float]:
    return (abs(predicted_s(row, costs) / row.time_s - 1.0) for row in rows)


@pytest.mark.parametrize(("op", "mean"), [("elementwise", 0.03), ("softmax", 0.09), ("layer_norm", 0.07)])
def test_errors_of_the_constants_in_use(corpus: Path, op: str, mean: float) -> None:
    rows = alone(corpus, op)
    assert len(rows) > 200
    assert statistics.mean(errors(rows, MemoryBound())) < mean


@pytest.mark.parametrize("device", ["t4", "v100-pcie-32gb"])
def test_errors_on_a_device_that_was_left_out(corpus: Path, device: str) -> None:
    rows = alone(corpus, "softmax", "AB") + alone(corpus, "layer_norm", "AB")
    found = fit_memory_bound([row for row in rows if row.query.device != device])
    judged = [row for row in alone(corpus, "softmax") if row.query.device == device]
    assert statistics.mean(errors(judged, with_free(found))) < 0.15


def test_free_constants_are_found_in_the_costs_they_belong_to() -> None:
    costs = with_free(Free(late_share=0.5, softmax_slots=1.0, isolated_end_s=2.0, pow_slots=3.0))
    assert (costs.memory.late_share, costs.rowwise.softmax_slots) == (0.5, 1.0)
    assert (costs.dispatch.isolated_end_s, costs.streaming.pow_slots) == (2.0, 3.0)
