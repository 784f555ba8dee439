"""A calibration changes what its own rows show to improve, and otherwise leaves the data sheet's values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

from simulator.questions.calibration import Calibration  # noqa: E402  after what they need
from validate.constants.calibrate import fit_calibration  # noqa: E402
from validate.constants.families import Prior  # noqa: E402
from validate.constants.fit import least_errors  # noqa: E402
from validate.kinds.kind import MeasuredRow, RowQuestion  # noqa: E402
from validate.kinds.operators import read_operator  # noqa: E402
from validate.tables.names import RowNames  # noqa: E402

PART = "p100-pcie-16gb"
NAMES = RowNames()


def asked(**cells: object) -> RowQuestion:
    said = {"device": PART, "dtype": "fp32"} | {name: str(value) for name, value in cells.items()}
    return read_operator(lambda column: said.get(column, ""), NAMES)


def rows_of(op: str, factors: Sequence[float]) -> list[MeasuredRow]:
    found = []
    for i, factor in enumerate(factors):
        sizes: dict[str, object] = {"rows": 4096 + 512 * i, "cols": 4096, "variant": "add"}
        if op == "linear":
            sizes = {"m": 1024 + 256 * i, "n": 2048, "k": 1024}
        question = asked(op=op, **sizes)
        found.append(MeasuredRow(question, factor * question.time_s(NAMES.session), {"op": op}))
    return found


def scattered(factor: float, count: int = 15) -> list[float]:
    return [factor * (1.0 + 0.02 * (i % 3 - 1)) for i in range(count)]


def test_a_class_of_kernels_that_gains_nothing_keeps_the_data_sheet() -> None:
    mixed = [0.7 if i % 2 else 1.4 for i in range(15)]  # two contradictory sources
    found = fit_calibration(NAMES.session, PART, [*rows_of("linear", mixed), *rows_of("elementwise", scattered(1.3))])
    assert found.calibration.by_data_sheet == ("gemm",)
    calibrated = NAMES.session.calibrated({PART: found.calibration})
    product, stream = rows_of("linear", [1.0])[0].asked, rows_of("elementwise", [1.0])[0].asked
    assert product.time_s(calibrated) == product.time_s(NAMES.session)
    assert stream.time_s(calibrated) / stream.time_s(NAMES.session) == pytest.approx(1.3, rel=0.03)


def test_what_all_rows_agree_on_is_taken() -> None:
    found = fit_calibration(NAMES.session, PART, rows_of("linear", scattered(1.25)))
    assert not found.calibration.by_data_sheet
    assert max(map(abs, found.errors)) < 0.06


def test_rows_that_agree_on_nothing_change_nothing() -> None:
    mixed = [0.75 if i % 2 else 1.3 for i in range(16)]
    found = fit_calibration(NAMES.session, PART, rows_of("linear", mixed) + rows_of("elementwise", mixed))
    assert found.calibration == Calibration()


def test_one_row_shows_no_gain() -> None:
    assert fit_calibration(NAMES.session, PART, rows_of("linear", [1.5])).calibration == Calibration()


def test_errors_of_rows_that_had_no_part_are_those_of_fits_without_them() -> None:
    slopes = np.array([[1.0, 0.2], [0.8, -0.5], [0.3, 1.0], [1.2, 0.7], [0.6, 0.1], [0.9, -0.2]])
    seen = np.array([0.10, 0.04, -0.06, 0.15, 0.05, 0.12])
    priors = {name: Prior(1.0, 0.2, 0.2, 5.0) for name in ("a", "b")}

    def errors(rows: list[int]):
        return lambda values: list(slopes[rows] @ np.log([values["a"], values["b"]]) - seen[rows])

    everyone = list(range(len(seen)))
    unseen = least_errors(priors, errors(everyone), ["x"] * len(seen), unseen=True).unseen
    plain = errors(everyone)(least_errors(priors, errors(everyone), ["x"] * len(seen)).values)
    for row in everyone:
        others = [i for i in everyone if i != row]
        refitted = least_errors(priors, errors(others), ["x"] * len(others)).values
        (without,) = errors([row])(refitted)
        assert unseen[row] == pytest.approx(without, abs=0.012)
        assert abs(unseen[row]) >= abs(plain[row])  # rows outside the calibration have larger errors


def test_kernels_by_the_data_sheet_cost_what_they_do_without_a_calibration() -> None:
    factors = Calibration(0.8, 0.7, by_class={"gemm": 1.5}, by_data_sheet=("gemm",))
    session = NAMES.session.calibrated({PART: factors})
    product = rows_of("linear", [1.0])[0].asked
    assert product.time_s(session) == product.time_s(NAMES.session)
    stream = rows_of("elementwise", [1.0])[0].asked
    assert stream.time_s(session) > 1.3 * stream.time_s(NAMES.session)


def test_a_sum_that_is_right_is_not_made_wrong() -> None:
    """A step adds its kernels: most too long, and one so much too short that the sum is right, are left as they are."""
    rows = rows_of("linear", [0.7] * 14 + [1.0])
    lacking_s = sum(row.asks.time_s(NAMES.session) - row.time_s for row in rows)
    last = rows[-1]
    rows[-1] = MeasuredRow(last.asks, last.time_s + lacking_s, last.labels)
    found = fit_calibration(NAMES.session, PART, rows).calibration
    assert found == Calibration()
    without = fit_calibration(NAMES.session, PART, rows[:-1]).calibration
    assert without != Calibration()
