"""What decides a measured time besides its kernel (stored power, an unnamed column) is not taken for the kernel's."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy")

from simulator.questions.calibration import Calibration
from validate.constants.calibrate import fit_neighbours
from validate.constants.families import calibrating_rows
from validate.kinds.kind import MeasuredRow
from validate.kinds.operators import read_operator
from validate.tables.names import RowNames

PART = "b200"  # a board that exceeds its power for milliseconds
NAMES = RowNames()


def product(n: int, beyond: float, digest: str = "") -> MeasuredRow:
    """Return a product of a loop that takes *beyond* times what it takes in a run of seconds."""
    said = {"device": PART, "op": "matmul", "dtype": "bf16", "m": "8192", "n": str(n), "k": "8192", "issue": "stream"}
    question = read_operator(lambda column: said.get(column, ""), NAMES)
    sustained_s = NAMES.session.account(question.question).sustained_s
    return MeasuredRow(question, beyond * sustained_s, {"op": "matmul"}, digest=digest)


def ratios(beyond: float) -> list[float]:
    rows = [product(4096 + 512 * i, beyond * (1.0 + 0.002 * (i % 3))) for i in range(8)]
    neighbours, _ = fit_neighbours(NAMES.session, PART, rows, Calibration())
    return [ratio for each in neighbours for _, ratio in each.measured]


def test_stored_power_decides_these_times() -> None:
    account = NAMES.session.account(product(8192, 1.0).asks.question)
    assert account.sustained_s > 1.3 * account.kernels_s
    assert not ratios(0.98)  # between a burst and a long run
    assert ratios(1.2) == pytest.approx([1.2] * 8, rel=0.01)  # slower than a long run: the kernel's


def test_rows_of_one_question_that_contradict_each_other_are_left_out() -> None:
    rows = [product(4096, factor, name) for name, factor in (("a", 1.0), ("a", 1.05), ("b", 1.0), ("b", 1.6))]
    assert calibrating_rows(rows, {"a", "b"}) == [rows[0]]
