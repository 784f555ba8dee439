"""Where a step runs: a machine's device, and the host that issues to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.devices.calibration import Calibration
from simulator.devices.cpu.cpu import CpuLibrary, cpu_from_part
from simulator.devices.gpu.gpu import gpu_from_part
from simulator.devices.predict import Device
from simulator.errors import InputError, nearest
from simulator.network.machine import Machine, Node
from simulator.topology.parts import CpuPart, GpuPart

__all__ = ["Place", "find_place"]


@dataclass(frozen=True, slots=True)
class Place:
    """A device and the node that issues to it, by their names in the machine.

    Where a CPU computes, ``name`` and ``host`` are the same.
    """

    name: str
    part: str
    device: Device
    host: str


def find_place(
    machine: Machine,
    name: str | None,
    calibrations: Mapping[str, Calibration],
    *,
    threads: int | None = None,
    library: CpuLibrary = "onednn",
) -> Place:
    """Return the place called *name*, or the machine's first GPU, or its CPUs where it has none.

    ``cpu`` stands for all sockets of the (first) node together; ``cpu0`` for one.  *threads* are
    those of a CPU, one for each core otherwise; *library* is what its kernels are from.

    Raises
    ------
    InputError
        Where there is no such device, or it computes nothing, or lacks a figure.

    """
    nodes = _nodes(machine, name)
    part, shown = nodes[0].part, nodes[0].part_name or nodes[0].name
    calibration = calibrations.get(nodes[0].part_name)
    if isinstance(part, CpuPart):
        cpu = cpu_from_part(shown, part, len(nodes), threads, library=library, calibration=calibration)
        place = "cpu" if len(nodes) > 1 else nodes[0].name
        return Place(place, shown if len(nodes) == 1 else f"{len(nodes)} x {shown}", cpu, place)
    assert isinstance(part, GpuPart)
    if threads is not None:
        raise InputError(f"--threads {threads}: {nodes[0].name} is a GPU; threads are those of a CPU")
    return Place(nodes[0].name, shown, gpu_from_part(shown, part, calibration), _host(machine, nodes[0]))


def _nodes(machine: Machine, name: str | None) -> list[Node]:
    """Return the GPU, or the sockets, that *name* stands for."""
    computing = [node for node in machine.nodes if isinstance(node.part, GpuPart | CpuPart)]
    if not computing:
        raise InputError(f"{machine.name} has no GPU and no CPU that could compute")
    if name is None and machine.gpus:
        return [machine.nodes[machine.gpus[0]]]
    named = [node for node in computing if node.name == name]
    if named:
        return named
    sockets = [node for node in computing if isinstance(node.part, CpuPart) and node.host == computing[0].host]
    if sockets and name in (None, "cpu"):
        return [node for node in sockets if node.part_name == sockets[0].part_name]
    hint = nearest(name or "", [*(node.name for node in computing), *(["cpu"] if sockets else [])])
    raise InputError(f"--device {name}: {machine.name} has no GPU or CPU of that name; {hint}")


def _host(machine: Machine, gpu: Node) -> str:
    """Return the CPU that issues to *gpu*: the first that stands beside it, else any of its machine."""
    beside = [machine.nodes[link.dst] for link in machine.outgoing[gpu.index]]
    same = [node for node in machine.nodes if node.host == gpu.host]
    for node in (*beside, *same):
        if isinstance(node.part, CpuPart):
            return node.name
    return "host"
