"""PCIe lanes of CPUs against the lanes of their links, a budget that hand-written machines easily exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.topology.parts import CpuPart
from simulator.topology.topology import Device, Wire
from simulator.topology.yaml_source import YamlSource


def lane_notes(
    source: YamlSource, devices: Mapping[str, Device], keys: Mapping[str, str], wires: Sequence[Wire]
) -> tuple[str, ...]:
    """Return a note, with its position, for each CPU with fewer lanes than its links take.

    A link whose part states its lanes takes them from the CPU at its end; devices behind a switch share the switch's
    link.  *keys* maps each device to its key under ``devices``.  CPUs and links without stated lanes are ignored.
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
