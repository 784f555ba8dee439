"""Shared constants that are fitted to the same kind of rows (:class:`Family`), and terms that can be turned off."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from simulator.constants import constants_file
from simulator.records import dataclass, field
from validate.constants.least import Prior
from validate.kinds.row import MeasuredRow


@dataclass(frozen=True, slots=True)
class FitStage:
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
    stages: tuple[FitStage, ...]
    held_out: tuple[str, ...] = ()
    predicts: Callable[[MeasuredRow], bool] = lambda _row: True
    straight: bool = False


@lru_cache(maxsize=1)
def _written() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(files(__package__).joinpath("families.yaml").read_text(encoding="utf-8"))
    return found


def priors_of(stage: str) -> dict[str, Prior]:
    """Return the priors of the constants that are fitted together in *stage*, a name of ``families.yaml``."""
    written = dict(_written()["priors"][stage])
    factor = written.pop("factor", math.inf)
    return {
        name: _prior(in_use(name) if said[0] == "in use" else said[0], factor, *said[1:])
        for name, said in written.items()
    }


def _prior(value: float, factor: float, sigma: float, least: float = 0.0, most: float = math.inf) -> Prior:
    return Prior(float(value), float(sigma), float(max(value / factor, least)), float(min(value * factor, most)))


def in_use(name: str) -> float:
    """Return the value of the constant *name* in its file."""
    file, _, key = name.partition(".")
    value: float = constants_file(file)["constants"][key]["value"]
    return value


@dataclass(frozen=True, slots=True)
class Term:
    """A term of *family*, an effect with constants of its own: values that turn it ``off``, and those then ``idle``."""

    family: str
    name: str
    off: Mapping[str, float]
    idle: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = tuple(
    Term(
        family,
        name,
        {key: float(value) for key, value in written.items() if key != "idle"},
        tuple(written.get("idle", ())),
    )
    for family, terms in _written()["terms"].items()
    for name, written in terms.items()
)
"""The terms of all families, in the order of reports.

``validate fit --terms`` fits each family again without one term at a time, on the same rows and with the same devices
left out, and compares the errors on these devices: a term that does not lower them should go.
"""
