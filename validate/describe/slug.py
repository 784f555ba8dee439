"""Names as drivers and systems spell them, and as tables do."""

from __future__ import annotations

import json

__all__ = ["quoted", "slug"]


def slug(name: str) -> str:
    """Return *name* in small letters and digits with single hyphens, as tables of measurements name devices."""
    plain = name.lower().replace("(r)", "").replace("(tm)", "")
    return "-".join("".join(c if c.isalnum() else " " for c in plain).split())


def quoted(text: str) -> str:
    """Return *text* as YAML reads it back; what cannot be shown becomes a question mark."""
    return json.dumps("".join(c if c.isprintable() else "?" for c in text), ensure_ascii=False)
