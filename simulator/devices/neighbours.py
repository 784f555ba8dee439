"""Measured kernels correct those near them: simple kriging (Cressie, 1993, 3.2; docs/decisions/kernels.md)."""

import math
from collections.abc import Sequence
from functools import lru_cache

from simulator.errors import InputError
from simulator.questions.calibration import Neighbourhood, Shape
from simulator.workload.kernels import Kernel, kernel_class
from simulator.workload.operators import CLASSES

LEAST_SIZE, MOST_SIZE = 1e-3, 1e18
"""The least and most that a size may be; 0 has no logarithm."""


def variety_of(kernel: Kernel) -> str:
    """Return *kernel*'s variety, in words, its class first; raises InputError for a class that corrects no others."""
    if not kernel.axes:
        why = "it is not known how near they are"
        raise InputError(f"measured {kernel_class(kernel)} kernels correct no others: {why}")
    return " ".join([kernel_class(kernel), *filter(None, kernel.variety())])


def kernel_axes(kernel: Kernel) -> Shape:
    """Return the values of *kernel* on the axes of its class, in their order."""
    return tuple(value if isinstance(value, str) else max(LEAST_SIZE, float(value)) for value in kernel.place())


def sizes_of(variety: str, shape: Shape) -> dict[str, float | str]:
    """Return the values of *shape* by the names of their axes."""
    return dict(zip(CLASSES[variety.partition(" ")[0]].axes, shape, strict=True))


def neighbours_of(neighbourhoods: Sequence[Neighbourhood], kernel: Kernel) -> Neighbourhood | None:
    """Return the measured kernels of *kernel*'s variety, or None without any."""
    if not neighbourhoods or not kernel.axes:
        return None
    variety = variety_of(kernel)
    return next((each for each in neighbourhoods if each.of == variety), None)


def correction(found: Neighbourhood, kernel: Kernel) -> float:
    """Return the factor on the time of *kernel* by the measured kernels *found* of its variety."""
    measured, weights, _ = _solved(found)
    place = _coordinates(found.of, kernel_axes(kernel))
    near = (_correlation(place, other, found.near) for other in measured)
    return math.exp(found.strength * math.fsum(c * w for c, w in zip(near, weights, strict=True)))


def known_share(found: Neighbourhood, kernel: Kernel) -> float:
    """Return the share of the variance of *kernel*'s error that *found* explains, from 0 to 1.

    It is strength * c' (C + noise I)^-1 c, the complement of the kriging variance: C are the correlations of the
    measured kernels, c those of *kernel* with them, I the identity.
    """
    measured, _, root = _solved(found)
    place = _coordinates(found.of, kernel_axes(kernel))
    half = _forward(root, [_correlation(place, other, found.near) for other in measured])
    return min(1.0, max(0.0, found.strength * math.fsum(value * value for value in half)))


def left_out_errors(found: Neighbourhood) -> list[float]:
    """Return log(measured / predicted) of each measured kernel of *found*, interpolated from the others at strength 1.

    With A = C + noise I and the logarithms y, leaving row i out gives y_i - (A^-1 y)_i / (A^-1)_ii (Dubrule, *Cross
    validation of kriging in a unique neighborhood*, 1983).
    """
    logs = [math.log(ratio) for _, ratio in found.measured]
    places, n = places_of(found.of, [shape for shape, _ in found.measured]), len(logs)
    root = _cholesky(_correlations(places, found.near, found.noise))
    rows = [_backward(root, _forward(root, [1.0 if j == i else 0.0 for j in range(n)])) for i in range(n)]
    return [
        value - math.fsum(a * b for a, b in zip(row, logs, strict=True)) / row[i]
        for i, (value, row) in enumerate(zip(logs, rows, strict=True))
    ]


# -- the space of shapes ---------------------------------------------------------------

_Place = tuple[tuple[float, ...], tuple[tuple[float, str], ...]]
"""The sizes in units of distance; and each word, after how far apart another one lies."""


def _coordinates(variety: str, shape: Shape) -> _Place:
    """Return the place of *shape* among those of *variety*, which begins with the class of its kernels."""
    place: list[float] = []
    words: list[tuple[float, str]] = []
    sizes: dict[str, float] = {}
    known = CLASSES[variety.partition(" ")[0]]
    for (name, apart), value in zip(known.axes.items(), shape, strict=True):
        if isinstance(value, str):
            words.append((apart, value))
        else:
            sizes[name] = float(value)
            place.append(apart * math.log2(value))
    return (*place, *known.further(sizes)), tuple(words)


def places_of(variety: str, shapes: Sequence[Shape]) -> list[_Place]:
    """Return the place of each of *shapes* of one variety: its sizes in units of distance, and its words."""
    return [_coordinates(variety, shape) for shape in shapes]


def _correlation(one: _Place, other: _Place, near: float) -> float:
    """Return exp(-d / near) for two places of one variety that lie d apart."""
    squares = sum((a - b) * (a - b) for a, b in zip(one[0], other[0], strict=True))
    squares += sum(apart * apart for (apart, a), (_, b) in zip(one[1], other[1], strict=True) if a != b)
    return math.exp(-math.sqrt(squares) / near)


# -- kriging ---------------------------------------------------------------------------

_Matrix = list[list[float]]


@lru_cache(maxsize=256)
def _solved(found: Neighbourhood) -> tuple[list[_Place], list[float], _Matrix]:
    """Return places, weights and the Cholesky factor of the measured kernels, in an order that is not the file's."""
    measured = sorted(found.measured)
    places = places_of(found.of, [shape for shape, _ in measured])
    root = _cholesky(_correlations(places, found.near, found.noise))
    return places, _backward(root, _forward(root, [math.log(ratio) for _, ratio in measured])), root


def _correlations(places: Sequence[_Place], near: float, noise: float) -> _Matrix:
    rows = [[_correlation(one, other, near) for other in places[: i + 1]] for i, one in enumerate(places)]
    for row in rows:
        row[-1] += noise
    return rows


def _cholesky(lower: _Matrix) -> _Matrix:
    """Return the lower factor L of a symmetric positive definite matrix A = L L', given by its *lower* triangle."""
    root: _Matrix = []
    for i, row in enumerate(lower):
        mine: list[float] = []
        for j in range(i):
            other = root[j]
            mine.append((row[j] - sum(map(float.__mul__, mine, other))) / other[j])
        mine.append(math.sqrt(row[i] - sum(value * value for value in mine)))
        root.append(mine)
    return root


def _forward(root: _Matrix, values: Sequence[float]) -> list[float]:
    """Return x of L x = *values*."""
    found: list[float] = []
    for row, value in zip(root, values, strict=True):
        found.append((value - sum(map(float.__mul__, found, row))) / row[-1])
    return found


def _backward(root: _Matrix, values: Sequence[float]) -> list[float]:
    """Return x of L' x = *values*."""
    found = list(values)
    for i in range(len(root) - 1, -1, -1):
        found[i] /= root[i][i]
        for j in range(i):
            found[j] -= root[i][j] * found[i]
    return found
