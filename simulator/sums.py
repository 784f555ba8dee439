"""Numbers and other values that belong together, by key: :func:`sums_by_key`, :func:`lists_by_key`."""

from collections.abc import Iterable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def sums_by_key(pairs: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """Return the sum of the numbers of each key in *pairs*, keys in the order in which they come."""
    found: dict[K, Any] = {}
    for key, number in pairs:
        found[key] = found.get(key, 0) + number
    return found


def lists_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key in *pairs*, keys and values in the order in which they come."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
