"""Names of devices as tables of measurements write them."""

from __future__ import annotations

__all__ = ["slug"]


def slug(name: str) -> str:
    """Return *name*, as drivers and systems spell it, in small letters and digits with single hyphens."""
    plain = name.lower().replace("(r)", "").replace("(tm)", "")
    return "-".join("".join(c if c.isalnum() else " " for c in plain).split())
