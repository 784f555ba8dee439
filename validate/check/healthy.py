"""From where to where a measured exchange is healthy: the band of its prediction.

A log is of a source that no measured row is of, and of a machine that may have a fault; so its band is that of a
machine which nobody has measured (docs/decisions/bands.md).

The largest sizes of a log are those from an eighth of its largest on: there links are full, and what is amiss with them
shows whole, where a median over all sizes would dilute it by those that latencies bound.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from simulator.bands.composition import Composition, estimate
from simulator.bands.evidence import evidence
from simulator.errors import InputError

__all__ = ["Healthy", "healthy_range", "is_large"]

_LARGE_BYTES = 1 << 20  # at least
_SHARE = 1 / 8  # of a log's largest size


class Healthy(NamedTuple):
    """Measured over predicted time: from ``fastest`` to ``slowest`` lie 80 % of ``rows`` like it on ``machines``."""

    slowest: float
    fastest: float
    rows: int
    machines: int


def is_large(size_bytes: float, largest_bytes: float) -> bool:
    """Return whether a size counts among the largest of a log whose largest is *largest_bytes*."""
    return size_bytes >= max(_LARGE_BYTES, _SHARE * largest_bytes)


def healthy_range(exchange: Composition) -> Healthy:
    """Return what is healthy of an *exchange*; raises InputError where nothing like it was measured."""
    found = estimate(replace(exchange, facts=replace(exchange.facts, place="")), evidence())
    if found is None:
        raise InputError("nobody has measured such an exchange: what is healthy is not known")
    return Healthy(math.exp(found.high), math.exp(found.low), found.rows, found.places)
