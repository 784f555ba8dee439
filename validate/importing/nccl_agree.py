"""Whether the figures of a row of nccl-tests agree: size, time, algbw and busbw say the same twice.

``algbw`` is size / time, and ``busbw`` is algbw times the collective's factor (NVIDIA/nccl-tests
``doc/PERFORMANCE.md``).  A figure is known to one unit of its last printed digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

_ROUNDED = 0.01  # relative difference that says nothing, however many digits are printed


class Printed(NamedTuple):
    """One half of a row as printed: microseconds, GB/s and GB/s."""

    time: str
    algbw: str
    busbw: str


def contradiction(size_bytes: int, halves: Sequence[Printed], factor: float) -> str:
    """Return which figures of a row of *size_bytes* contradict each other; empty if none do.

    *factor*: busbw over algbw.  Figures that are absent contradict nothing.
    """
    for half in halves:
        time_us, algbw, busbw = (_span(text) for text in half)
        if time_us is not None and time_us[1] > 0 and float(half.time) > 0 and algbw is not None:
            most = size_bytes / 1e3 / time_us[0] if time_us[0] > 0 else math.inf
            if not _meet(algbw, (size_bytes / 1e3 / time_us[1], most)):
                return (
                    f"algbw {half.algbw}, where {size_bytes} B in {half.time} us are {_figure(size_bytes, half.time)}"
                )
        if algbw is not None and busbw is not None and not _meet(busbw, (algbw[0] * factor, algbw[1] * factor)):
            return f"busbw {half.busbw}, which is not {factor:.4g} times algbw {half.algbw}"
    return ""


def _figure(size_bytes: int, time: str) -> str:
    return f"{size_bytes / 1e3 / float(time):.4g}"


def _meet(told: tuple[float, float], meant: tuple[float, float]) -> bool:
    return told[0] <= meant[1] * (1 + _ROUNDED) and meant[0] * (1 - _ROUNDED) <= told[1]


def _span(text: str) -> tuple[float, float] | None:
    """Return the least and the most that a printed positive figure may mean; None if it is none."""
    try:
        value = Decimal(text)
        exponent = value.as_tuple().exponent
    except InvalidOperation:
        return None
    if not isinstance(exponent, int) or value < 0 or not math.isfinite(float(value)):
        return None
    unit = 10.0 ** min(max(exponent, -300), 300)
    return max(0.0, float(value) - unit), float(value) + unit
