"""Text as YAML reads it back."""

from __future__ import annotations

import json

__all__ = ["quoted"]


def quoted(text: str) -> str:
    """Return *text* as YAML reads it back; what cannot be shown becomes a question mark."""
    return json.dumps("".join(c if c.isprintable() else "?" for c in text), ensure_ascii=False)
