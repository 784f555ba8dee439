"""Which GPUs of a machine stand alike: sets of them that its symmetries turn into each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from simulator.network.machine import Machine

__all__ = ["Symmetry"]

Chosen = tuple[int, ...]


class Symmetry:
    """The sets of GPUs that a machine has, one of each kind.

    Two sets are of a kind where colour refinement (Weisfeiler and Leman, 1968) cannot tell the machine with the one set
    marked from the machine with the other.  What is alike by a symmetry of the machine is never told apart.
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
        # Labels are compared as numbers, which stand for them in an order that no run changes.
        self._number(label for around in self._around for _, label in around)

    def kinds(self, count: int, most: int, seconds: Callable[[Chosen], float]) -> tuple[list[Chosen], bool]:
        """Return the first set of each kind of *count* GPUs, by number, and whether these are all kinds.

        Sets grow GPU by GPU.  Where there are more than *most* kinds of some size, the *most* with the fewest *seconds*
        go on.
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
        """Return what sets of a kind have in common: how many nodes there are of each colour."""
        return tuple(sorted(self._colours(chosen)))

    def _colours(self, chosen: Chosen) -> list[int]:
        """Return a number for each node, the same for those that stand alike where *chosen* are marked."""
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
        """Return the capacities that are the node's own: a socket's memory, a switch's fabric."""
        resources = machine.memory_bus.get(node), machine.fabric.get(node)
        return [None if number is None else machine.capacity_Bps[number] for number in resources]
