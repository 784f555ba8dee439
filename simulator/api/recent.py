"""A cache of bounded size that keeps the most recently used entries: :class:`Recent`."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping with the last *count* used entries and up to *count* older ones.

    When *count* entries have been used, they become the older ones, and the previous older ones are dropped.  So no
    access has to reorder entries.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._young or key in self._old

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def __getitem__(self, key: K) -> V:
        if key not in self._young:
            self[key] = self._old[key]
        return self._young[key]

    def __setitem__(self, key: K, value: V) -> None:
        if len(self._young) >= self._count:
            self._young, self._old = {}, self._young
        self._young[key] = value
