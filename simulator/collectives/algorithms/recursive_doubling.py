"""Recursive doubling: in round k, pairs at distance 2^k exchange all they have added up.

lg n (L + S/B) for a power of two: the fewest rounds, but the whole buffer in each, so it is
for short messages.  Otherwise two more rounds of S, as in halving and doubling.
(Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, section 4.5, short messages.)
"""

from __future__ import annotations

from simulator.collectives.algorithms.halving_doubling import paired
from simulator.collectives.schedule import Round, Schedule, Send

__all__ = ["recursive_doubling_all_reduce"]


def recursive_doubling_all_reduce(n: int) -> Schedule:
    """Return the all-reduce by exchange of whole buffers."""
    members, folded = paired(n)
    into = tuple(Send(rank, member, 0, reduce=True) for rank, member in folded)
    rounds = [Round(into, label="fold")] if into else []
    far = 1
    while far < len(members):
        sends = tuple(Send(members[j], members[j ^ far], 0, reduce=True) for j in range(len(members)))
        rounds.append(Round(sends, label="exchange"))
        far *= 2
    back = tuple(Send(member, rank, 0) for rank, member in folded)
    rounds += [Round(back, label="unfold")] if back else []
    return Schedule(n, 1, tuple(rounds))
