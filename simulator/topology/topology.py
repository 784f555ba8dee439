"""A topology after loading: devices and wires by name, all parts looked up, all figures SI."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from simulator.topology.parts import LinkPart, Part
from simulator.topology.price import Price
from simulator.topology.schema import NO_COSTS, MessagesSpec, TransportSpec

__all__ = ["Device", "DeviceKind", "Topology", "Wire"]

DeviceKind = Literal["gpu", "cpu", "nic", "storage", "pcie-switch", "nvlink-switch", "network-switch"]


@dataclass(frozen=True, slots=True)
class Device:
    """One device.  ``node`` is the first of the equal machines that have it, -1 for one of the network between them."""

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
    """What there is.  Devices stand in the order of the file.

    Of a cluster of ``n_nodes`` machines, what equal ones have stands here once, and the network with it.
    One machine's GPUs, in order, are those of its ``trays``: computers that NVLinks join to one, each with as many.
    """

    name: str
    description: str
    aliases: tuple[str, ...]
    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    transport: TransportSpec
    n_nodes: int
    file: str
    trays: int = 1
    notes: tuple[str, ...] = ()  # what is odd about it, each with its place in a file
    price_per_hour: Price | None = None  # of all nodes
    messages: MessagesSpec = NO_COSTS  # what those between nodes cost their processors

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Equal machines, one after the other: the number of the first, and how many they are."""
        firsts = sorted({device.node for device in self.devices if device.node >= 0})
        return [(first, after - first) for first, after in pairwise([*firsts, self.n_nodes])]
