"""Measure the cases of the chosen groups within a budget, and save every result, with facts of the machine."""

import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import torch

from validate.machine.measure import case as cases
from validate.machine.measure.bench import Bench, GraphStopwatch, QueuedStopwatch, Readings, open_bench
from validate.machine.measure.case import Case, TimedWork, Unavailable, cases_of
from validate.machine.measure.host import DRIVER, caches, cpu_facts, nvidia_smi, signals_handled, usable_threads
from validate.machine.measure.table import CAPTURED, COLUMNS, RAN_DRY, RowFile, alone_in, write_json
from validate.machine.measure.timing import Effort, Interval, time_call

RECORD = "run.json"
DATASET = "topocast_measure"
DONE, FAILED, INTERRUPTED = 0, 1, 130
_WELL_KNOWN = 0.03  # grade A: half the interval is at most this fraction of the median
_OUT_OF_TIME = "no time left in the budget"
_ALL = "all cases"
_RESERVE_BYTES = 512 << 10
Say = Callable[[str], object]


class Settings(NamedTuple):
    """What to measure, where to write it, and how long it may take."""

    out: Path  # folder of the tables; rows already there are not measured again
    groups: tuple[str, ...] = ()  # names of ``GROUPS``; empty: all that suit the device
    device: str = ""  # ``cuda:0`` or ``cpu``; empty: the first GPU, or else the CPU
    budget_s: float | None = None  # start no case after this many seconds
    machine: str = ""  # name in rows of steps, copies and collectives; empty: the device's
    effort: Effort = Effort()
    load_s: float | None = None  # seconds of a run that shows what the board holds; None: usual ones


@dataclass(slots=True)
class _Queue:
    name: str
    cases: Iterator[Case]
    under_way: Case | None = None
    used_s: float = 0.0
    measured: int = 0


@dataclass(slots=True)
class _Run:
    """The state of a run; it ends at *end_s* by the performance counter."""

    settings: Settings
    bench: Bench
    tables: Mapping[str, RowFile]
    say: Say
    end_s: float
    left: list[dict[str, str]] = field(default_factory=list)

    def leave(self, group: str, case: str, reason: str) -> None:
        self.left.append({"group": group, "case": case, "reason": reason})

    @property
    def remaining_s(self) -> float:
        return self.end_s - time.perf_counter()


def measure(settings: Settings, say: Say | None = None) -> int:
    """Measure, and return the exit status: 0 if done or out of budget, 1 after a fault, 130 if interrupted.

    Each row is on the disk as soon as it is measured; ``run.json`` lists the cases that were not, with reasons.  Raises
    ValueError where settings do not fit the machine or folder, OSError where that is not writable.
    """
    say = say or (lambda text: sys.stderr.write(f"{text}\n") if sys.stderr else None)
    started_s = time.perf_counter()
    for name in settings.groups:
        if name not in cases.GROUPS:
            raise ValueError(f"--only: no group '{name}'; there is {', '.join(cases.GROUPS)}")
    try:
        bench = open_bench(settings.device, settings.out)
        facts = environment(bench)
    except RuntimeError as error:  # for example, all devices are busy, or the driver does not match
        raise ValueError(f"the device cannot be used: {cases.short_line(error)}") from None
    settings.out.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(settings.out):
            return _run(settings, bench, facts, say, started_s)
    except ValueError:
        with suppress(OSError):
            settings.out.rmdir()  # only succeeds if empty
        raise


def _run(settings: Settings, bench: Bench, facts: Mapping[str, Any], say: Say, started_s: float) -> int:
    before = _check_same(settings.out / RECORD, facts)
    tables = _tables(settings.out)
    if settings.machine and before and settings.machine != before and any(map(len, tables.values())):
        raise ValueError(f"{settings.out}: holds rows of machine {before}; name another folder with --out")
    bench = replace(bench, machine=settings.machine or before or bench.name)
    bench = bench if settings.load_s is None else replace(bench, load_s=settings.load_s)
    record: dict[str, Any] = {"schema_version": 1, "finished": False, "date": datetime.now(UTC).date().isoformat()}
    record |= {"machine": bench.machine, "environment": facts, "load_at_start": _load()}
    end_s = float("inf") if settings.budget_s is None else started_s + settings.budget_s
    this = _Run(settings, bench, tables, say, end_s)
    queues = []
    for name in settings.groups or cases.usual_groups(settings.out):
        try:
            queues.append(_Queue(name, cases_of(name, bench)))
        except Unavailable as reason:
            this.leave(name, "", str(reason))
            if len(settings.groups) > 1:  # of one alone it is the error
                say(f"{name}: {reason}")
    if settings.groups and not queues:
        raise ValueError(f"--only: {'; '.join(row['group'] + ': ' + row['reason'] for row in this.left)}")
    # Reserve disk space for the final record; an unnamed file, so that a killed run leaves nothing.
    reserve = TemporaryFile(dir=settings.out)  # noqa: SIM115  closed before the record is written
    reserve.write(bytes(_RESERVE_BYTES))
    reserve.flush()
    write_json(settings.out / RECORD, record)
    end, status = _ALL, DONE
    try:
        with signals_handled(("SIGTERM", "SIGHUP", "SIGALRM"), _stop):  # SIGINT raises KeyboardInterrupt as usual
            _measure(this, queues)
            if this.remaining_s <= 0:
                end = _OUT_OF_TIME
    except cases.Fatal as fault:
        end, status = str(fault), FAILED
    except (KeyboardInterrupt, cases.RunStopped) as signal:
        end, status = f"interrupted{f' by {signal}' if str(signal) else ''}", INTERRUPTED
    with suppress(OSError):
        tables = _tables(settings.out)  # read again: a row may have been completed when a signal arrived
    for queue in queues:
        for case in (*filter(None, (queue.under_way,)), *queue.cases):
            if tables[case.table].find(_asked(this, case)) is None:
                this.leave(queue.name, case.title, end)
    record |= {"finished": end == _ALL, "end": end, "seconds": round(time.perf_counter() - started_s, 1)}
    record |= {"load_at_end": _load(), "rows": {name: len(table) for name, table in tables.items() if len(table)}}
    record["left"] = this.left
    with suppress(OSError):
        reserve.close()
    try:
        write_json(settings.out / RECORD, record)
    except OSError as error:
        say(f"{RECORD} could not be written: {error.strerror}")
        status = FAILED
    _report(this, queues, end)
    return status


def _stop(number: int, _: Any) -> None:
    raise cases.RunStopped(Signals(number).name)


def _tables(out: Path) -> dict[str, RowFile]:
    return {name: RowFile(out / name, columns) for name, columns in COLUMNS.items()}


def _measure(this: _Run, queues: list[_Queue]) -> None:
    waiting = list(queues)
    while waiting and this.remaining_s > 0:
        queue = min(waiting, key=lambda q: q.used_s / cases.GROUPS[q.name].share)
        try:
            case = next(queue.cases, None)
        except Unavailable as unavailable:
            this.leave(queue.name, "", str(unavailable))
            case = None
        if case is None:
            waiting.remove(queue)
            continue
        held = this.tables[case.table].find(_asked(this, case))
        if held is not None:
            case.known(held)
            continue
        if case.needs_s > this.remaining_s:
            this.leave(queue.name, case.title, _OUT_OF_TIME)
            continue
        began_s = time.perf_counter()
        queue.under_way = case
        try:
            this.tables[case.table].add(_row(this, case))
            queue.measured += 1
        except Exception as error:  # torch may raise anything
            reason = cases.failure_words(error)
            if not this.bench.alive():
                raise cases.Fatal(f"the device is lost: {reason}") from error
            this.leave(queue.name, case.title, reason)
        finally:
            with suppress(Exception):
                this.bench.release()
        queue.used_s += time.perf_counter() - began_s
        queue.under_way = None


def _row(this: _Run, case: Case) -> dict[str, Any]:
    bench = this.bench
    if case.needs_bytes > bench.memory_bytes:
        needs, free = case.needs_bytes / 1e9, bench.memory_bytes / 1e9
        raise Unavailable(f"needs {needs:.3g} GB of memory; {free:.3g} GB are free")
    work = case.build(bench)
    bench.settle()
    bench.sensors.take()
    interval, issue = _time(this, work)
    bench.settle()
    readings = bench.sensors.take()
    row = dict(_asked(this, case))
    row |= work.figures(interval) if work.figures is not None else {"time_s": interval.median}
    row |= _known(case, interval, readings)
    if "issue" in COLUMNS[case.table]:
        row.setdefault("issue", issue)
    elif issue == "graph":
        row["note"] = "; ".join(filter(None, (row["note"], CAPTURED)))
    return row


def _time(this: _Run, work: TimedWork) -> tuple[Interval, str]:
    if work.own is not None:
        return work.own(), ""
    effort = this.settings.effort
    effort = effort._replace(longest_s=max(0.05, min(effort.longest_s, this.remaining_s)))
    how: dict[str, Any] = {"at_least": work.at_least, "hard": work.hard}
    if work.watch is not None:
        watch, issue = work.watch, "queued" if isinstance(work.watch, QueuedStopwatch) else ""
    elif work.mode == "graph" and this.bench.is_cuda:
        try:
            return time_call(GraphStopwatch(this.bench), work.call, effort, **how), "graph"
        except RuntimeError as error:
            cases.failure_words(error)  # raises Fatal where the device is lost
            torch.cuda.synchronize()
        # Work that cannot be captured is issued call by call into a blocked stream.
        watch, issue = QueuedStopwatch(this.bench), "queued"
    else:
        watch, issue = this.bench.stopwatch(), work.mode
    return time_call(watch, work.call, effort, one_by_one=work.mode == "single", **how), issue


def _asked(this: _Run, case: Case) -> dict[str, Any]:
    columns = COLUMNS[case.table]
    where = {"machine": this.bench.machine, "device": this.bench.name, "dataset": DATASET}
    return {name: value for name, value in where.items() if name in columns} | dict(case.columns)


def _known(case: Case, interval: Interval, readings: Readings) -> dict[str, Any]:
    relative, note = interval.relative, str(case.columns.get("note", ""))
    found: dict[str, Any] = {"interval": round(relative, 5) if relative != float("inf") else None}
    found |= {"samples": interval.samples, **readings._asdict(), "source": "measured"}
    found["software"] = ", nccl ".join(filter(None, (f"torch {torch.__version__}", nccl_version())))
    is_good = relative <= _WELL_KNOWN and not interval.ran_dry and not readings.held_back
    said = filter(None, (note, RAN_DRY if interval.ran_dry else ""))
    return {**found, "trust": "A" if is_good else "B", "note": "; ".join(said)}


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _check_same(path: Path, facts: Mapping[str, Any]) -> str:
    """Return the machine name in the record *path*, empty without; raises ValueError for another device or torch."""
    if not path.exists():
        return ""
    try:
        record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}  # a pipe has no end
        before, machine = dict(record["environment"]), str(record.get("machine", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{path}: is not a record of a run; name another folder with --out") from None
    for name in SAME:
        if before.get(name) != facts.get(name):
            held = f"{path.parent}: holds measurements with {name} {before.get(name)}"
            raise ValueError(f"{held}, and here it is {facts.get(name)}; name another folder with --out")
    return machine


def _report(this: _Run, queues: list[_Queue], end: str) -> None:
    for queue in queues:
        left = Counter(row["reason"] for row in this.left if row["group"] == queue.name)
        waiting = left.pop(end, 0)
        text = f"{queue.name}: {queue.measured} measured in {queue.used_s:.0f} s"
        text += f", {waiting} not begun" if waiting else ""
        this.say(f"{text}, {left.total()} could not be" if left else text)
        for reason, count in sorted(left.items()):
            this.say(f"  {count} x {reason}")
    if end != _ALL:
        this.say(f"ended: {end}")


SAME = ("device", "driver", "torch", "cuda", "threads", "cores", "power_limit_W", "mig")
"""Facts that two runs must share to put their rows in one table."""

Facts = dict[str, Any]
_SETTINGS = "--query-gpu=ecc.mode.current,mig.mode.current,persistence_mode,compute_mode,vbios_version"
_MIG = ("--query-gpu=mig.mode.current", "--format=csv,noheader")


def environment(bench: Bench) -> dict[str, Any]:
    """Return the facts about the machine that may explain a result; no serial numbers, names, addresses or paths."""
    facts = Facts(device=bench.name, python=platform.python_version(), torch=str(torch.__version__))
    facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts |= Facts(cpu=_cpu(), memory_bytes=None)
    with suppress(ValueError, OSError):
        facts["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    of_libraries = [name for name in sorted(os.environ) if name.startswith(tuple(DRIVER["libraries"]))]
    known = [name for name in of_libraries if not any(word in name for word in DRIVER["private"])]
    facts["variables"] = {name: os.environ[name] for name in known if "/" not in os.environ[name]}
    if bench.is_cuda:
        facts |= _gpu(bench)
        return facts | Facts(power_limit_W=facts["gpu"].get("power_limit_W"), mig=nvidia_smi(*_MIG))
    return facts | Facts(threads=torch.get_num_threads(), cores=facts["cpu"]["usable_cores"])


def _cpu() -> Facts:
    said = cpu_facts()[0]
    flags = set((said.get("flags") or said.get("Features") or "").split())
    cores = int(said["cpu cores"]) if said.get("cpu cores", "").isdecimal() else None
    facts = Facts(model=said.get("model name", platform.processor()), logical_cores=os.cpu_count())
    facts |= Facts(usable_cores=usable_threads(), cores_per_socket=cores, reported_MHz=said.get("cpu MHz"))
    facts["vectors"] = [name for name in ("avx2", "fma", "avx512f", "amx_tile", "sve", "asimd") if name in flags]
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None
    return facts | Facts(torch_threads=torch.get_num_threads(), caches=caches(), numa_nodes=nodes)


def _gpu(bench: Bench) -> Facts:
    properties = torch.cuda.get_device_properties(bench.device)
    gpu = Facts(name=properties.name, count=torch.cuda.device_count())
    gpu["compute_capability"] = f"{properties.major}.{properties.minor}"
    gpu |= Facts(sm_count=properties.multi_processor_count, memory_bytes=properties.total_memory)
    gpu |= {"l2_bytes": bench.cache_bytes, **bench.sensors.limits()}
    driver = nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split("\n", maxsplit=1)[0]
    facts = Facts(driver=driver, cuda=str(torch.version.cuda or torch.version.hip or ""))
    facts |= Facts(cudnn=torch.backends.cudnn.version(), nccl=nccl_version() or None, gpu=gpu)
    settings, links = nvidia_smi(_SETTINGS, "--format=csv"), nvidia_smi("topo", "-m")
    return facts | Facts(settings=settings.splitlines(), links=links.splitlines())


def nccl_version() -> str:
    """Return the version of torch's NCCL; empty without."""
    there = torch.cuda.is_available() and torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return ".".join(map(str, torch.cuda.nccl.version())) if there else ""
