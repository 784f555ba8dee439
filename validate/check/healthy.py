"""The healthy range of a measured exchange: the band of its prediction.

A log comes from a new source, and from a machine that may have a fault, so its band is that of an unmeasured machine
(docs/decisions/bands.md).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from simulator.bands.composition import Composition, estimate
from simulator.bands.evidence import evidence
from simulator.errors import InputError


class Healthy(NamedTuple):
    """The healthy range of measured over predicted time, which holds 80 % of ``rows`` like it on ``machines``."""

    slowest: float
    fastest: float
    rows: int
    machines: int


def healthy_range(exchange: Composition) -> Healthy:
    """Return the healthy range of *exchange*; raises InputError if no similar exchange was measured."""
    found = estimate(replace(exchange, facts=replace(exchange.facts, place="")), evidence())
    if found is None:
        raise InputError("no published measurement has such an exchange, so no healthy range is known")
    return Healthy(math.exp(found.high), math.exp(found.low), found.rows, found.places)
