"""Networks, operators and collectives: what a step computes and exchanges.

Here are the names of collectives, and the factor between bus bandwidth and algorithm bandwidth.
"""

from typing import Literal, get_args

Collective = Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all", "send-recv"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)


def bus_factor(collective: Collective, n_ranks: int) -> float:
    """Return busbw / algbw as nccl-tests defines it (doc/PERFORMANCE.md).

    algbw is computed from nccl-tests' size: one rank's buffer for all-reduce, broadcast, reduce and send-recv; the
    gathered result for all-gather; one rank's input for reduce-scatter and all-to-all.
    """
    if n_ranks < 2:
        return 1.0
    if collective == "all-reduce":
        return 2 * (n_ranks - 1) / n_ranks
    if collective in ("reduce-scatter", "all-gather", "all-to-all"):
        return (n_ranks - 1) / n_ranks
    return 1.0
