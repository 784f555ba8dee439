"""Measure all cases on a network that exists only meanwhile, by workers that are always ended."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from statistics import median
from typing import Any

from simulator.errors import TopocastError, one_line
from validate.machine.cluster import operations
from validate.machine.cluster.cases import LEAST_REPEATS, ClusterCase, ClusterResults, MessageCosts
from validate.machine.cluster.network import HostNetwork, LinkShape, RunNames
from validate.machine.measure.host import usable_threads
from validate.machine.measure.ranks import RankProcesses, RanksFailed
from validate.machine.measure.timing import Interval, median_interval

Plan = dict[str, Any] | None  # what the hosts send and add; None where torch's own collective is measured
_START_S = 180.0


class WorkerFailed(TopocastError):  # noqa: N818  the name says the fault
    """A worker has exited, reported an error, or not answered in time."""


@contextmanager
def _workers(names: RunNames, n_hosts: int) -> Iterator[RankProcesses]:
    """Have a worker on each host in the body, then kill them; raises WorkerFailed for what it raises of them."""
    try:
        how: dict[str, Any] = {"begin": partial(operations.begin, names), "called": "the worker of host"}
        crew = RankProcesses(n_hosts, cuda=False, start_s=_START_S, **how)
        try:
            yield crew
        finally:
            crew.close(kill=True)
    except RanksFailed as fault:
        raise WorkerFailed(one_line(fault, 250)) from None


_NARROW = 0.02  # stop once half the width of the median's interval is below this fraction of the median
_LEAD_S = 0.01  # delay of the common start: longer than a question takes to reach a worker
_PATIENCE = 20  # timeout: this many times the predicted time, plus a minute
_PROBE_S = 0.5
_MESSAGES, _SHORT, _ROUNDS, _TIMES = (1, 8), 16, 50, 5  # messages per round, elements of each, rounds, repetitions


def measure_case(
    crew: RankProcesses, case: ClusterCase, exchange: Plan, *, repeats: int, spend_s: float, about_s: float
) -> Interval:
    """Return the median time of *case*, from the common start to the last host's end; raises WorkerFailed.

    *exchange* is what the hosts send and add (None: torch's own collective).  A first run warms up.  *about_s*, as
    predicted, sets the timeout; three to *repeats* runs take about *spend_s* seconds.
    """
    within_s = 60 + _PATIENCE * about_s
    asked = case.strategy.name, case.n_nodes, case.size_bytes
    crew.run(operations.prepare, asked, exchange, timeout_s=within_s)
    end_s = time.monotonic() + spend_s
    _go(crew, asked, within_s)
    samples: list[float] = []
    while True:
        samples.append(_go(crew, asked, within_s))
        found, n = median_interval(samples), len(samples)
        enough = n >= repeats or found.relative <= _NARROW or time.monotonic() + found.median > end_s
        if n >= LEAST_REPEATS and enough:
            return found


def probe(crew: RankProcesses, shape: LinkShape, n_nodes: int) -> float:
    """Return the payload, in B/s, of the slowest TCP stream when each host sends to the next; the best of 3 runs."""
    size_bytes = max(1_000_000, round(shape.rate_Bps * _PROBE_S))
    return size_bytes / min(_go(crew, ("probe", n_nodes, size_bytes), 60 + _PATIENCE * _PROBE_S) for _ in range(3))


def message_costs(crew: RankProcesses, n_nodes: int) -> MessageCosts:
    """Return what messages cost the processors, from rounds in which each host sends k short messages to the next.

    On p processors, n hosts take n / min(p, n) times ``round_s + 2 k message_s`` a round, which two values of k
    separate; the time of 64 B on the wire is negligible.
    """
    processors, hosts = usable_threads(), range(n_nodes)
    busy_s = {}
    for k in _MESSAGES:
        sends = product(hosts, range(k))
        moves = [(host, (host + 1) % n_nodes, (host * k + i) * _SHORT, _SHORT, 0) for host, i in sends]
        exchange = {"strategy": "rounds", "collective": "all-reduce", "n_ranks": n_nodes, "root": 0}
        exchange["stands"] = [{"name": f"host{i}", "kind": "gpu", "host": i, "index": 0} for i in hosts]
        exchange |= {"n_elements": n_nodes * k * _SHORT, "rounds": [moves] * _ROUNDS}
        asked = "rounds", n_nodes, 0
        crew.run(operations.prepare, asked, exchange, timeout_s=60)
        times = [_go(crew, asked, 60, sums=False) for _ in range(1 + _TIMES)][1:]
        busy_s[k] = median(times) / _ROUNDS * min(processors, n_nodes) / n_nodes
    few, many = _MESSAGES
    message_s = max(0.0, (busy_s[many] - busy_s[few]) / (2 * (many - few)))
    return MessageCosts(message_s, max(0.0, busy_s[few] - 2 * few * message_s), processors, is_measured=True)


def _go(crew: RankProcesses, case: tuple[str, int, int], within_s: float, *, sums: bool = True) -> float:
    answers = crew.run(operations.go, case, time.monotonic() + _LEAD_S, timeout_s=within_s)[: case[1]]
    for host, (_, _, right) in enumerate(answers):
        if sums and not right:
            raise WorkerFailed(f"the result of {case[0]} on host {host} is wrong")
    return float(max(ended_s for _, ended_s, _ in answers) - min(began_s for began_s, _, _ in answers))


def run_cases(
    names: RunNames,
    cases: Sequence[ClusterCase],
    about_s: Sequence[float],
    exchange: Callable[[ClusterCase], Plan],
    into: ClusterResults,
    advance: Callable[[str], None],
    *,
    repeats: int,
    budget_s: float,
) -> None:
    """Measure *cases* into *into* and always remove the network; raises CommandFailed or WorkerFailed.

    *exchange* returns what a case's hosts send and add, None for torch's collective.  Links are shaped before the hosts
    start, as a connection keeps its packet length.  Cases share the budget by *about_s*, their predicted times.
    """
    counts = sorted({case.n_nodes for case in cases})
    share = budget_s / max(sum(about_s), 1e-9)
    addresses = [names.address(host) for host in range(counts[-1])]
    network = HostNetwork(names, counts[-1])
    try:
        with network:
            for shape in dict.fromkeys(case.shape for case in cases):
                network.shape(shape)
                with _workers(names, counts[-1]) as crew:
                    into.versions.update(crew.run(operations.start, addresses, counts, timeout_s=_START_S)[0])
                    into.versions["packets"] = "in order" if network.is_steered else "may overtake each other"
                    into.costs[shape] = message_costs(crew, counts[-1])
                    into.probes[shape] = probe(crew, shape, counts[-1])
                    for case, about in zip(cases, about_s, strict=True):
                        if case.shape == shape:
                            how: dict[str, Any] = {"repeats": repeats, "spend_s": share * about, "about_s": about}
                            into.times[case] = measure_case(crew, case, exchange(case), **how)
                            advance(f"{case.n_nodes} nodes, {case.strategy.name}")
    finally:  # in case an interrupt cut the context exit short; a second one is ignored (removed_on_signals)
        network.remove()
