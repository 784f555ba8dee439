"""What a cell of a table says: a number, or why its row is not scored."""

from __future__ import annotations

import math
import re

__all__ = ["NotScored", "measured_time", "number"]

_MEASURABLE_S = (1e-9, 1e9)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


class NotScored(Exception):  # noqa: N818  a row that is not scored is no fault
    """The row cannot be scored; the message says why in words that many rows can share."""


def number(column: str, text: str) -> float:
    """Return the positive number *text* of *column*.

    Raises
    ------
    NotScored
        Where it is empty, no number, or not more than zero.

    """
    if not text:
        raise NotScored(f"{column} missing")
    value = float(text) if len(text) <= 60 and _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise NotScored(f"{column} is no number")
    if value <= 0:
        raise NotScored(f"{column} not positive")
    return value


def measured_time(seconds: float) -> float:
    """Return *seconds*; raises NotScored where nothing takes so little or so long."""
    if not _MEASURABLE_S[0] <= seconds <= _MEASURABLE_S[1]:
        raise NotScored(f"time_s outside {_MEASURABLE_S[0]:g} to {_MEASURABLE_S[1]:g} s")
    return seconds
