"""PCIe lanes of each CPU against what is plugged in: a budget that a machine of one's own easily exceeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.topology.parts import CpuPart
from simulator.topology.topology import Device, Wire
from simulator.topology.yaml_source import YamlSource

__all__ = ["lane_notes"]


def lane_notes(
    source: YamlSource, devices: Mapping[str, Device], keys: Mapping[str, str], wires: Sequence[Wire]
) -> tuple[str, ...]:
    """Return a remark with its place for each CPU that has fewer lanes than its links take.

    A link whose part says its lanes takes them of the CPU at its end; what is behind a switch shares the switch's link.
    *keys* says under which key of ``devices`` each stands.  CPUs and links that do not say count for nothing.
    """
    taken: dict[str, int] = {}
    for wire in wires:
        for end in {wire.a, wire.b}:
            taken[end] = taken.get(end, 0) + wire.count * (wire.part.lanes or 0)
    said: dict[tuple[str, int, int], list[str]] = {}
    for name, device in devices.items():
        part = device.part
        if isinstance(part, CpuPart) and part.pcie_lanes is not None and taken.get(name, 0) > part.pcie_lanes:
            said.setdefault((keys[name], taken[name], part.pcie_lanes), []).append(name)
    notes = []
    for (key, used, there), names in said.items():
        message = (
            f"{', '.join(names)}: links take {used} PCIe lanes, and the CPU has {there}; they are simulated at full "
            f"width, which needs a switch, or links of fewer lanes"
        )
        notes.append(str(source.fault(("devices", key), message, key=True)))
    return tuple(notes)
