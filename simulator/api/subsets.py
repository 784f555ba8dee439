"""The fastest GPUs of a machine, among sets that its symmetries do not make equal (docs/decisions/results.md)."""

import math
from collections.abc import Callable, Hashable
from contextlib import suppress

from simulator.api.session import Session
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.questions.collective import OF_NCCL, CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, replace
from simulator.training.roles import alone_s_of
from simulator.workload.precision import ELEMENT_BYTES

Chosen = tuple[int, ...]
_Asked = CollectiveQuestion | StepQuestion
_MOST_KINDS = ((16, 48), (64, 12), (10**9, 4))  # GPUs of the machine up to, kinds of sets tried at most
_MOST_STEPS = 3  # simulated in full, chosen by their exchange alone


class Symmetry:
    """The sets of GPUs of a machine, one for each class that colour refinement cannot tell apart."""

    def __init__(self, machine: Machine) -> None:
        self._gpus = machine.gpus
        owned = (machine.memory_bus, machine.fabric)  # a socket's memory bandwidth and a switch's fabric bandwidth
        self._marks: list[Hashable] = []
        for node in machine.nodes:
            resources = (each.get(node.index) for each in owned)
            own = [None if number is None else machine.capacity_Bps[number] for number in resources]
            self._marks.append((node.kind, node.part_name, node.latency_s, *own))
        self._around: list[list[tuple[int, Hashable]]] = [[] for _ in machine.nodes]
        for link in machine.links:
            label = link.kind, link.unit_Bps, link.count, link.latency_s, machine.capacity_Bps[link.resource]
            self._around[link.src].append((link.dst, (label, link.resource in machine.half_duplex)))
            self._around[link.dst].append((link.src, (label, None)))
        # Labels are replaced by numbers, assigned in an order that is the same in every run.
        labels = dict.fromkeys(known for around in self._around for _, known in around)
        numbers = {known: number for number, known in enumerate(labels)}
        self._around = [[(node, numbers[known]) for node, known in around] for around in self._around]
        self._seen: dict[Hashable, int] = {}

    def kinds(self, count: int, most: int, seconds: Callable[[Chosen], float]) -> tuple[list[Chosen], bool]:
        """Return the first set of each class of *count* GPUs, and if all; over *most*, those of fewest *seconds*."""
        found: list[Chosen] = [()]
        is_whole = True
        for size in range(1, count + 1):
            grown: dict[Hashable, Chosen] = {}
            for chosen in found:
                colours = self._colours(chosen)
                tried: set[int] = set()
                for gpu, node in enumerate(self._gpus):
                    if gpu in chosen or colours[node] in tried:
                        continue
                    tried.add(colours[node])
                    larger = tuple(sorted((*chosen, gpu)))
                    kind = tuple(sorted(self._colours(larger)))  # of all nodes
                    grown[kind] = min(larger, grown.get(kind, larger))
            found = sorted(grown.values())
            if len(found) > most:
                is_whole = False
                found = found[:most] if size < 2 else sorted(sorted(found, key=seconds)[:most])
        return found, is_whole

    def _colours(self, chosen: Chosen) -> list[int]:
        marked = {self._gpus[gpu] for gpu in chosen}
        seen: dict[Hashable, int] = self._seen
        colours = [seen.setdefault((mark, i in marked), len(seen)) for i, mark in enumerate(self._marks)]
        count = len(set(colours))
        while True:
            refined: list[int] = []
            for colour, around in zip(colours, self._around, strict=True):
                view = colour, tuple(sorted((label, colours[node]) for node, label in around))
                refined.append(seen.setdefault(view, len(seen)))
            if len(set(refined)) == count:
                return refined
            colours, count = refined, len(set(refined))


@dataclass(frozen=True, slots=True)
class FastestSubset:
    """The fastest ``gpus`` of the ``kinds`` of sets tried; ``is_whole``: no other kinds exist."""

    gpus: Chosen
    kinds: int
    is_whole: bool


def fastest_gpus(
    session: Session, question: _Asked, count: int, tried: Callable[[str], None] = lambda _: None
) -> FastestSubset:
    """Return the *count* GPUs fastest at *question*, lowest first; of each kind one set is tried, up to a limit."""
    exchange_s = _exchange_seconds(session, replace(question, gpus=None), tried)
    machine = session.machine(question.where)
    most = next(kinds for gpus, kinds in _MOST_KINDS if len(machine.gpus) <= gpus)
    kinds, is_whole = Symmetry(machine).kinds(count, most, exchange_s)
    seconds = {chosen: exchange_s(chosen) for chosen in kinds}
    if isinstance(question, StepQuestion) and len(kinds) > 1:
        few = sorted(kinds, key=lambda chosen: _rounded(seconds[chosen]))[:_MOST_STEPS]
        seconds = dict.fromkeys(few, math.inf)
        for chosen in few:
            tried(",".join(map(str, chosen)))
            with suppress(Unsuitable):
                seconds[chosen] = session.step(replace(question, gpus=chosen)).step_time_s
    best = min(seconds, key=lambda chosen: (_rounded(seconds[chosen]), chosen))
    if math.isinf(seconds[best]):
        raise InputError(f"no {count} GPUs of {machine.name} can do it by {question.strategy}")
    return FastestSubset(best, len(kinds), is_whole)


def _exchange_seconds(session: Session, question: _Asked, tried: Callable[[str], None]) -> Callable[[Chosen], float]:
    asked = question
    if isinstance(question, StepQuestion):
        size_bytes = float(session.network(question).trained_count * ELEMENT_BYTES["fp32"])
        same = ("where", "strategy", "servers", "software", *(OF_NCCL if question.strategy == "nccl" else ()))
        asked = CollectiveQuestion(size_bytes=size_bytes, **{name: getattr(question, name) for name in same})
    assert isinstance(asked, CollectiveQuestion)

    def seconds(chosen: Chosen) -> float:
        tried(",".join(map(str, chosen)))
        count, size = len(chosen), asked.group_size
        root, driven = min(asked.root, count - 1), min(asked.gpus_per_process, count)
        pairs = () if any(max(pair) >= count for pair in asked.pairs) else asked.pairs
        size = None if size is None or count % size else size
        part = replace(asked, gpus=chosen, root=root, gpus_per_process=driven, group_size=size, pairs=pairs)
        try:
            exchange_s = session.collective(part).sync_time_s if len(chosen) > 1 else 0.0
        except Unsuitable:
            return math.inf
        return exchange_s + (_alone_s(session, question, chosen) if isinstance(question, StepQuestion) else 0.0)

    return seconds


def _alone_s(session: Session, question: StepQuestion, chosen: Chosen) -> float:
    machine, places = session.machine(question.where), session.places(question.where, question.software)
    if len({node.part_name for node in machine.unlike(machine.gpus)}) == 1:
        return 0.0
    devices = {places.place(node.index).device for node in machine.unlike(machine.gpus[gpu] for gpu in chosen)}
    return max(alone_s_of(device, session.network(question), question) for device in devices)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6e}")
