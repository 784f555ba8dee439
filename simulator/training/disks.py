"""The disks of a machine, over which the state of its ranks is striped: :class:`Disks`."""

from __future__ import annotations

from math import inf

from simulator.errors import InputError
from simulator.network.machine import Machine, Node
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Part, Work
from simulator.spelling import mention
from simulator.topology.parts import StoragePart


def disks_of_host(machine: Machine, host: int) -> list[Node]:
    """Return the disks of *host* that state both bandwidths; raises InputError if there are none."""
    found = [
        node
        for node in machine.nodes_of(host)
        if isinstance(node.part, StoragePart) and node.part.read_bandwidth and node.part.write_bandwidth
    ]
    if not found:
        said = mention("offload_to", "nvme")
        raise InputError(
            f"{said}: {machine.name} has no disk with bandwidths; devices needs for example ssd0: {{part: nvme-gen4}} "
            "with a link to a CPU"
        )
    return found


class Disks:
    """The disks of the machine of *rank*, which *n_ranks* ranks use at once; each disk has an equal part of all."""

    def __init__(self, router: Router, machine: Machine, rank: int, n_ranks: int) -> None:
        self._disks = disks_of_host(machine, machine.locate(rank)[1])
        self._n_ranks, self._router = n_ranks, router
        self._cpus = [router.nearest_cpu(disk.index) for disk in self._disks]

    def parts(self, each_bytes: float, *, writes: bool) -> list[Part]:
        """Return what *each_bytes* of each rank load: every disk by itself, and its links to the nearest CPU."""
        n_bytes = self._n_ranks * each_bytes / len(self._disks)
        found: list[Part] = []
        for disk, cpu in zip(self._disks, self._cpus, strict=True):
            part = disk.part
            assert isinstance(part, StoragePart)
            rate_Bps = (part.write_bandwidth if writes else part.read_bandwidth) or inf
            found.append(Work(n_bytes / rate_Bps, ((f"{disk.name}:disk", 1.0),)))
            if cpu is not None:
                ends = (cpu, disk.index) if writes else (disk.index, cpu)
                found.append(Flow(self._router.route(*ends), n_bytes))
        return found
