"""Measured kernels near a kernel correct its predicted time: simple kriging of log(measured / predicted).

The kernels of one *variety* (class, precision, and what tells its operators apart) lie in a space of shapes.  Two that
lie *d* apart have errors with the correlation exp(-d / near).  With C the correlations among the measured kernels, c
those of the asked kernel with them, and y their log(measured / predicted), its time is multiplied by

    exp(strength * c' (C + noise I)^-1 y)

(simple kriging with a nugget: Cressie, *Statistics for Spatial Data*, 1993, section 3.2; the exponential correlation
is positive definite in any number of dimensions).  So one measured kernel of the same shape corrects by its own error
times strength / (1 + noise), and a kernel far from all of them keeps its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import get_args

from simulator.devices.kernels import (
    Convolution,
    FusedAttention,
    Gather,
    Gemm,
    Kernel,
    Pooling,
    Recurrence,
    Rowwise,
    Streaming,
    kernel_class,
)
from simulator.errors import InputError
from simulator.questions.calibration import Neighbourhood, Shape
from simulator.workload.operators import AttentionLibrary
from simulator.workload.precision import PRECISIONS

_ALIGNED = 6  # alignment counts up to 2^6 elements, the widest piece of a row that a product's kernel reads at once

# What tells kernels of one class apart: the name of each size or word of a shape, and how far apart a factor of 2 in it
# or another word lies.  Chosen on every other device and judged on the rest: docs/decisions/calibration.md.
AXES: Mapping[str, Mapping[str, float]] = {
    "gemm": {"m": 0.2, "n": 0.2, "k": 0.25, "batch": 0.1, "layout": 1.0},
    "convolution": {
        "direction": 1.5,
        "filter": 1.0,
        "stride": 1.5,
        "c_in": 0.25,
        "c_out": 0.4,
        "positions": 0.3,
        "flop": 0.6,
    },
    "recurrence": {"direction": 1.0, "batch": 0.15, "timesteps": 0.1, "hidden": 0.4},
    "streaming": {"function": 0.5, "elements": 0.1, "element_bytes": 0.7},
    "rowwise": {"rows": 0.1, "cols": 0.8},
    "pooling": {"window": 0.5, "input": 0.2, "output": 0.2},
    "gather": {"rows": 0.2, "cols": 0.4, "vocabulary": 0.2},
    "fusedattention": {"batch": 0.1, "heads": 0.1, "queries": 0.4, "keys": 0.4, "head_size": 0.4},
}
WORDS = frozenset({"layout", "direction", "filter", "function"})
"""The axes that are words; all others are positive numbers."""
LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "layout": ("NN", "NT", "TN", "TT"),
    "direction": ("fwd", "bwd_data", "bwd_weight", "steps", "weights"),
}
"""The words that some of these axes may have."""
LEAST_SIZE, MOST_SIZE = 1e-3, 1e18
"""The least and most that a size may be; 0 has no logarithm."""
# Beside the sizes of a product: its FLOPs, and the powers of two that divide them (up to 2^6).
_FLOP, _ALIGNMENT = 0.25, {"m": 0.3, "n": 1.0, "k": 0.3}


def variety_of(kernel: Kernel) -> str:
    """Return the variety of *kernel*, whose kernels correct each other: words, the kernel's class first.

    Raises InputError for a class of kernels that do not correct each other.
    """
    words, name = _VARIETY.get(type(kernel)), kernel_class(kernel)
    if words is None:
        raise InputError(f"measured {name} kernels correct no others: the space of their shapes is not known")
    return " ".join([name, *filter(None, words(kernel))])


_VARIETY: Mapping[type, Callable[..., tuple[str, ...]]] = {
    Gemm: lambda k: (k.precision, "bias" if k.epilogue_elements else "", "batched" if k.batch > 1 else ""),
    Convolution: lambda k: (k.precision, "channels_last" if k.channels_last else ""),
    Recurrence: lambda k: (k.precision, k.cell),
    Streaming: lambda k: ("transposed" if k.transposed else "",),
    Rowwise: lambda k: (k.precision, k.kind, "channels_last" if k.channels_last else ""),
    Pooling: lambda k: (k.precision, k.kind, k.direction),
    Gather: lambda k: (k.precision, k.direction),
    FusedAttention: lambda k: (k.precision, k.direction, k.library, "causal" if k.causal else ""),
}


KNOWN_WORDS = frozenset(
    {
        *PRECISIONS,
        *get_args(AttentionLibrary),
        *("bias", "batched", "channels_last", "transposed", "causal"),
        *("max", "avg", "fwd", "bwd", "rnn", "lstm", "gru"),
    }
)
"""The words of varieties after the class; a reduction over rows also has its function."""


def shape_of(kernel: Kernel) -> Shape:
    """Return the values of *kernel* on the axes of its class (:data:`AXES`), in their order."""
    values = _SHAPE[type(kernel)](kernel)
    return tuple(value if isinstance(value, str) else max(LEAST_SIZE, float(value)) for value in values)


def sizes_of(variety: str, shape: Shape) -> dict[str, float | str]:
    """Return the values of *shape* by the names of their axes."""
    return dict(zip(AXES[variety.partition(" ")[0]], shape, strict=True))


def _of_convolution(kernel: Convolution) -> Shape:
    shape = kernel.shape
    positions = shape.batch * shape.h_in * shape.w_in / (shape.stride_h * shape.stride_w)
    taps = f"{shape.kernel_h}x{shape.kernel_w}"
    return (kernel.direction, taps, shape.stride_h, shape.c_in, shape.c_out, positions, kernel.flop)


def _of_recurrence(kernel: Recurrence) -> Shape:
    # Gradients of states repeat the forward pass step by step; those of weights are one product over all steps.
    direction = "weights" if kernel.direction == "bwd_weight" else "steps"
    return (direction, kernel.batch, kernel.timesteps, kernel.hidden)


_SHAPE: Mapping[type, Callable[..., Shape]] = {
    Gemm: lambda k: (k.m, k.n, k.k, k.batch, k.layout),
    Convolution: _of_convolution,
    Recurrence: _of_recurrence,
    Streaming: lambda k: (k.function, max(1, k.elements), max(1, k.bytes) / max(1, k.elements)),
    Rowwise: lambda k: (k.rows, k.cols),
    Pooling: lambda k: (k.window, k.input_elements, k.output_elements),
    Gather: lambda k: (k.rows, k.cols, max(1, k.vocabulary)),  # 0: not known
    FusedAttention: lambda k: (k.batch, k.heads, k.query_length, k.key_length, k.head_size),
}


def neighbours_of(neighbourhoods: Sequence[Neighbourhood], kernel: Kernel) -> Neighbourhood | None:
    """Return the measured kernels of *kernel*'s variety, or None without any."""
    if not neighbourhoods or type(kernel) not in _VARIETY:
        return None
    variety = variety_of(kernel)
    return next((each for each in neighbourhoods if each.of == variety), None)


def correction(found: Neighbourhood, kernel: Kernel) -> float:
    """Return the factor on the time of *kernel* by the measured kernels *found* of its variety."""
    measured, weights, _ = _solved(found)
    place = _coordinates(_kernel_class_of(found), shape_of(kernel))
    near = (_correlation(place, other, found.near) for other in measured)
    return math.exp(found.strength * math.fsum(c * w for c, w in zip(near, weights, strict=True)))


def known_share(found: Neighbourhood, kernel: Kernel) -> float:
    """Return the share of the variance of *kernel*'s error that its measured neighbours explain, from 0 to 1.

    It is strength * c' (C + noise I)^-1 c, the complement of the kriging variance.
    """
    measured, _, root = _solved(found)
    place = _coordinates(_kernel_class_of(found), shape_of(kernel))
    half = _forward(root, [_correlation(place, other, found.near) for other in measured])
    return min(1.0, max(0.0, found.strength * math.fsum(value * value for value in half)))


def left_out(found: Neighbourhood) -> list[float]:
    """Return log(measured / predicted) of each measured kernel of *found*, interpolated from the others at strength 1.

    With A = C + noise I, leaving row i out gives y_i - (A^-1 y)_i / (A^-1)_ii (Dubrule, *Cross validation of kriging in
    a unique neighborhood*, 1983).
    """
    logs = [math.log(ratio) for _, ratio in found.measured]
    places = [_coordinates(_kernel_class_of(found), shape) for shape, _ in found.measured]
    rows = _inverse(_cholesky(_correlations(places, found.near, found.noise)))
    return [
        value - math.fsum(a * b for a, b in zip(row, logs, strict=True)) / row[i]
        for i, (value, row) in enumerate(zip(logs, rows, strict=True))
    ]


def _kernel_class_of(neighbourhood: Neighbourhood) -> str:
    """Return the kernel class of *neighbourhood*, the first word of its variety."""
    return neighbourhood.of.partition(" ")[0]


# -- the space of shapes ---------------------------------------------------------------

_Place = tuple[tuple[float, ...], tuple[tuple[float, str], ...]]
"""The sizes in units of distance; and each word, after how far apart another one lies."""


def _coordinates(kernel_class: str, shape: Shape) -> _Place:
    """Return the place of *shape*."""
    place: list[float] = []
    words: list[tuple[float, str]] = []
    sizes: dict[str, float] = {}
    for (name, apart), value in zip(AXES[kernel_class].items(), shape, strict=True):
        if isinstance(value, str):
            words.append((apart, value))
        else:
            sizes[name] = float(value)
            place.append(apart * math.log2(value))
    if kernel_class == "gemm":
        place.append(_FLOP * math.log2(sizes["m"] * sizes["n"] * sizes["k"] * sizes["batch"]))
        place += [apart * _aligned(sizes[name]) for name, apart in _ALIGNMENT.items()]
    return tuple(place), tuple(words)


def _aligned(size: float) -> int:
    """Return the exponent of the largest power of two that divides *size*, at most ``_ALIGNED``."""
    whole = int(size)
    return min(_ALIGNED, (whole & -whole).bit_length() - 1)


def _correlation(one: _Place, other: _Place, near: float) -> float:
    """Return exp(-d / near) for two places of one variety that lie d apart."""
    squares = sum((a - b) * (a - b) for a, b in zip(one[0], other[0], strict=True))
    squares += sum(apart * apart for (apart, a), (_, b) in zip(one[1], other[1], strict=True) if a != b)
    return math.exp(-math.sqrt(squares) / near)


# -- kriging ---------------------------------------------------------------------------

_Matrix = list[list[float]]


@lru_cache(maxsize=256)
def _solved(found: Neighbourhood) -> tuple[list[_Place], list[float], _Matrix]:
    """Return the places of the measured kernels, the weight of each, and the Cholesky factor of their correlations.

    They are taken in the order of their shapes, so the order in a file changes no bit.
    """
    measured = sorted(found.measured)
    places = [_coordinates(_kernel_class_of(found), shape) for shape, _ in measured]
    root = _cholesky(_correlations(places, found.near, found.noise))
    return places, _backward(root, _forward(root, [math.log(ratio) for _, ratio in measured])), root


def _correlations(places: Sequence[_Place], near: float, noise: float) -> _Matrix:
    """Return the matrix C + noise I of *places*."""
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


def _inverse(root: _Matrix) -> _Matrix:
    """Return the inverse of L L'."""
    n = len(root)
    return [_backward(root, _forward(root, [1.0 if j == i else 0.0 for j in range(n)])) for i in range(n)]
