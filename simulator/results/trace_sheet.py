"""The slices and counters of a Chrome trace, and its text in Kineto's format, for Perfetto.

It has one process for each device and host thread, one thread for each stream, an ``X`` slice for each piece of work
and a counter in GB/s for each link.  Times are whole nanoseconds, written in microseconds with three decimals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from simulator.engine.timeline import Span
from simulator.network.machine import Machine
from simulator.records import dataclass
from simulator.topology.parts import GpuPart


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of the thread named ``track`` in the process ``pid``."""

    pid: int
    track: str
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class Sheet:
    """The slices and counters of a trace of *machine*, before threads are numbered."""

    def __init__(self, machine: Machine, critical: frozenset[int] = frozenset()) -> None:
        self.machine = machine
        self.critical = critical  # tasks on the critical path
        self.slices: list[Slice] = []
        self.rates: dict[int, list[tuple[int, float]]] = {}  # link -> changes in GB/s
        self.memory: list[tuple[int, float]] = []  # of the first GPU: times, and GB from then on
        nodes = [*machine.gpus, *(node.index for node in machine.nodes if node.index not in set(machine.gpus)), -1]
        self._pids = {node: pid for pid, node in enumerate(nodes)}

    def add(
        self, node: int, track: str, name: str, category: str, start_s: float, end_s: float, args: dict[str, Any]
    ) -> None:
        """Add a slice of the process of *node* (-1: the host thread)."""
        drawn = nanoseconds(start_s), nanoseconds(end_s)
        args = {**args, "critical": True} if args.get("task") in self.critical else args
        self.slices.append(Slice(self._pids[node], track, name, category, *drawn, args))

    def add_rate(self, link: int, start_s: float, end_s: float, rate: float) -> None:
        """Add *rate* in GB/s to the counter of *link*, from one time to another."""
        changes = self.rates.setdefault(link, [])
        changes += [(nanoseconds(start_s), rate), (nanoseconds(end_s), -rate)]

    def text(self, name: str, n_ranks: int = 1) -> str:
        """Return the trace as JSON text; equal sheets give equal text."""
        events = [*_thread_events(self, self.machine, self._pids)]
        held = dict(self.memory).items()
        events += [_counter("memory in use GB", 0, at_ns, {"GB": round(size, 6)}) for at_ns, size in held]
        events += _counter_events(self, self.machine, self._pids)
        head = {
            "schemaVersion": 1,
            "deviceProperties": [_properties(self.machine, i) for i in range(len(self.machine.gpus))],
            "distributedInfo": {"backend": "simulated", "rank": 0, "world_size": n_ranks},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 0,
            "traceName": name,
        }
        body = ",\n".join(events)
        return json.dumps(head)[:-1] + ', "traceEvents": [\n' + body + "\n]}\n"


def is_drawn(span: Span) -> bool:
    """Whether *span* lasts long enough to be drawn."""
    return nanoseconds(span.start_s) < nanoseconds(span.end_s)


def _thread_events(sheet: Sheet, machine: Machine, pids: dict[int, int]) -> Iterator[str]:
    """Yield names and slices; overlapping slices of one thread are moved to threads of their own."""
    names = {pid: machine.nodes[node].name if node >= 0 else "host" for node, pid in pids.items()}
    tracks: dict[int, dict[str, list[Slice]]] = {}
    for item in sheet.slices:
        tracks.setdefault(item.pid, {}).setdefault(item.track, []).append(item)
    counted = {pids[machine.links[link].src] for link in sheet.rates}
    for pid in sorted({*tracks, *counted}):
        yield _metadata("process_name", pid, 0, {"name": names[pid]})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        tid = 0
        for track, items in tracks.get(pid, {}).items():
            for i, lane in enumerate(_lanes(items)):
                tid += 1
                yield _metadata("thread_name", pid, tid, {"name": track if i == 0 else f"{track} ({i + 1})"})
                yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
                for item in lane:
                    yield _written(item, tid)


def _lanes(items: list[Slice]) -> list[list[Slice]]:
    lanes: list[list[Slice]] = []
    for item in sorted(items, key=lambda s: (s.start_ns, s.end_ns)):
        lane = next((lane for lane in lanes if lane[-1].end_ns <= item.start_ns), None)
        if lane is None:
            lanes.append([item])
        else:
            lane.append(item)
    return lanes


def _counter_events(sheet: Sheet, machine: Machine, pids: dict[int, int]) -> Iterator[str]:
    for link in sorted(sheet.rates):
        name = f"link {machine.links[link].name} GB/s"
        pid = pids[machine.links[link].src]
        changes: dict[int, float] = {}
        for at_ns, change in sheet.rates[link]:
            changes[at_ns] = changes.get(at_ns, 0.0) + change
        rate, shown = 0.0, -1.0
        for at_ns in sorted(changes):
            rate += changes[at_ns]
            value = round(rate, 6) + 0.0
            if value != shown:
                shown = value
                yield _counter(name, pid, at_ns, {"GB/s": abs(value)})


def _counter(name: str, pid: int, at_ns: int, args: dict[str, float]) -> str:
    head = json.dumps({"ph": "C", "name": name, "pid": pid, "tid": 0})[:-1]
    return f'{head}, "ts": {_us(at_ns)}, "args": {json.dumps(args)}}}'


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args})


def _written(item: Slice, tid: int) -> str:
    head = json.dumps({"ph": "X", "cat": item.category, "name": item.name, "pid": item.pid, "tid": tid})[:-1]
    span = f'"ts": {_us(item.start_ns)}, "dur": {_us(item.end_ns - item.start_ns)}'
    return f'{head}, {span}, "args": {json.dumps(item.args)}}}'


def _properties(machine: Machine, gpu: int) -> dict[str, Any]:
    node = machine.nodes[machine.gpus[gpu]]
    part = node.part
    properties: dict[str, Any] = {"id": gpu, "name": part.description or node.name}
    if isinstance(part, GpuPart):
        if part.memory_size:
            properties["totalGlobalMem"] = int(part.memory_size)
        if part.compute_capability:
            major, minor = part.compute_capability.split(".")
            properties |= {"computeMajor": int(major), "computeMinor": int(minor)}
        if part.sm_count:
            properties["numSms"] = part.sm_count
    return properties


def nanoseconds(seconds: float) -> int:
    """Return *seconds* in whole nanoseconds."""
    return round(seconds * 1e9)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
