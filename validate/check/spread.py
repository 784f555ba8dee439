"""How far measured exchanges that nobody complained about are from their prediction: what a log is judged by.

``spread.json`` holds the figures, and no prediction reads them.  :mod:`validate.check.make_spread` writes it, from
scored tables of measured collectives: rows of one run are a log, its error the median over its largest sizes and that
over the others, and the band what nine of ten logs of grade A and B lie in, each machine counting as one.

The largest sizes are those from an eighth of the log's largest on: there links are full, and what is amiss with them
shows whole, where a median over all sizes would dilute it by those that latencies bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

__all__ = ["Spread", "is_large", "key_of", "spread_of"]

_LARGE_BYTES = 1 << 20  # at least
_SHARE = 1 / 8  # of a log's largest size


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


def is_large(size_bytes: float, largest_bytes: float) -> bool:
    """Return whether a size counts among the largest of a log whose largest is *largest_bytes*."""
    return size_bytes >= max(_LARGE_BYTES, _SHARE * largest_bytes)


def key_of(*, several_nodes: bool, large: bool) -> str:
    """Return what ``spread.json`` calls the exchanges of one machine or several, at the largest sizes or the others."""
    return f"{'several nodes' if several_nodes else 'one node'}, {'largest' if large else 'smaller'} sizes"


def spread_of(*, several_nodes: bool, large: bool) -> Spread:
    """Return the spread of exchanges on one machine or over several, at the largest sizes or the others."""
    found = _known()[key_of(several_nodes=several_nodes, large=large)]
    return Spread(found["fastest"], found["slowest"], int(found["logs"]), int(found["machines"]))
