"""An nccl-tests log against the simulator's expectation: healthy or not, and possible explanations."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from simulator.api import Session
from simulator.api.variants import LogQuestion, applied
from simulator.bands import evidence
from simulator.bands.composition import distance
from simulator.errors import Fault, InputError, counted, few, one_line, some
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import NCCL_TODAY, Software, VersionNote, Where
from simulator.records import dataclass, replace
from simulator.topology.load import load_topology
from simulator.topology.parts import GpuPart
from simulator.units import format_binary
from simulator.workload import bus_factor
from validate.check import pace as healthy
from validate.check.causes import Explanations, FaultExplanation, SettingEffect, explained, setting_effects
from validate.check.pace import CheckedLink, sound
from validate.importing.nccl_table import Row
from validate.importing.nccl_tests import NcclLog
from validate.kinds.moves import MAX_RANKS
from validate.machine.describe.driver import named_for

Verdict = Literal["healthy", "slow", "faster", "wrong"]
MOST_JUDGED = 64  # sizes compared; nccl-tests' usual range by powers of two has 31
_ALIKE = 0.06  # for a healthy log, largest remaining error of an explanation worth reporting


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A checked log.

    ``groups`` are the largest sizes and the others; either may be absent.  ``pace`` judges the times, ``wrong`` says
    which results are wrong; the ``verdict`` is then ``wrong``.  ``tried`` counts the causes simulated; ``cliff`` is
    where bandwidth falls and stays low.  ``ignored`` are settings (``NAME=value``) that are not modelled: the verdict
    is as if they were not set.  ``effects`` are what its settings change, and others would; ``uneven`` says where times
    in and out of place, or of equal runs, differ; ``links`` were measured apart.
    """

    log: NcclLog
    machine: str
    question: CollectiveQuestion
    rows: tuple[healthy.SizeComparison, ...]
    groups: tuple[healthy.Sizes, ...]
    pace: healthy.Pace
    wrong: str
    verdict: Verdict
    explanations: tuple[FaultExplanation, ...]
    tried: int
    remarks: tuple[str, ...]
    cliff: healthy.Cliff | None = None
    ignored: tuple[str, ...] = ()
    effects: tuple[SettingEffect, ...] = ()
    uneven: tuple[str, ...] = ()
    links: tuple[CheckedLink, ...] = ()

    def busbw_bps(self, size_bytes: float, time_s: float) -> float:
        """Return the bus bandwidth of *size_bytes* exchanged in *time_s*, in B/s."""
        return size_bytes / time_s * bus_factor(self.log.collective, self.log.n_ranks)


def check_log(
    session: Session,
    log: NcclLog,
    topology: str,
    *,
    nodes: int | None = None,
    fabric: str | None = None,
    gpus: tuple[int, ...] | None = None,
    nccl: tuple[int, int] | None = None,
    links: Sequence[CheckedLink] = (),
    explains: bool = True,
    step_done: Callable[[str], None] = lambda _: None,
) -> CheckedLog:
    """Compare *log* with the prediction for *nodes* nodes of *topology*, by default as many as the log has hosts.

    *gpus* are those that ran, by default as logged.  *links* measured apart that are fast are no causes.  With
    *explains*, causes are tried, and a fault clearly likelier than none makes the log slow; *step_done* is called
    before each simulation.  Raises InputError if the machine cannot have run the log, or the exchange cannot be judged.
    """

    def asked_with(settings: dict[str, str]) -> LogQuestion:
        changed = replace(log, settings=tuple(settings.items()))
        return _question(session, changed, Where(topology, nodes, fabric), gpus, nccl)

    asked = asked_with(dict(log.settings))
    question = asked.question
    rows = []
    points = healthy.evenly(log.points, MOST_JUDGED)
    from_bytes = healthy.large_from([point.size_bytes for point in points])
    for point in points:
        step_done("expected")
        of_size = replace(question, size_bytes=float(point.size_bytes))
        expected_s, band = session.time_s(of_size), healthy.healthy_range(session.composed(of_size))
        in_place, large = math.isnan(point.out_s), point.size_bytes >= from_bytes
        measured_s = point.in_s if in_place else point.out_s
        rows.append(healthy.SizeComparison(point.size_bytes, measured_s, expected_s, band, large, in_place))
    pace = healthy.log_pace(rows)
    causes = Explanations()
    effects = setting_effects(session, asked, rows, asked_with, dict(log.settings)) if explains else ()
    if explains and pace != "faster":
        version = {"version"} if nccl or log.nccl else set()
        fixed = asked.fixed | log.shows | sound(session, question.where, links) | version
        causes = explained(session, asked, rows, fixed, step_done)
        pace = "slow" if causes.is_clear else pace
    machine = session.machine(question.where)
    vendors = {node.part.vendor for node in machine.nodes if isinstance(node.part, GpuPart)}
    found = (each for each in causes.found if pace != "healthy" or each.error <= _ALIKE)
    notes: list[str] = [note for note in session.collective(question).notes if isinstance(note, VersionNote)]
    _, beyond = distance(session.composed(question).facts, evidence())
    if beyond:
        notes.append(f"the healthy range is that of other machines: {', '.join(beyond)}")
    sizes = [format_binary(point.size_bytes) for point in log.points if point.wrong]
    bounds = f"{log.out_of_bounds:,} out of bounds" if log.out_of_bounds else ""
    wrong = f"at {few(sizes, 4)} (#wrong)" if sizes else bounds
    return CheckedLog(
        log=log,
        machine=machine.name,
        question=question,
        rows=tuple(rows),
        groups=tuple(filter(None, ([row for row in rows if row.is_large == large] for large in (True, False)))),
        pace=pace,
        wrong=wrong,
        verdict="wrong" if wrong else pace,
        explanations=tuple(each.named(lambda words: named_for(words, vendors)) for each in found),
        tried=causes.tried,
        remarks=(*_remarks(log, asked, rows, told=gpus is not None), *notes),
        cliff=healthy.cliff_in(rows),
        ignored=asked.ignored,
        effects=effects,
        uneven=tuple(_uneven(points)),
        links=tuple(links),
    )


_UNEVEN = 1.5  # times of the same size that differ by more are no scatter
_UNEVEN_FROM_BYTES = 1 << 20


def _uneven(points: Sequence[Row]) -> Iterator[str]:
    large = [point for point in points if point.size_bytes >= _UNEVEN_FROM_BYTES]
    for what, each in {
        "in place takes longer than out of place": [point.in_s / point.out_s for point in large],
        "out of place takes longer than in place": [point.out_s / point.in_s for point in large],
        "equal runs differ": [point.spread for point in large],
    }.items():
        found = [(ratio, point.size_bytes) for ratio, point in zip(each, large, strict=True) if ratio > _UNEVEN]
        if found:
            most, size = max(found)
            at = f"{format_binary(size)}{f', {len(found)} sizes in all' if len(found) > 1 else ''}"
            yield f"{what}, {most:.1f} times at {at}: other jobs, clocks that change, or one bad run"


def _question(
    session: Session, log: NcclLog, where: Where, gpus: tuple[int, ...] | None, nccl: tuple[int, int] | None
) -> LogQuestion:
    topology, nodes, hosts = where.topology, where.nodes, len(log.per_host)
    if log.n_ranks > MAX_RANKS:
        raise InputError(Fault(f"has {log.n_ranks:,} ranks; at most {MAX_RANKS:,} are checked", log.shown))
    if nodes is not None and nodes > log.n_ranks:
        raise InputError(Fault(f"has {log.n_ranks} ranks, which are on fewer than the {nodes} of --nodes", log.shown))
    if nodes is not None and hosts and gpus is None and nodes != hosts:
        told = f"lists {log.n_ranks:,} ranks on {hosts:,} host{'s' if hosts > 1 else ''}, where --nodes says {nodes:,}"
        raise InputError(Fault(told, log.shown))
    if nodes is None and hosts > 1 and load_topology(topology).n_nodes == 1:
        where = replace(where, nodes=hosts)
    if nccl is not None and log.nccl is not None and nccl != log.nccl:
        named, given = (".".join(map(str, version)) for version in (log.nccl, nccl))
        raise InputError(Fault(f"names NCCL {named}, where --nccl says {given}", log.shown))
    ran = _gpus(session, log, where, gpus)
    several = len({session.machine(where).nodes[node].host for node in session.group(where, ran).ranks}) > 1
    plain = CollectiveQuestion(
        where=where,
        collective=log.collective,
        size_bytes=float(log.points[-1].size_bytes),
        gpus=ran,
        gpus_per_process=1 if several else max(1, log.gpus_per_thread),
        dtype=log.dtype,
        reduction=log.reduction,
        software=Software(nccl=nccl or log.nccl or NCCL_TODAY),
    )
    machine = load_topology(topology, n_nodes=where.nodes, fabric=where.fabric)
    asked = applied(dict(log.settings), machine, plain)
    if asked.topology != machine:
        there = replace(where, topology=f"{topology} with {', '.join(asked.known)}")
        session.know(there, asked.topology)
        asked = replace(asked, question=replace(asked.question, where=there))
    return asked


def _gpus(session: Session, log: NcclLog, where: Where, gpus: tuple[int, ...] | None) -> tuple[int, ...] | None:
    machine = session.machine(where)
    total, name = len(machine.gpus), one_line(machine.name, 60)
    if gpus is not None:
        if max(gpus) >= total:
            told = f"--gpus: {name} has {counted(total, 'GPU')}, 0 to {total - 1}"
            raise InputError(f"{told}; --nodes says how many machines")
        return gpus if gpus != tuple(range(total)) else None
    hosts = max(1, machine.n_hosts)
    taking = len(log.per_host) or min(hosts, log.n_ranks)
    each = total // hosts
    counts = log.per_host or (log.n_ranks // taking,) * taking
    if sum(counts) < log.n_ranks or taking > hosts or max(counts) > each:
        per = f"{log.n_ranks} ranks on {taking} host{'s' if taking > 1 else ''}"
        has = f"{hosts} x {counted(each, 'GPU')}" if hosts > 1 else counted(each, "GPU")
        raise InputError(Fault(f"has {per}, but {name} has {has}; --nodes says how many machines", log.shown))
    listed = bool(log.devices) and all(max(devices) < each for devices in log.devices)
    local = log.devices if listed else [range(count) for count in counts]
    ran = tuple(host * each + gpu for host, devices in enumerate(local) for gpu in sorted(devices))
    return None if ran == tuple(range(total)) else ran


def _remarks(log: NcclLog, asked: LogQuestion, rows: healthy.Sizes, *, told: bool) -> Iterator[str]:
    yield from log.remarks
    if len(rows) < healthy.FEW:
        yield "fewer than three sizes are little to judge by; -b 8 -e 8G -f 2 of nccl-tests measures a range"
    inside = [format_binary(row.size_bytes) for row in rows if row.in_place]
    if inside:
        where = "" if len(inside) == len(rows) else f" at {few(inside, 4)}"
        yield f"times in place are judged{where}: those out of place were not measured (N/A)"
    if len(rows) < len(log.points):
        yield f"{len(rows)} of {len(log.points):,} sizes are compared"
    if sizes := ", ".join([format_binary(size) for size in healthy.dips_in(rows)][:6]):
        yield f"dips at {sizes}: other jobs, or a network that drops packets; measure again with more iterations (-n)"
    for words, settings in (("is taken into account", asked.known), ("is not modelled", asked.unknown)):
        if settings:
            yield f"the log sets {some([one_line(each, 60) for each in settings], 6)}, which {words}"
    if log.nccl is None:
        version = ".".join(map(str, asked.question.software.nccl))
        yield f"the log names no version of NCCL; {version} is taken (--nccl)"
    if not log.per_host and not told:
        machines = asked.question.where.nodes or 1
        of = f"{machines} machines" if machines > 1 else "one machine"
        yield f"the log lists no devices; {log.n_ranks} GPUs of {of} are taken (--gpus 0,1)"
