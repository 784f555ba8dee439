"""Names as drivers and systems spell them, and as tables do."""

from __future__ import annotations

__all__ = ["slug"]


def slug(name: str) -> str:
    """Return *name* in small letters and digits with single hyphens, as tables of measurements name devices."""
    plain = name.lower().replace("(r)", "").replace("(tm)", "")
    return "-".join("".join(c if c.isalnum() else " " for c in plain).split())
