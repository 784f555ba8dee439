"""The back-of-the-envelope time of a collective: one alpha-beta ring at data sheet rates, the baseline to beat."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.communicator import Communicator
from simulator.network.routing import Router
from simulator.workload import Collective

# One message between two GPUs, launch included: a round number, not fitted.
ALPHA_S = 2e-6
_MAX_SEARCHED = 16  # the most GPUs of a node for which the best ring is searched


def alpha_beta_ring_s(group: Communicator, collective: Collective, size_bytes: float) -> float:
    """Return the time of one ring over the ranks of *group* by the alpha-beta model, in seconds.

    With n ranks, S bytes (nccl-tests' size), alpha = ``ALPHA_S`` = 2 us, and B the bandwidth of the ring:

    * all-reduce: 2 (n-1) (alpha + S / (n B));
    * all-gather, reduce-scatter, all-to-all: (n-1) (alpha + S / (n B));
    * broadcast, reduce (pipelined): (n-1) alpha + S / B;
    * send-recv: alpha + S / B.

    B is the nominal (data sheet) rate of the slowest route between neighbours in the best single ring: within a node,
    the order of GPUs that maximises this rate; between nodes, the best pair of GPUs of two neighbouring nodes.  Groups
    that communicate at the same time are ignored.
    """
    n = group.n_ranks
    bandwidth_Bps = group.once("alpha-beta ring", lambda: _ring_bandwidth(group))
    if collective == "all-reduce":
        return 2 * (n - 1) * (ALPHA_S + size_bytes / (n * bandwidth_Bps))
    if collective in ("all-gather", "reduce-scatter", "all-to-all"):
        return (n - 1) * (ALPHA_S + size_bytes / (n * bandwidth_Bps))
    return (1 if collective == "send-recv" else n - 1) * ALPHA_S + size_bytes / bandwidth_Bps


def _ring_bandwidth(group: Communicator) -> float:
    machine, router = group.machine, group.router
    hosts = {host: [group.ranks[rank] for rank in ranks] for host, ranks in group.by_host().items()}
    # Equal nodes with the same GPUs taking part are examined once.
    different = {key: hosts[host] for host, (_, _, key) in reversed(group.taking_part().items())}
    rates = [_widest(router, gpus, closed=len(hosts) == 1) for gpus in different.values() if len(gpus) > 1]
    if len(hosts) > 1:
        onward = [*list(hosts)[1:], *list(hosts)[:1]]
        unlike = {(machine.like(a), machine.like(b)): (a, b) for a, b in zip(hosts, onward, strict=True)}
        for a, b in unlike.values():
            rates.append(max(_nominal_rate(router, src, dst) for src in hosts[a] for dst in hosts[b]))
    return min(rates)


def _nominal_rate(router: Router, src: int, dst: int) -> float:
    return min(router.machine.links[link].nominal_Bps / share for link, share in router.route(src, dst).links)


def _widest(router: Router, gpus: Sequence[int], *, closed: bool) -> float:
    """Return the largest rate in B/s at which a ring (or, if not *closed*, a chain) joins all *gpus*."""
    n = len(gpus)
    rate = [[_nominal_rate(router, a, b) if a != b else 0.0 for b in gpus] for a in gpus]
    if n > _MAX_SEARCHED:
        return min(rate[i][(i + 1) % n] for i in range(n if closed else n - 1))
    levels = sorted({value for row in rate for value in row if value > 0}, reverse=True)
    for level in levels:
        near = [[j for j in range(n) if rate[i][j] >= level] for i in range(n)]
        if _spans(near, closed=closed):
            return level
    return levels[-1]


def _spans(near: list[list[int]], *, closed: bool) -> bool:
    """Return whether a path or cycle visits all nodes, in 2^n n steps (Held and Karp, 1962, section 2)."""
    n = len(near)
    into = [sum(1 << j for j in range(n) if i in near[j]) for i in range(n)]  # by node, the set of its predecessors
    ends = [0] * (1 << n)  # by the set of visited nodes: the possible last nodes
    for i in [0] if closed else range(n):
        ends[1 << i] = 1 << i
    for visited in range(1, 1 << n):
        if not ends[visited]:
            continue
        for i in range(n):
            if not visited >> i & 1 and ends[visited] & into[i]:
                ends[visited | 1 << i] |= 1 << i
    return bool(ends[-1] & (into[0] if closed else -1))
