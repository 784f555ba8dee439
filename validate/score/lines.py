"""Numbers of lines in a few words."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ranges"]


def ranges(lines: Sequence[int], limit: int | None = 6) -> str:
    """Return rising line numbers as ``3-7, 12``, the first *limit* spans (None: all)."""
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    shown = [f"{a}-{b}" if b > a else str(a) for a, b in spans[:limit]]
    return ", ".join(shown) + (", ..." if limit is not None and len(spans) > limit else "")
