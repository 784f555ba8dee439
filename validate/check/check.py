"""An nccl-tests log against the simulator's expectation: healthy or not, and possible explanations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from simulator.api import Session
from simulator.api.faulty import faulty_machines
from simulator.errors import Fault, InputError, one_line
from simulator.network.circumstances import machine_of
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import NCCL_TODAY, SlowLink, Software, Where
from simulator.topology.load import load_topology
from simulator.workload.collective import bus_factor
from validate.check.healthy import Healthy, healthy_range, is_large
from validate.importing.nccl_tests import NcclLog, Point
from validate.machine.describe.graphics import Card, part_of

__all__ = ["VARIATIONS", "Checked", "Compared", "Explanation", "Verdict", "check"]

Verdict = Literal["healthy", "slow", "faster"]
VARIATIONS = 19  # approximate number, for progress bars
_MOST_SIZES = 10  # sizes at which variations are simulated
_HALVED = 0.5  # largest error with an explanation, relative to the error without
_LOWERED = 0.9  # the same if the log is healthy with it
_UNLIKE = 0.15  # smaller errors need no explanation
_ALIKE = 0.06  # for a healthy log, largest remaining error of an explanation worth reporting
_SAME = 0.02  # smaller relative differences in time count as none
_ALGORITHMS = ("ring", "tree", "nvls")
_PROTOCOLS = ("LL", "LL128", "Simple")
_ERAS = ((2, 18), NCCL_TODAY)
_NEAR = 0.95  # of the fastest healthy time; slightly faster is still healthy
_DIP = 1.3  # a dip takes this many times longer, relative to expectation, than the neighbouring sizes


@dataclass(frozen=True, slots=True)
class Compared:
    """One size: measured and expected seconds, the healthy range, and whether it is one of the largest sizes."""

    size_bytes: int
    measured_s: float
    expected_s: float
    fastest_s: float
    slowest_s: float
    is_large: bool

    @property
    def ratio(self) -> float:
        """Measured over expected time."""
        return self.measured_s / self.expected_s


@dataclass(frozen=True, slots=True)
class Explanation:
    """A possible fault in words, the error that remains with it, and its predicted seconds by size.

    ``error`` is the root mean square of log(measured / predicted), as a relative error.
    """

    words: str
    error: float
    time_s: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked log.

    ``ratios`` holds the median of measured over expected time and its healthy range, for the largest sizes (True) and
    for the others (False); either may be absent.  ``tried`` is the number of variations simulated.  ``mismatch`` says
    that the log ran on other GPUs than the topology has, which would explain everything; empty if it did not.
    """

    log: NcclLog
    machine: str
    question: CollectiveQuestion
    rows: tuple[Compared, ...]
    ratios: tuple[tuple[bool, float, Healthy], ...]
    verdict: Verdict
    explanations: tuple[Explanation, ...]
    tried: int
    remarks: tuple[str, ...]
    mismatch: str = ""

    def busbw_bps(self, size_bytes: float, time_s: float) -> float:
        """Return the bus bandwidth of *size_bytes* exchanged in *time_s*, in B/s."""
        return size_bytes / time_s * bus_factor(self.log.collective, self.log.n_ranks)


def check(
    session: Session,
    log: NcclLog,
    topology: str,
    *,
    nodes: int | None = None,
    fabric: str | None = None,
    nccl: tuple[int, int] | None = None,
    explains: bool = True,
    step_done: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Compare *log* with the prediction for *nodes* nodes of *topology*, by default as many as the log has hosts.

    With *explains*, faults of the machine are tried that would explain the times; *step_done* is called before each
    simulated size and variation.

    Raises InputError if the machine cannot have run the log, or if the exchange cannot be predicted or judged.
    """
    where, gpus = _where(session, log, topology, nodes, fabric)
    several = len({session.machine(where).nodes[node].host for node in session.group(where, gpus).ranks}) > 1
    question = CollectiveQuestion(
        where=where,
        collective=log.collective,
        size_bytes=0.0,
        gpus=gpus,
        gpus_per_process=1 if several else max(1, log.gpus_per_thread),
        dtype=log.dtype,
        reduction=log.reduction,
        software=Software(nccl=nccl or log.nccl or NCCL_TODAY),
    )
    rows, ranges = [], []
    for point in log.points:
        step_done("expected")
        asked = replace(question, size_bytes=float(point.size_bytes))
        expected_s, large = session.time_s(asked), is_large(point.size_bytes, log.points[-1].size_bytes)
        band = healthy_range(session.composed(asked))
        ranges.append(band)
        fastest_s, slowest_s = expected_s * band.fastest, expected_s * band.slowest
        rows.append(Compared(point.size_bytes, _measured_s(point), expected_s, fastest_s, slowest_s, large))
    ratios = []
    for large in (True, False):
        mine = [row.ratio for row in rows if row.is_large == large]
        if mine:
            of_size = [each for each, row in zip(ranges, rows, strict=True) if row.is_large == large]
            ratios.append((large, statistics.median(mine), sorted(of_size)[len(of_size) // 2]))
    verdict: Verdict = "healthy"
    if _is_slow([row.ratio for row in rows], rows):
        verdict = "slow"
    elif ratios[0][1] < _NEAR * ratios[0][2].fastest:
        verdict = "faster"
    found: tuple[Explanation, ...] = ()
    tried = 0
    if explains and verdict != "faster":
        found, tried = _explained(session, question, rows, step_done)
    if verdict == "healthy":
        found = tuple(each for each in found if each.error <= _ALIKE)
    parts = {node.part_name for node in session.machine(where).nodes if node.kind == "gpu"}
    remarks = tuple(_remarks(log, question, rows))
    name, mismatch = session.machine(where).name, _mismatch(log, parts)
    return Checked(log, name, question, tuple(rows), tuple(ratios), verdict, found, tried, remarks, mismatch)


def _measured_s(point: Point) -> float:
    """Return the out-of-place time in seconds, or the in-place time if that was not measured."""
    return point.in_s if math.isnan(point.out_s) else point.out_s


def _where(
    session: Session, log: NcclLog, topology: str, nodes: int | None, fabric: str | None
) -> tuple[Where, tuple[int, ...] | None]:
    """Return the machine of the log, and the GPUs that took part, None for all; raises InputError."""
    whole = load_topology(topology)
    if nodes is None and whole.n_nodes == 1 and log.hosts > 1:
        nodes = log.hosts
    where = Where(topology, nodes, fabric)
    machine = session.machine(where)
    hosts = max(1, machine.n_hosts)
    taking = log.hosts or min(hosts, log.n_ranks)
    each = len(machine.gpus) // hosts
    if log.n_ranks % taking or taking > hosts or log.n_ranks // taking > each:
        per = f"{log.n_ranks} ranks on {taking} host{'s' if taking > 1 else ''}"
        has = f"{hosts} x {each} GPUs" if hosts > 1 else f"{each} GPUs"
        told = f"has {per}, but {one_line(machine.name, 60)} has {has}; --nodes says how many machines"
        raise InputError(Fault(told, log.shown))
    count = log.n_ranks // taking
    local = log.devices if len(log.devices) == count and max(log.devices, default=0) < each else tuple(range(count))
    if taking == hosts and local == tuple(range(each)):
        return where, None
    return where, tuple(host * each + gpu for host in range(taking) for gpu in local)


def _explained(
    session: Session, question: CollectiveQuestion, rows: Sequence[Compared], step_done: Callable[[str], None]
) -> tuple[tuple[Explanation, ...], int]:
    """Return the variations that explain the measured times, the best first, and the number tried.

    A variation explains them if it leaves at most half of the error, or less of it and the log would be healthy on such
    a machine.  None is tried if the times are as expected and the log is not slow.
    """
    measured = [row.ratio for row in rows]
    if _error(measured) < _UNLIKE and not _is_slow(measured, rows):
        return (), 0
    step = max(1, -(-len(rows) // _MOST_SIZES))
    some = rows[::-1][::step][::-1]
    error = _error([row.ratio for row in some])
    found = []
    tried = 0
    for words, asked in _variations(session, question):
        step_done(words)
        times = []
        try:
            times = [session.time_s(replace(asked, size_bytes=float(row.size_bytes))) for row in some]
        except InputError:
            continue
        tried += 1
        ratios = [row.measured_s / time_s for row, time_s in zip(some, times, strict=True)]
        if all(abs(time_s / row.expected_s - 1.0) < _SAME for row, time_s in zip(some, times, strict=True)):
            continue
        left = _error(ratios)
        cures = left <= _LOWERED * error and _is_slow([row.ratio for row in some], some) and not _is_slow(ratios, some)
        if left <= _HALVED * error or cures:
            pairs = tuple((row.size_bytes, time_s) for row, time_s in zip(some, times, strict=True))
            found.append(Explanation(words, math.expm1(left), pairs))
    return tuple(sorted(found, key=lambda each: (round(each.error, 6), each.words))), tried


def _is_slow(ratios: Sequence[float], rows: Sequence[Compared]) -> bool:
    """Return whether most of *ratios*, one a row, are beyond the healthy range at the largest or the other sizes."""
    for large in (True, False):
        mine = [
            ratio * row.expected_s / row.slowest_s
            for ratio, row in zip(ratios, rows, strict=True)
            if row.is_large == large
        ]
        if mine and statistics.median(mine) > 1.0:
            return True
    return False


def _error(ratios: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(math.log(ratio) ** 2 for ratio in ratios))


def _variations(session: Session, question: CollectiveQuestion) -> Iterator[tuple[str, CollectiveQuestion]]:
    """Yield possible faults: links, adapters, settings, the NCCL version."""
    where = question.where
    topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
    for words, changed in faulty_machines(topology):
        there = replace(where, topology=f"{where.topology} with {words}")
        try:
            session.know(there, machine_of(changed))
        except InputError:
            continue
        yield words, replace(question, where=there)
    for words, link in _slow_links(session, where):
        yield words, replace(question, where=replace(where, slow_links=(link,)))
    if question.in_switch:
        yield "NVLS off (NCCL_NVLS_ENABLE, no multicast memory)", replace(question, reduction="prod")  # in no switch
    for algorithm in _ALGORITHMS:
        yield f"the algorithm {algorithm} (NCCL_ALGO, a tuner's choice)", replace(question, algorithm=algorithm)
    for protocol in _PROTOCOLS:
        yield f"the protocol {protocol} (NCCL_PROTO, a tuner's choice)", replace(question, protocol=protocol)
    for version in _ERAS:
        if version != question.software.nccl:
            words = f"NCCL {version[0]}.{version[1]} in place of {'.'.join(map(str, question.software.nccl))}"
            yield words, replace(question, software=replace(question.software, nccl=version))


def _slow_links(session: Session, where: Where) -> Iterator[tuple[str, SlowLink]]:
    """Yield a slow or missing link of each kind at GPUs and adapters; other links of a kind have the same effect."""
    machine = session.machine(where)
    seen = set()
    for link in machine.links:
        first, second = machine.nodes[link.src], machine.nodes[link.dst]
        kinds = first.kind, second.kind
        ends = f"{first.name}-{second.name}"
        if first.host != 0 or (*kinds, link.kind, link.count) in seen:
            continue
        if kinds == ("gpu", "gpu"):
            yield f"the links of two GPUs down, as {ends}", SlowLink(ends, 0.0)
        elif kinds == ("gpu", "nvlink-switch"):
            yield f"half of the links of one GPU down, as {ends}", SlowLink(ends, 0.5)
        elif kinds in (("nic", "network-switch"), ("gpu", "pcie-switch"), ("gpu", "cpu")):
            yield f"one link at a quarter of its rate, as {ends}", SlowLink(ends, 0.25)
        else:
            continue
        seen.add((*kinds, link.kind, link.count))


def _mismatch(log: NcclLog, parts: set[str]) -> str:
    ran_on = part_of(Card(log.gpu)) if log.gpu else None
    if ran_on is None or ran_on in parts:
        return ""
    return f"the log ran on {log.gpu}, where the topology has {', '.join(sorted(parts))}"


def _remarks(log: NcclLog, question: CollectiveQuestion, rows: Sequence[Compared]) -> Iterator[str]:
    if any(point.wrong for point in log.points):
        yield "results are wrong at some sizes (#wrong): look for faulty links or memory before anything else"
    uneven = [
        middle.size_bytes
        for before, middle, after in zip(rows, rows[1:], rows[2:], strict=False)
        if middle.ratio > _DIP * max(before.ratio, after.ratio)
    ]
    if uneven:
        sizes = ", ".join(_binary(size) for size in uneven[:6])
        yield f"dips at {sizes}: other jobs, or a network that drops packets; measure again with more iterations (-n)"
    if log.settings:
        shown = ", ".join(one_line(each, 60) for each in log.settings[:6])
        yield f"the log sets {shown}; what is expected knows of no settings"
    if log.nccl is None:
        yield f"the log names no version of NCCL; {'.'.join(map(str, question.software.nccl))} is taken (--nccl)"
    if not log.hosts:
        yield f"the log lists no devices; {log.n_ranks} GPUs of {question.where.nodes or 1} machine(s) are taken"


def _binary(n_bytes: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.3g} {unit}"
    return f"{n_bytes:.0f} B"
