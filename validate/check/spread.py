"""How far measured exchanges that nobody complained about are from their prediction: what a log is judged by.

``spread.json`` holds the figures, and no prediction reads them.  :mod:`validate.check.make_spread` writes it, from
scored tables of measured collectives: rows of one run are a log, its error above and below 1 MiB the median over its
sizes, and the band what nine of ten logs of grade A and B lie in, each machine counting as one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

__all__ = ["LARGE_BYTES", "Spread", "quantile", "spread_of"]

LARGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Spread:
    """Measured over predicted time: from ``fastest`` to ``slowest`` lie nine of ten of ``logs`` on ``machines``."""

    fastest: float
    slowest: float
    logs: int
    machines: int


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, float]]:
    text = files("validate.check").joinpath("spread.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, float]] = json.loads(text)
    return found


def spread_of(*, several_nodes: bool, large: bool) -> Spread:
    """Return the spread of exchanges on one machine or over several, of sizes from 1 MiB on or below."""
    key = f"{'several nodes' if several_nodes else 'one node'}, {'from' if large else 'below'} 1 MiB"
    found = _known()[key]
    return Spread(found["fastest"], found["slowest"], int(found["logs"]), int(found["machines"]))


def quantile(weighted: list[tuple[float, float]], share: float) -> float:
    """Return the least value below which that *share* of the weights lies; *weighted* are values with their weights."""
    ordered = sorted(weighted)
    whole = sum(weight for _, weight in ordered)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= share * whole - 1e-12:
            return value
    return math.nan
