"""Measure all cases on a network that exists only meanwhile: what each host runs, and who directs them.

A process with torch enters a host's namespace (:func:`begin`) and follows the controller: ``start`` makes the groups,
``prepare`` allocates buffers once, ``go`` runs an operation at a time of the shared clock, and checks its sum.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from simulator.errors import TopocastError, one_line
from validate.machine.cluster.cases import LEAST_REPEATS, ClusterCase, ClusterResults, MessageCosts
from validate.machine.cluster.network import HOST_INTERFACE, HostNetwork, LinkShape, RunNames
from validate.machine.measure.exchange import OverRanks, read_exchange
from validate.machine.measure.host import usable_threads
from validate.machine.measure.ranks import RankProcesses, RanksFailed
from validate.machine.measure.timing import Interval, median_interval

_PROBE_PORT = 29602
_ELEMENT_BYTES = 4  # fp32, as gradients are
_PR_SET_PDEATHSIG, _CLONE_NEWNET = 1, 0x40000000  # linux/prctl.h, linux/sched.h
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


class _ByTorch:
    """torch's all-reduce, or its broadcast from host 0, among the *n* hosts of *group*, as :class:`OverRanks`."""

    def __init__(self, name: str, rank: int, n: int, group: Any, size_bytes: int) -> None:
        self._wanted = 1.0 if name == "broadcast" else n * (n + 1) / 2
        self._tensor = torch.empty(size_bytes // _ELEMENT_BYTES)
        way = partial(dist.broadcast, src=0) if name == "broadcast" else dist.all_reduce
        self.run = partial(way, self._tensor, group=group)
        self.fill = partial(self._tensor.fill_, float(rank + 1))

    def is_right(self) -> bool:
        return bool((self._tensor == self._wanted).all())


class Operations:
    """The operations of host *rank* among *addresses*, with a process group of the first n hosts for each count n."""

    def __init__(self, rank: int, addresses: list[str], node_counts: list[int]) -> None:
        self.rank = rank
        self._addresses = addresses
        self._groups: dict[int, Any] = {n: dist.new_group(list(range(n))) for n in node_counts}
        self._probe = socket.create_server((addresses[rank], _PROBE_PORT))
        self._operation: _ByTorch | OverRanks | None = None  # None: it takes no part

    def prepare(self, strategy: str, n: int, size_bytes: int, exchange: Mapping[str, Any] | None) -> None:
        """Fill the buffers of an *exchange* of the first *n* hosts, or of torch's own *strategy* if None."""
        self._operation = None
        if self.rank >= n:
            return
        if exchange is None:
            self._operation = _ByTorch(strategy, self.rank, n, self._groups[n], size_bytes)
        else:
            self._operation = OverRanks(read_exchange(exchange), self.rank)
        self._operation.fill()

    def run(self) -> tuple[float, bool]:
        """Run the prepared operation once, then refill its buffers; return its end and whether the result is right."""
        if self._operation is None:
            return time.monotonic(), True
        self._operation.run()
        ended_s, right = time.monotonic(), self._operation.is_right()
        self._operation.fill()
        return ended_s, right

    def stream(self, n: int, size_bytes: int) -> None:
        """Send *size_bytes* to the next of *n* hosts, receiving as many; raises ConnectionError if closed early."""
        if self.rank >= n:
            return
        sending = threading.Thread(target=self._send, args=((self.rank + 1) % n, size_bytes), daemon=True)
        sending.start()
        incoming, _ = self._probe.accept()
        with incoming:
            left = size_bytes
            into = bytearray(1 << 18)
            while left:
                count = incoming.recv_into(into, min(left, len(into)))
                if not count:
                    raise ConnectionError("the probe's connection has closed")
                left -= count
        sending.join()

    def _send(self, to: int, size_bytes: int) -> None:
        piece = bytes(1 << 18)
        with socket.create_connection((self._addresses[to], _PROBE_PORT)) as stream:
            for start in range(0, size_bytes, len(piece)):
                stream.sendall(piece[: min(len(piece), size_bytes - start)])


_hosts: list[Operations] = []  # the one of this process, of which the controller asks the functions that follow


def begin(names: RunNames, rank: int) -> None:
    """Enter the namespace of host *rank* with this process, and configure TCP there; raises OSError.

    It dies with the controller; what libraries print is dropped.  It runs at real-time priority where the user may: a
    real host has its processor to itself, and waiting for others would be measured as network time.
    """
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # it has ended meanwhile
        os._exit(1)
    with open(f"/var/run/netns/{names.host(rank)}", encoding="ascii") as namespace:
        if system.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1", encoding="ascii")
    for control in ("cubic", "reno"):  # BBR, the default of some machines, paces by earlier measurements
        with contextlib.suppress(OSError):
            _CONGESTION.write_text(control, encoding="ascii")
            break
    os.environ["GLOO_SOCKET_IFNAME"] = HOST_INTERFACE
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def start(rank: int, _: int, addresses: list[str], node_counts: list[int]) -> dict[str, str]:
    """Make the groups of this host among *addresses*, and return what there is: software and settings by name."""
    torch.set_num_threads(1)  # hosts share this machine's cores
    _hosts.append(Operations(rank, addresses, node_counts))
    control = ""
    with contextlib.suppress(OSError):
        control = _CONGESTION.read_text(encoding="ascii").strip()
    priority = "real time" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary"
    return {"torch": str(torch.__version__), "congestion_control": control, "priority": priority}


def prepare(_: int, __: int, case: tuple[str, int, int], exchange: Mapping[str, Any] | None) -> None:
    """Prepare a *case*: its strategy, its number of hosts and its bytes; as :meth:`Operations.prepare`."""
    _hosts[0].prepare(*case, exchange)


def go(_: int, __: int, case: tuple[str, int, int], at_s: float) -> tuple[float, float, bool]:
    """Run *case* once, from the time *at_s* on; return when it began and ended, and whether the result is right."""
    strategy, n, size_bytes = case
    time.sleep(max(0.0, at_s - time.monotonic()))
    began_s = time.monotonic()
    if strategy != "probe":
        return began_s, *_hosts[0].run()
    _hosts[0].stream(n, size_bytes)
    return began_s, time.monotonic(), True


Plan = dict[str, Any] | None  # what the hosts send and add; None where torch's own collective is measured
_START_S = 180.0


class WorkerFailed(TopocastError):  # noqa: N818  the name says the fault
    """A worker has exited, reported an error, or not answered in time."""


@contextlib.contextmanager
def _workers(names: RunNames, n_hosts: int) -> Iterator[RankProcesses]:
    """Have a worker on each host in the body, then kill them; raises WorkerFailed for what it raises of them."""
    try:
        how: dict[str, Any] = {"begin": partial(begin, names), "called": "the worker of host"}
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
    crew.run(prepare, asked, exchange, timeout_s=within_s)
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
        crew.run(prepare, asked, exchange, timeout_s=60)
        times = [_go(crew, asked, 60, sums=False) for _ in range(1 + _TIMES)][1:]
        busy_s[k] = median(times) / _ROUNDS * min(processors, n_nodes) / n_nodes
    few, many = _MESSAGES
    message_s = max(0.0, (busy_s[many] - busy_s[few]) / (2 * (many - few)))
    return MessageCosts(message_s, max(0.0, busy_s[few] - 2 * few * message_s), processors)


def _go(crew: RankProcesses, case: tuple[str, int, int], within_s: float, *, sums: bool = True) -> float:
    answers = crew.run(go, case, time.monotonic() + _LEAD_S, timeout_s=within_s)[: case[1]]
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
                    into.versions.update(crew.run(start, addresses, counts, timeout_s=_START_S)[0])
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
