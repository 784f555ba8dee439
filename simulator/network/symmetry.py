"""Equivalent sets of GPUs: sets that the symmetries of a machine map to each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from simulator.network.machine import Machine

Chosen = tuple[int, ...]


class Symmetry:
    """The sets of GPUs of a machine, one for each class of equivalent sets.

    Two sets are equivalent if colour refinement (Weisfeiler and Leman, 1968) cannot distinguish the machine with one
    set marked from the machine with the other.  Sets that a symmetry of the machine maps to each other are always
    equivalent.
    """

    def __init__(self, machine: Machine) -> None:
        self._gpus = machine.gpus
        self._marks: list[Hashable] = [
            (node.kind, node.part_name, node.latency_s, *self._own(machine, node.index)) for node in machine.nodes
        ]
        self._around: list[list[tuple[int, Hashable]]] = [[] for _ in machine.nodes]
        for link in machine.links:
            label = link.kind, link.unit_Bps, link.count, link.latency_s, machine.capacity_Bps[link.resource]
            self._around[link.src].append((link.dst, (label, link.resource in machine.half_duplex)))
            self._around[link.dst].append((link.src, (label, None)))
        # Labels are replaced by numbers, assigned in an order that is the same in every run.
        self._number(label for around in self._around for _, label in around)

    def kinds(self, count: int, most: int, seconds: Callable[[Chosen], float]) -> tuple[list[Chosen], bool]:
        """Return the first set, by number, of each class of sets of *count* GPUs, and whether these are all classes.

        Sets grow GPU by GPU.  If there are more than *most* classes of some size, only the *most* with the fewest
        *seconds* are continued.
        """
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
                    kind = self._kind(larger)
                    grown[kind] = min(larger, grown.get(kind, larger))
            found = sorted(grown.values())
            if len(found) > most:
                is_whole = False
                found = found[:most] if size < 2 else sorted(sorted(found, key=seconds)[:most])
        return found, is_whole

    def _kind(self, chosen: Chosen) -> Hashable:
        """Return the key of a set's class: the sorted colours of all nodes."""
        return tuple(sorted(self._colours(chosen)))

    def _colours(self, chosen: Chosen) -> list[int]:
        """Return a colour for each node, equal for equivalent nodes when *chosen* are marked."""
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

    def _number(self, labels: Iterable[Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        for label in labels:
            numbers.setdefault(label, len(numbers))
        self._around = [[(node, numbers[label]) for node, label in around] for around in self._around]
        self._seen: dict[Hashable, int] = {}

    @staticmethod
    def _own(machine: Machine, node: int) -> Sequence[Hashable]:
        """Return the node's own capacities: a socket's memory bandwidth and a switch's fabric bandwidth."""
        resources = machine.memory_bus.get(node), machine.fabric.get(node)
        return [None if number is None else machine.capacity_Bps[number] for number in resources]
