"""Ladders of sizes, and the order in which a sweep over them tells most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["ladder", "spread"]

T = TypeVar("T")


def ladder(first: int, last: int, factor: int = 4) -> list[int]:
    """Return *first*, then each *factor* times the one before, up to *last*."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def spread(items: Sequence[T]) -> list[T]:
    """Return *items* last, first, middle, then the middles of what lies between: any beginning covers the range."""
    if len(items) <= 2:
        return list(items)[::-1]
    order = [len(items) - 1, 0]
    gaps = [(0, len(items) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [items[i] for i in order]
