"""Results that are found once: :class:`Kept`."""

from collections.abc import Callable, Hashable
from copy import copy
from math import inf
from typing import TypeVar

from simulator.errors import InputError

T = TypeVar("T")


class Kept:
    """Results, and InputErrors, by key, found on first use; the last *most* used stay, and up to as many older ones."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._young: dict[Hashable, object] = {}
        self._old: dict[Hashable, object] = {}

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return the value of *find()* from the first call with this *key*, or raise its InputError."""
        found = self._young.get(key, self)
        if found is self:
            found = self._old.get(key, self)
            if found is self:
                try:
                    found = find()
                except InputError as error:
                    found = error
            if len(self._young) >= self._most:
                self._young, self._old = {}, self._young
            self._young[key] = found
        if isinstance(found, InputError):
            raise copy(found)
        return found  # type: ignore[return-value]

    def without(self, *keys: Hashable) -> "Kept":
        """Return a copy without the results for *keys*."""
        other = Kept(self._most)
        other._young, other._old = ({k: held[k] for k in held if k not in keys} for held in (self._young, self._old))
        return other
