"""The five statistics, calculated by hand and with numpy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.tables.statistics import Errors, percentile, relative_error, summarise

numpy = pytest.importorskip("numpy", reason="numpy is the oracle")


def test_by_hand():
    errors = summarise([-0.5, 0.1, 0.2, 1.0])
    assert errors.n == 4
    assert errors.median_ape == pytest.approx(0.35)
    assert errors.p90_ape == pytest.approx(0.5 + 0.7 * 0.5)
    assert errors.mean_ape == pytest.approx(0.45)
    assert errors.bias == pytest.approx(0.2)


def test_no_rows_have_no_statistics():
    assert summarise([]) == Errors(0, None, None, None, None)


def test_one_row_is_all_its_statistics():
    assert summarise([-0.25]) == Errors(1, 0.25, 0.25, 0.25, -0.25)


def test_too_slow_is_positive():
    assert relative_error(3.0, 2.0) == 0.5
    assert relative_error(1.0, 2.0) == -0.5


@given(st.lists(st.floats(-1, 1e6), min_size=1, max_size=60), st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_as_numpy_has_it(values, share):
    ordered = sorted(values)
    expected = float(numpy.percentile(values, share * 100))
    assert percentile(ordered, share) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    errors = summarise(values)
    absolute = numpy.abs(values)
    assert errors.median_ape == pytest.approx(float(numpy.median(absolute)), rel=1e-12, abs=1e-12)
    assert errors.p90_ape == pytest.approx(float(numpy.percentile(absolute, 90)), rel=1e-12, abs=1e-12)
    assert errors.mean_ape == pytest.approx(float(numpy.mean(absolute)), rel=1e-9, abs=1e-9)
    assert errors.bias == pytest.approx(float(numpy.mean(values)), rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(-1, 1e6), min_size=2, max_size=20))
def test_order_of_rows_does_not_matter(values):
    assert summarise(values) == summarise(values[::-1])
    assert math.isfinite(summarise(values).mean_ape)
