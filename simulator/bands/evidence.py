"""The measured errors behind bands: ``bands.json``, read on first use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from simulator.bands.classes import Chain

__all__ = ["Evidence", "Seen", "Spread", "evidence", "evidence_from"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of a class, as log(measured / predicted), of ``rows`` on so many ``places``: devices or machines.

    From ``low`` to ``high`` are 80 % of them.  ``shared`` is the part of the variance between places.  The others say
    how many times as wide what holds 80 % is of a source that was left out, on a place that others saw (``seen``), on a
    place that was left out (``unseen``), on a generation that was (``outside``), of a network that was (``strange``),
    and after calibrating (``calibrated``).  ``of_parts``, of steps: the half-widths, down and up, that their kernels
    and exchanges explain.  ``ways``: the half-width of what rows of one machine differ by that do the same in other
    ways; ``machines``: of what those differ by that do the same on other machines; None where too few do.
    """

    name: str
    rows: int
    places: int
    low: float
    middle: float
    high: float
    shared: float
    unseen: float
    outside: float
    seen: float = 1.0
    strange: float = 1.0
    calibrated: float = 1.0
    of_parts: tuple[float, float] | None = None
    ways: float | None = None
    machines: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What rows cover.

    ``devices`` and ``generations``: formats of operators or steps by the name of a part, or of a generation;
    ``machines``: those whose collectives were measured; ``collectives``: the most ranks by collective and ``node`` or
    ``nodes``; ``linked``: generations of GPUs whose collectives were; ``gpus``: the most of a step, by ``several`` or
    ``divided``; ``networks`` of steps; ``hosts``: places by kind.
    """

    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    generations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machines: tuple[str, ...] = ()
    collectives: Mapping[str, int] = field(default_factory=dict)
    linked: tuple[str, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Classes by name, and what was seen."""

    spreads: Mapping[str, Spread]
    seen: Seen

    def spread(self, chain: Chain) -> Spread | None:
        """Return the first class of *chain* that has enough rows, None where none has."""
        return next((self.spreads[name] for name in chain if name in self.spreads), None)


def evidence_from(document: Mapping[str, Any]) -> Evidence:
    """Return what a *document* like ``bands.json`` says."""
    spreads = {}
    for entry in document["classes"]:
        parts = entry.get("of_parts")
        spread = Spread(**{**entry, "of_parts": None if parts is None else (parts[0], parts[1])})
        spreads[spread.name] = spread
    return Evidence(spreads, Seen(**{name: _frozen(value) for name, value in document["seen"].items()}))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def evidence() -> Evidence:
    """Return what the product's own file says."""
    return evidence_from(json.loads(files("simulator.bands").joinpath("bands.json").read_text(encoding="utf-8")))
