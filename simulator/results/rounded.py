"""Figures as documents write them: without the last digits, which are rounding."""

from __future__ import annotations


def whole_number(value: float) -> int | float:
    """Return *value* as an integer if it differs from one only by rounding."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * max(1.0, abs(value)) else value


def rounded_share(value: float) -> float:
    """Return a share of a whole with 12 decimal places."""
    return round(value, 12)
