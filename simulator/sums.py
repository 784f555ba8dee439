"""Sums of numbers that belong together: :func:`sums_by_key`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

K = TypeVar("K")


def sums_by_key(pairs: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """Return the sum of the numbers of each key in *pairs*, keys in the order in which they come."""
    found: dict[K, Any] = {}
    for key, number in pairs:
        found[key] = found.get(key, 0) + number
    return found
