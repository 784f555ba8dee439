"""Where the machine, and not the rate of the links, is what limits."""

from __future__ import annotations

from collections.abc import Mapping

from validate.machine.cluster.commands import Shape
from validate.machine.cluster.report import shown_rate
from validate.machine.cluster.topology import EFFICIENCY

__all__ = ["limited", "limited_words"]

_LEAST = 0.9  # of what the links carry, by the probe


def limited(probes: Mapping[Shape, float]) -> list[Shape]:
    """Return the links at which plain TCP reaches clearly less than they carry."""
    return [shape for shape, probe_Bps in probes.items() if probe_Bps < _LEAST * shape.rate_Bps * EFFICIENCY]


def limited_words(shape: Shape, probe_Bps: float) -> str:
    """Return what to say of such a link."""
    reached = probe_Bps / (shape.rate_Bps * EFFICIENCY)
    return (
        f"at {shown_rate(shape)} this machine, and not the rate, is the limit: plain TCP reaches {reached:.0%}"
        " of what the links carry; take a lower --rate or fewer --nodes"
    )
