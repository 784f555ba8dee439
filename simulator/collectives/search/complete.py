"""Rings and chains through GPUs that are all joined directly, which share no directed link with each other.

Numbers stand for GPUs.  RCCL has such orders for its machines as tables (``src/graph/rome_models.cc``: eight chains of
eight MI300X over a network, seven rings on one machine); here they are found for any number of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

_MOST_GPUS = 16
_MOST_STEPS = 100_000  # the search takes less for every number of GPUs but six

Order = tuple[int, ...]


@cache
def separate_rings(n_gpus: int) -> tuple[Order, ...]:
    """Return the most rings through *n_gpus* GPUs that share no directed link; at most one fewer than GPUs.

    So many exist but for four and six GPUs (Tillson, "A Hamiltonian decomposition of K*_2m", JCT B 29, 1980), for which
    the most that a depth-first search finds are returned; none for fewer than three or more than 16 GPUs.
    """
    if not 3 <= n_gpus <= _MOST_GPUS:
        return ()
    search = _Rings(n_gpus)
    search.visit(1, frozenset(), ())
    return search.best


class _Rings:
    """A search for rings of which number *k* goes from GPU 0 to GPU *k* first."""

    def __init__(self, n_gpus: int) -> None:
        self.n_gpus = n_gpus
        self.best: tuple[Order, ...] = ()
        self._steps = 0

    def visit(self, second: int, used: frozenset[tuple[int, int]], found: tuple[Order, ...]) -> bool:
        """Add rings from *second* on to those *found*, which use the links *used*; return whether all were found."""
        if len(found) > len(self.best):
            self.best = found
        if second == self.n_gpus:
            return True
        for order in self._orders((0, second), used):
            links = zip(order, (*order[1:], 0), strict=True)
            if self.visit(second + 1, used.union(links), (*found, order)):
                return True
        return False

    def _orders(self, trail: Order, used: frozenset[tuple[int, int]]) -> Iterator[Order]:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return
        here = trail[-1]
        if len(trail) == self.n_gpus:
            if (here, 0) not in used:
                yield trail
            return
        for gpu in range(1, self.n_gpus):
            if gpu not in trail and (here, gpu) not in used:
                yield from self._orders((*trail, gpu), used)


def separate_chains(n_gpus: int) -> tuple[Order, ...]:
    """Return *n_gpus* chains through as many GPUs, which use each directed link once; none for odd numbers.

    Chain *i* starts at GPU *i* and ends at the opposite one: *i*, *i* + 1, *i* - 1, *i* + 2, ... modulo *n_gpus*
    (Walecki's zigzag; each difference occurs once).
    """
    if n_gpus % 2:
        return ()
    steps = [(k + 1) // 2 if k % 2 else n_gpus - k // 2 for k in range(n_gpus)]
    return tuple(tuple((start + step) % n_gpus for step in steps) for start in range(n_gpus))
