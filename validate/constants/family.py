"""Shared constants that are fitted to the same kind of rows: :class:`Family`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simulator.constants import constants_file
from validate.constants.least import Prior
from validate.kinds.row import MeasuredRow


@dataclass(frozen=True, slots=True)
class Stage:
    """Constants that are fitted together: ``free`` ones, and ``tied`` ones, which equal others.

    Rows count if ``counts`` holds and their predictions depend on a free constant; of rows with the same text in the
    columns ``alike``, at most ``most``, evenly spaced over the tables.
    """

    free: Mapping[str, Prior]
    alike: tuple[str, ...]
    most: int
    counts: Callable[[MeasuredRow], bool] = lambda _row: True
    tied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """Constants that are fitted to the same kind of rows, in ``stages`` one after the other.

    ``kind`` is the kind of table; ``ops`` are operators or collectives, empty for all; ``grades`` maps trust grades to
    weights; ``held_out`` names the sizes that make up a shape, of which one in 16 is never fitted to; ``predicts``
    selects the rows that this model predicts, if other models share the operators.  ``straight``: the fit is linearised
    at the constants in use (:mod:`validate.constants.least`).
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    grades: Mapping[str, float]
    stages: tuple[Stage, ...]
    held_out: tuple[str, ...] = ()
    predicts: Callable[[MeasuredRow], bool] = lambda _row: True
    straight: bool = False


def drawn(file: str, known: Mapping[str, tuple[float, float]], factor: float = 30.0) -> dict[str, Prior]:
    """Return priors of constants of *file*, from (value, standard deviation of the logarithm).

    Bounds are the value divided and multiplied by *factor*.
    """
    return {
        f"{file}.{name}" if "." not in name else name: Prior(value, sigma, value / factor, value * factor)
        for name, (value, sigma) in known.items()
    }


def within(file: str, bounds: Mapping[str, tuple[float, float]]) -> dict[str, Prior]:
    """Return priors of constants of *file* with known bounds, weakly centred on the values in the file."""
    entries = constants_file(file)["constants"]
    return {f"{file}.{name}": Prior(entries[name]["value"], 1.0, low, high) for name, (low, high) in bounds.items()}
