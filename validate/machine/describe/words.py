"""Words of a draft: text and figures as YAML and units read them back."""

from __future__ import annotations

import json

__all__ = ["hertz_words", "quoted", "rate_words", "size_words"]


def quoted(text: str) -> str:
    """Return *text* as YAML reads it back; what cannot be shown becomes a question mark."""
    return json.dumps("".join(c if c.isprintable() else "?" for c in text), ensure_ascii=False)


def size_words(n_bytes: float) -> str:
    """Return *n_bytes* in the largest binary unit that it fills."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.5g} {unit}"
    return f"{n_bytes / 1024:.5g} KiB"


def hertz_words(clock_Hz: float) -> str:
    """Return a clock in GHz."""
    return f"{clock_Hz / 1e9:.4g} GHz"


def rate_words(rate_Bps: float) -> str:
    """Return a rate of bytes in GB/s."""
    return f"{rate_Bps / 1e9:.4g} GB/s"
