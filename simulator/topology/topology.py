"""A topology after loading: devices and wires by name, all parts looked up, all figures SI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.topology.parts import LinkPart, Part
from simulator.topology.schema import TransportSpec

__all__ = ["Device", "DeviceKind", "Topology", "Wire"]

DeviceKind = Literal["gpu", "cpu", "nic", "storage", "pcie-switch", "nvlink-switch", "network-switch"]


@dataclass(frozen=True, slots=True)
class Device:
    """One device.  ``node`` is the machine it is in, from 0; -1 for the network between machines."""

    name: str
    kind: DeviceKind
    part: Part
    part_name: str
    node: int


@dataclass(frozen=True, slots=True)
class Wire:
    """``count`` parallel links of one kind between two devices, usable both ways."""

    a: str
    b: str
    part: LinkPart
    count: int


@dataclass(frozen=True, slots=True)
class Topology:
    """What there is.  Devices stand in the order of the file, nodes one after the other."""

    name: str
    description: str
    aliases: tuple[str, ...]
    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    transport: TransportSpec
    n_nodes: int
    file: str
