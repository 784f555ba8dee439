"""A step as a Chakra execution trace: what each rank runs, with the durations of its timeline (docs/chakra.md)."""

import json
from collections.abc import Iterator, Mapping, Sequence

from simulator.engine.timeline import Span, Timeline
from simulator.errors import InputError
from simulator.plan.plan import Activity
from simulator.programs.chakra import MOST_NODES, ChakraNode, Kind, written_rank
from simulator.records import replace
from simulator.training.worker import ON_CPU, TO_CPU, TO_GPU, CollectiveLabel, HostLabel, LaunchLabel

_STAGES: Mapping[str, Kind] = {TO_CPU: "store", ON_CPU: "host", TO_GPU: "load"}


def chakra_files(timeline: Timeline, nodes: Sequence[int], streams: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a trace by the end of their names: one a rank (``.0.et``), and the groups (``.json``).

    - ``nodes``: the node of each rank; *streams*: the beginning of the names of its streams.

    Raises InputError for a step that has no such form, or too many nodes.
    """
    trace = _Trace(timeline, nodes, streams)
    for task, span in timeline.ran():
        trace.add(task, span)
    files = {f".{rank}.et": written_rank(written) for rank, written in enumerate(trace.ranks)}
    groups = {name: list(ranks) for ranks, name in trace.names.items()}
    return {**files, ".json": json.dumps(groups, indent=2).encode() + b"\n"}


class _Trace:
    def __init__(self, timeline: Timeline, nodes: Sequence[int], streams: Sequence[str]) -> None:
        self.ranks: list[list[ChakraNode]] = [[] for _ in nodes]
        self.names: dict[tuple[int, ...], str] = {}  # of the groups
        self._rank = {node: rank for rank, node in enumerate(nodes)}
        self._streams = streams
        self._ids: list[dict[int, list[int]]] = [{} for _ in nodes]  # by rank: the numbers of each task's nodes
        self._last: list[dict[str, int]] = [{} for _ in nodes]  # by rank: the last task of each stream
        self._free = 2 * len(timeline.plan.tasks)
        if (count := len(timeline.plan.tasks) * len(nodes)) > MOST_NODES:
            raise InputError(f"the trace would have some {count:,} nodes; up to {MOST_NODES:,} are written")

    def add(self, task: Activity, span: Span) -> None:
        found = dict(self._nodes(task, span))
        known = any if isinstance(task.about, CollectiveLabel) else all  # ranks that exchange wait for each other
        if not all(known(other in self._ids[rank] for rank in found) for other in task.after):
            self._meet(task.after)
        for rank, own in found.items():
            after = list(task.after)
            if task.stream in self._last[rank]:
                after.append(self._last[rank][task.stream])
            self._last[rank][task.stream] = task.id
            needs = tuple(sorted({n for other in after for n in self._ids[rank].get(other, ())}))
            self.ranks[rank] += [replace(node, id=2 * task.id + i, after=needs) for i, node in enumerate(own)]
            self._ids[rank][task.id] = [2 * task.id + i for i in range(len(own))]

    def _meet(self, tasks: Sequence[int]) -> None:
        """Add a barrier of all ranks after *tasks*, for which each then stands on all of them."""
        group = self._name(tuple(range(len(self.ranks))))
        for rank, ids in enumerate(self._ids):
            needs = tuple(sorted({n for other in tasks for n in ids.get(other, ())}))
            self.ranks[rank].append(ChakraNode(self._free, "barrier", "exchange", needs, size_bytes=4.0, group=group))
            ids.update((other, [self._free]) for other in tasks)
        self._free += 1

    def _nodes(self, task: Activity, span: Span) -> Iterator[tuple[int, list[ChakraNode]]]:
        """Yield the ranks that run *task*, each with its nodes, whose numbers are open."""
        about, seconds = task.about, span.length_s
        if isinstance(about, CollectiveLabel):
            yield from self._exchanged(task, about)
            return
        kind: Kind = "compute"
        size = flop = 0.0
        if isinstance(about, HostLabel):
            if about.stage not in _STAGES:
                raise InputError(f"{about.stage}: a Chakra trace has no form for this of a step")
            kind, size = _STAGES[about.stage], about.size_bytes
        elif isinstance(about, LaunchLabel):
            kind = "host" if about.on_host else "compute"
            if not about.on_host:
                flop = sum(cost.flop for cost in about.issue.work.costs)
                size = sum(cost.bytes for cost in about.issue.work.costs)
        elif task.stream.rpartition("/")[2] == "host":
            kind = "host"
        node = ChakraNode(0, task.label, kind, duration_s=seconds, size_bytes=size, flop=flop)
        begin = task.stream[: task.stream.rfind("/") + 1]
        yield from ((rank, [node]) for rank, own in enumerate(self._streams) if begin in ("", own))

    def _exchanged(self, task: Activity, about: CollectiveLabel) -> Iterator[tuple[int, list[ChakraNode]]]:
        for nodes in (nodes for bundle in about.among for nodes in bundle.all_nodes()):
            ranks = tuple(self._rank[node] for node in nodes)
            whole = ChakraNode(0, about.op, "exchange", op=about.op, size_bytes=about.size_bytes)
            if about.op != "send-recv":
                each = about.size_bytes / (len(ranks) if about.op == "all-gather" else 1)
                named = replace(whole, group=self._name(ranks), size_bytes=each)
                yield from ((rank, [named]) for rank in ranks)
            elif task.label == "send":  # between stages
                src, dst = ranks if task.stream.startswith(self._streams[ranks[0]]) else ranks[::-1]
                yield src, [replace(whole, kind="send", peer=dst)]
                yield dst, [replace(whole, kind="receive", peer=src)]
            else:  # round a ring
                for place, rank in enumerate(ranks):
                    to, of = ranks[(place + 1) % len(ranks)], ranks[place - 1]
                    yield rank, [replace(whole, kind="send", peer=to), replace(whole, kind="receive", peer=of)]

    def _name(self, ranks: tuple[int, ...]) -> str:
        return self.names.setdefault(ranks, str(len(self.names)))
