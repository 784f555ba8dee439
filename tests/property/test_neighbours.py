"""Kriging of measured kernels, over any rows: against a dense solve, bounded, and the same in any order."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from simulator.devices.neighbours import correction, kernel_axes, known_share, left_out_errors, variety_of
from simulator.questions.calibration import Neighbourhood
from simulator.workload.kernels import Gemm

sizes = st.integers(1, 1 << 16)
gemms = st.builds(Gemm, sizes, sizes, sizes, st.just("fp32"), layout=st.sampled_from(("NN", "NT", "TN")))
measured = st.lists(st.tuples(gemms, st.floats(0.7, 1.4)), min_size=1, max_size=8)


def around(rows: list[tuple[Gemm, float]], near: float, strength: float, noise: float) -> Neighbourhood:
    return Neighbourhood(
        variety_of(rows[0][0]), near, strength, noise, tuple((kernel_axes(kernel), ratio) for kernel, ratio in rows)
    )


def solved(matrix: list[list[float]], values: list[float]) -> list[float]:
    """Solve exactly, by Gauss-Jordan elimination in fractions."""
    rows = [[*map(Fraction, row), Fraction(value)] for row, value in zip(matrix, values, strict=True)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [float(row[-1]) for row in rows]


def alike(one: Gemm, other: Gemm, near: float) -> float:
    """The correlation of two kernels' errors, read from what one of them, measured, does to the other."""
    only = around([(one, 1.2)], near, 1.0, 1.0)
    return 2.0 * math.log(correction(only, other)) / math.log(1.2)


@given(measured, gemms, st.sampled_from((0.5, 1.0, 4.0)), st.floats(0.1, 1.0), st.sampled_from((0.05, 0.5)))
def test_it_is_what_a_dense_solve_gives(rows, asked, near, strength, noise) -> None:
    found = around(rows, near, strength, noise)
    kernels = [kernel for kernel, _ in rows]
    matrix = [
        [alike(a, b, near) + (noise if i == j else 0.0) for j, b in enumerate(kernels)] for i, a in enumerate(kernels)
    ]
    beside = [alike(kernel, asked, near) for kernel in kernels]
    weights = solved(matrix, [math.log(ratio) for _, ratio in rows])
    expected = strength * sum(a * b for a, b in zip(beside, weights, strict=True))
    assert math.isclose(math.log(correction(found, asked)), expected, rel_tol=1e-6, abs_tol=1e-9)
    known = strength * sum(a * b for a, b in zip(beside, solved(matrix, beside), strict=True))
    assert math.isclose(known_share(found, asked), known, rel_tol=1e-6, abs_tol=1e-9)


@given(measured, gemms, st.randoms(use_true_random=False))
def test_order_changes_nothing_and_a_share_is_a_share(rows, asked, random) -> None:
    found = around(rows, 1.0, 0.75, 0.1)
    others = rows.copy()
    random.shuffle(others)
    assert correction(around(others, 1.0, 0.75, 0.1), asked) == correction(found, asked)
    assert 0.0 <= known_share(found, asked) <= 0.75
    assert correction(around([(k, 1.0) for k, _ in rows], 1.0, 0.75, 0.1), asked) == 1.0
    assert len(left_out_errors(found)) == len(rows)
