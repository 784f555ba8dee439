"""Device names in the form used in tables of measurements."""

from __future__ import annotations


def slug(name: str) -> str:
    """Return *name*, as a driver or the system reports it, in lower case with single hyphens."""
    plain = name.lower().replace("(r)", "").replace("(tm)", "")
    return "-".join("".join(c if c.isalnum() else " " for c in plain).split())
