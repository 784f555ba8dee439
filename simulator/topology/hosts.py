"""Which devices of a file form one computer, and which are the network between several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.topology.parts import NETWORK_LINKS
from simulator.topology.topology import Device, Wire


def on_hosts(devices: Sequence[Device], wires: Sequence[Wire]) -> tuple[tuple[Device, ...], int]:
    """Return *devices* with the numbers of their computers (-1: the network's), and the number of computers.

    Computers are joined by cables that end at a NIC.  So what remains connected without these cables is one computer if
    it has a CPU or a GPU, and part of the network otherwise.  Computers are numbered in the order of *devices*.
    """
    kinds = {device.name: device.kind for device in devices}
    beside: dict[str, list[str]] = {device.name: [] for device in devices}
    n_cables = 0
    for wire in wires:
        if wire.part.of in NETWORK_LINKS and "nic" in (kinds[wire.a], kinds[wire.b]):
            n_cables += 1
            continue
        beside[wire.a].append(wire.b)
        beside[wire.b].append(wire.a)
    if not n_cables:  # perhaps sockets whose link the file leaves out
        return tuple(devices), 1
    host_of: dict[str, int] = {}
    n_hosts = 0
    for device in devices:
        if device.name in host_of:
            continue
        found, left = {device.name}, [device.name]
        while left:
            new = [name for name in beside[left.pop()] if name not in found]
            found.update(new)
            left += new
        computes = any(kinds[name] in ("cpu", "gpu") for name in found)
        host_of |= dict.fromkeys(found, n_hosts if computes else -1)
        n_hosts += computes
    if n_hosts < 2:  # its network, if any, leads nowhere
        return tuple(devices), 1
    return tuple(replace(device, node=host_of[device.name]) for device in devices), n_hosts
