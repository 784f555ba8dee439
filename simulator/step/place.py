"""Where a step runs: a machine's device, and the host that issues to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.devices.calibration import Calibration
from simulator.devices.cpu import Cpu, cpu_from_part
from simulator.devices.device import Gpu, gpu_from_part
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
    device: Gpu | Cpu
    host: str


def find_place(machine: Machine, name: str | None, calibrations: Mapping[str, Calibration]) -> Place:
    """Return the place called *name*, or the machine's first GPU, or its first CPU where it has none.

    Raises
    ------
    InputError
        Where there is no such device, or it computes nothing, or lacks a figure.

    """
    node = _node(machine, name)
    calibration = calibrations.get(node.part_name)
    shown = node.part_name or node.name
    if isinstance(node.part, CpuPart):
        return Place(node.name, shown, cpu_from_part(shown, node.part, calibration=calibration), node.name)
    assert isinstance(node.part, GpuPart)
    return Place(node.name, shown, gpu_from_part(shown, node.part, calibration), _host(machine, node))


def _node(machine: Machine, name: str | None) -> Node:
    computing = [node for node in machine.nodes if isinstance(node.part, GpuPart | CpuPart)]
    if not computing:
        raise InputError(f"{machine.name} has no GPU and no CPU that could compute")
    if name is None:
        return machine.nodes[machine.gpus[0]] if machine.gpus else computing[0]
    for node in computing:
        if node.name == name:
            return node
    hint = nearest(name, [node.name for node in computing])
    raise InputError(f"--device {name}: {machine.name} has no GPU or CPU of that name; {hint}")


def _host(machine: Machine, gpu: Node) -> str:
    """Return the CPU that issues to *gpu*: the first that stands beside it, else any of its machine."""
    beside = [machine.nodes[link.dst] for link in machine.outgoing[gpu.index]]
    same = [node for node in machine.nodes if node.host == gpu.host]
    for node in (*beside, *same):
        if isinstance(node.part, CpuPart):
            return node.name
    return "host"
