"""Text and figures of a draft, written so that YAML and the units parser read them back."""

from __future__ import annotations

import json


def quoted(text: str) -> str:
    """Return *text* as a quoted YAML string; unprintable characters become question marks."""
    return json.dumps("".join(c if c.isprintable() else "?" for c in text), ensure_ascii=False)


def size_words(n_bytes: float) -> str:
    """Return *n_bytes* in GiB, MiB or KiB: the largest of these units that it fills."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.5g} {unit}"
    return f"{n_bytes / 1024:.5g} KiB"


def hertz_words(clock_Hz: float) -> str:
    """Return a clock in GHz, with its unit."""
    return f"{clock_Hz / 1e9:.4g} GHz"


def rate_words(rate_Bps: float) -> str:
    """Return a bandwidth in GB/s, with its unit."""
    return f"{rate_Bps / 1e9:.4g} GB/s"
