"""Ladders of sizes, and an order that covers their range early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def ladder(first: int, last: int, factor: int = 4) -> list[int]:
    """Return *first* and its multiples by powers of *factor*, up to *last*."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def spread(items: Sequence[T]) -> list[T]:
    """Return *items* in the order last, first, middle, then middles of the gaps: any first part covers the range."""
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
