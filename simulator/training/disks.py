"""The disks of a machine, over which the state of its ranks is striped: :class:`Disks`."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Part, Work
from simulator.spelling import mention
from simulator.topology.parts import StoragePart


class Disks:
    """The disks of the machine of *rank*, which *n_ranks* ranks use at once; each disk has an equal part of all.

    These are the disks that state both bandwidths; raises InputError if there are none.
    """

    def __init__(self, router: Router, machine: Machine, rank: int, n_ranks: int) -> None:
        nodes = [(node, node.part) for node in machine.nodes_of(machine.locate(rank)[1])]
        self._disks = [
            (node, part.read_bandwidth, part.write_bandwidth)
            for node, part in nodes
            if isinstance(part, StoragePart) and part.read_bandwidth and part.write_bandwidth
        ]
        if not self._disks:
            said = mention("offload_to", "nvme")
            raise InputError(
                f"{said}: {machine.name} has no disk with bandwidths; devices needs for example ssd0: "
                "{part: nvme-gen4} with a link to a CPU"
            )
        self._n_ranks, self._router = n_ranks, router
        self._cpus = [router.nearest_cpu(disk.index) for disk, _, _ in self._disks]

    def parts(self, each_bytes: float, *, writes: bool) -> list[Part]:
        """Return what *each_bytes* of each rank load: every disk by itself, and its links to the nearest CPU."""
        n_bytes = self._n_ranks * each_bytes / len(self._disks)
        found: list[Part] = []
        for (disk, read_Bps, written_Bps), cpu in zip(self._disks, self._cpus, strict=True):
            found.append(Work(n_bytes / (written_Bps if writes else read_Bps), ((f"{disk.name}:disk", 1.0),)))
            if cpu is not None:
                ends = (cpu, disk.index) if writes else (disk.index, cpu)
                found.append(Flow(self._router.route(*ends), n_bytes))
        return found
