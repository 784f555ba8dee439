"""Memory of steps: measured peak tensor memory against the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from simulator.api import Session
from simulator.errors import TopocastError
from simulator.questions.step import StepQuestion
from validate.compare.rows import ComparedRow
from validate.tables.cells import figure


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A step with its measured and predicted peak tensor memory; CUDA context and libraries are excluded."""

    row: ComparedRow
    predicted_bytes: float
    measured_bytes: float

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted_bytes / self.measured_bytes - 1


def held_rows(rows: Sequence[ComparedRow], session: Session) -> list[HeldRow]:
    """Return the steps among *rows* whose memory was both measured and predicted."""
    found = []
    for row in rows:
        measured = figure(row.cells.get("peak_bytes", ""))
        question = row.asked.question if row.asked is not None else None
        if not measured or measured < 0 or not isinstance(question, StepQuestion):
            continue
        try:
            predicted = session.held_bytes(question)
        except TopocastError:
            continue
        if predicted > 0:
            found.append(HeldRow(row, predicted, measured))
    return found


def median_error(held: Sequence[HeldRow]) -> float:
    """Return the median absolute error of *held*, which must not be empty."""
    return median(abs(each.error) for each in held)
