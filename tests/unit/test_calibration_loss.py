"""The effect of a single outlier on the factors of a calibration."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

from validate.constants.calibrate import fit_calibration  # noqa: E402  after what they need
from validate.constants.fit import _soft, _student  # noqa: E402
from validate.kinds.kind import MeasuredRow, RowQuestion  # noqa: E402
from validate.kinds.operators import read_operator  # noqa: E402
from validate.tables.names import RowNames  # noqa: E402

PART = "p100-pcie-16gb"


def linear(names: RowNames, m: int, n: int, k: int) -> RowQuestion:
    cells = {"device": PART, "op": "linear", "dtype": "fp32", "m": str(m), "n": str(n), "k": str(k)}
    return read_operator(lambda column: cells.get(column, ""), names)


@pytest.mark.parametrize("loss", [_soft, _student])
def test_derivatives_of_a_loss_are_those_of_its_values(loss) -> None:
    squares = np.linspace(0.0, 30.0, 3001)
    value, slope, bend = loss(np, squares, len(squares))
    assert value[0] == 0.0
    assert np.allclose(np.gradient(value, squares)[1:-1], slope[1:-1], atol=1e-4)
    assert np.allclose(np.gradient(slope, squares)[1:-1], bend[1:-1], atol=1e-4)
    assert all(a <= b for a, b in pairwise(value))


def test_what_draws_to_one_is_not_softened() -> None:
    value, slope, bend = _student(np, np.array([4.0, 9.0, 16.0]), 1)
    assert value[0] < 4.0
    assert list(value[1:]) == [9.0, 16.0]
    assert list(slope[1:]) == [1.0, 1.0]
    assert list(bend[1:]) == [0.0, 0.0]


def test_rows_of_a_card_that_throttled_do_not_bend_the_others() -> None:
    names = RowNames()
    asked = [linear(names, 1024 * m, 1024 * n, 1024) for m in range(1, 5) for n in range(1, 5)]
    times = [1.1 * each.time_s(names.session) * (1.0 + 0.01 * (i % 3)) for i, each in enumerate(asked)]
    clean = [MeasuredRow(each, time_s, {"op": "linear"}) for each, time_s in zip(asked, times, strict=True)]
    throttled = [replace(row, time_s=row.time_s * (2.5 if i % 5 == 0 else 1.0)) for i, row in enumerate(clean)]

    def shift(rows: list[MeasuredRow]) -> float:
        errors = fit_calibration(names.session, PART, rows).errors
        off = sorted(errors[i] for i in range(len(rows)) if i % 5)
        return math.log1p(off[len(off) // 2])

    assert abs(shift(clean)) < 0.02
    assert abs(shift(throttled) - shift(clean)) < 0.03
