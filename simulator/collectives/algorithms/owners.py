"""Parameter servers: each of them owns an equal share of the buffer, adds what is pushed and hands it back.

A server is a helper or one of the ranks.  With m workers, n servers that are helpers, S bytes
and B at each link, push and pull take 2(m/n)S/B (2S/B at least: the workers' own links); with
a server beside each worker 2((m-1)/m)S/B, as a ring.  (Li et al., Scaling distributed machine
learning with the parameter server, OSDI 2014; Dive into Deep Learning, section 13.7.)
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.schedule import Local, Round, Schedule, Send

__all__ = ["push_pull"]


def push_pull(n: int, owners: Sequence[int]) -> Schedule:
    """Return the all-reduce in which ``owners[j]``, a rank or a helper, adds up chunk j.

    An owner adds in its memory, in one pass that reads the n shares and writes the sum.
    """
    pushes = tuple(Send(r, o, j, reduce=True) for j, o in enumerate(owners) for r in range(n) if r != o)
    pulls = tuple(Send(o, r, j) for j, o in enumerate(owners) for r in range(n) if r != o)
    share: dict[int, int] = {}
    for owner in owners:
        share[owner] = share.get(owner, 0) + 1
    local = tuple(Local(o, (n + 1) * k) for o, k in share.items())
    return Schedule(n, len(owners), (Round(pushes, label="push", local=local), Round(pulls, label="pull")))
