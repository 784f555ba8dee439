"""A loaded topology: devices and wires by name, with parts resolved and all figures in SI units."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from simulator.topology.parts import LinkPart, Part
from simulator.topology.price import Price
from simulator.topology.schema import NO_COSTS, MessagesSpec, TransportSpec

DeviceKind = Literal["gpu", "cpu", "nic", "storage", "pcie-switch", "nvlink-switch", "network-switch"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device.  ``node`` is the first of the equal machines that contain it, -1 for devices of the network."""

    name: str
    kind: DeviceKind
    part: Part
    part_name: str
    node: int


@dataclass(frozen=True, slots=True)
class Wire:
    """``count`` parallel links of one kind between two devices, in both directions."""

    a: str
    b: str
    part: LinkPart
    count: int


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine or a cluster.  Devices are in file order.

    In a cluster of ``n_nodes`` machines, the devices of equal machines are listed once, and those of the network
    follow.  ``trays`` is the number of computers that NVLinks join into one machine; each has an equal share of the
    GPUs, in order.
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
    notes: tuple[str, ...] = ()  # oddities, each with its place in a file
    price_per_hour: Price | None = None  # of all nodes
    messages: MessagesSpec = NO_COSTS  # processor time of messages between nodes

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Runs of equal machines, in order, as (number of the first, count)."""
        firsts = sorted({device.node for device in self.devices if device.node >= 0})
        return [(first, after - first) for first, after in pairwise([*firsts, self.n_nodes])]
