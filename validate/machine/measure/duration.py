"""Times and fractions as options say them; of the standard library alone, as compute nodes need them too."""

from __future__ import annotations

import re

__all__ = ["duration_s", "fraction"]

_UNITS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}


def duration_s(text: str) -> float:
    """Return the seconds that *text* says: ``120``, ``120s``, ``2min``, ``1h``; raises ValueError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise ValueError(f"a time such as 120s or 2min is needed; got '{text[:60]}'")
    return float(found[1]) * _UNITS[found[2]]


def fraction(text: str) -> float:
    """Return the fraction that *text* says: ``1%`` or ``0.01``; above 0 and below 1; raises ValueError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(%?)\s*", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value < 1:
        raise ValueError(f"a part such as 1% or 0.01 is needed; got '{text[:60]}'")
    return value
