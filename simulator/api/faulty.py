"""Faulty or misconfigured variants of a machine, to compare a slow measurement with.

Each is a copy of the topology in which one thing is missing, slower or disabled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from simulator.package_data import own_data
from simulator.records import replace
from simulator.topology import Device, Topology, Wire
from simulator.topology.parts import GpuPart, NicPart, SwitchPart

_DIRECT = ("nvlink", "xgmi")
# Ethernet beside adapters that speak RDMA: what a server has for storage, or for its administration.
_INTERFACES_BPS = (12.5e9, 3.125e9, 1.25e9)
_SOCKET_LATENCY_S = 10e-6  # one way through the kernel's TCP at one end, as the catalogue's Ethernet adapters have it
ADAPTERS, SLOTS = "adapters measured", "slots measured"
"""What leaves no reason for a fault of adapters, or of GPUs' links to the host: each was measured, and is sound."""


class FaultyMachine(NamedTuple):
    """A faulty machine: what is amiss, the possible reasons, the topology that has it, and what would show it.

    Reasons may be names of settings.  ``decided_by`` are the settings, and what NCCL reports of its transports, that
    leave no other reason either.
    """

    what: str
    reasons: tuple[str, ...]
    topology: Topology
    measure: str
    decided_by: frozenset[str] = frozenset()


def faulty_machines(topology: Topology) -> Iterator[FaultyMachine]:
    """Yield each possible fault of *topology*, as ``faulty.yaml`` tells it."""
    told = own_data("simulator.api", "faulty.yaml")
    for name, values, changed in _faulty(topology):
        fault = told[name]
        what, decided_by = fault["what"].format(*values), frozenset(fault.get("decided_by", ()))
        yield FaultyMachine(what, tuple(fault["reasons"]), changed, fault["measure"], decided_by)


def _faulty(topology: Topology) -> Iterator[tuple[str, tuple[float | str, ...], Topology]]:
    """Yield the name of each possible fault, the values in its words, and the topology that has it."""
    if topology.n_nodes > 1:
        yield from _of_adapters(topology)
    if any(wire.part.of in _DIRECT for wire in topology.wires):
        yield "nvlink", (), without_nvlink(topology)
        yield "peers", (), without_peers(without_nvlink(topology))
    elif has_peers(topology):
        yield "peers", (), without_peers(topology)
    yield "slots", (), narrower_pcie(topology, 0.5)


def has_peers(topology: Topology) -> bool:
    """Return whether any GPUs of *topology* may copy to each other over PCIe."""
    if topology.transport.peer_to_peer is not None:
        return topology.transport.peer_to_peer != "none"
    parts = [device.part for device in topology.devices if device.kind == "gpu"]
    return any(not isinstance(part, GpuPart) or part.pcie_peers for part in parts)


def _of_adapters(topology: Topology) -> Iterator[tuple[str, tuple[float | str, ...], Topology]]:
    """Yield what may be amiss with the adapters of several machines."""
    nics = [device for device in topology.devices if isinstance(device.part, NicPart) and device.node >= 0]
    for count in sorted({len(nics) // 2, len(nics) // 4, 1} - {0, len(nics)}, reverse=True):
        yield "adapters", (count, len(nics)), fewer_adapters(topology, range(count))
    direct = [nic.part for nic in nics if isinstance(nic.part, NicPart) and nic.part.gpudirect]
    if direct:
        yield "gpudirect", (), without_gpudirect(topology)
        if not any(wire.part.of in _DIRECT for wire in topology.wires):
            yield "acs", (), without_gpudirect(without_peers(topology))
        yield "sockets", (), with_sockets(topology)
        one = with_sockets(fewer_adapters(topology, (0,)))
        for rate_Bps in _INTERFACES_BPS:
            yield "interface", (rate_Bps * 8e-9,), slower_adapters(one, rate_Bps / direct[0].bandwidth)
    if nics:
        for share, words in ((0.5, "half"), (0.25, "a quarter")):
            yield "rate", (words,), slower_adapters(topology, share)
        if far := with_far_adapters(topology):
            yield "far", (), far


def fewer_adapters(topology: Topology, kept: Collection[int]) -> Topology:
    """Return *topology* with only the *kept* adapters of each node, counted from 0."""
    of_nodes: dict[int, list[str]] = {}
    for device in topology.devices:
        if isinstance(device.part, NicPart):
            of_nodes.setdefault(device.node, []).append(device.name)
    return _without(topology, {name for names in of_nodes.values() for i, name in enumerate(names) if i not in kept})


def with_transport(topology: Topology, **changes: Any) -> Topology:
    """Return *topology* with other settings of its transport; the same one where nothing changes."""
    changed = topology.transport.model_copy(update=changes)
    return topology if changed == topology.transport else replace(topology, transport=changed)


def without_gpudirect(topology: Topology) -> Topology:
    """Return *topology* with adapters that reach only host memory."""
    return with_transport(topology, gpudirect_rdma="none")


def with_sockets(topology: Topology) -> Topology:
    """Return *topology* with adapters that speak TCP through the kernel, and reach host memory only."""
    return with_adapters(topology, network="ethernet", gpudirect=False, latency=_SOCKET_LATENCY_S, plugin_time=0.0)


def with_adapters(topology: Topology, **figures: Any) -> Topology:
    """Return *topology* with adapters that have these *figures*."""
    devices = [
        replace(device, part=device.part.model_copy(update=figures)) if isinstance(device.part, NicPart) else device
        for device in topology.devices
    ]
    return replace(topology, devices=tuple(devices))


def with_far_adapters(topology: Topology) -> Topology | None:
    """Return *topology* with each adapter in a slot of another CPU than its own; None if there is one CPU."""
    cpus = [device.name for device in topology.devices if device.kind == "cpu"]
    nics = [device.name for device in topology.devices if isinstance(device.part, NicPart)]
    if len(cpus) < 2:
        return None
    half, moved = max(1, len(nics) // 2), {}
    for at, nic in enumerate(nics):
        for wire in [w for w in topology.wires if w.part.of == "pcie" and nic in (w.a, w.b)][:1]:
            moved[id(wire)] = replace(wire, a=nic, b=cpus[(at // half + 1) % len(cpus)])
    return replace(topology, wires=tuple(moved.get(id(wire), wire) for wire in topology.wires))


def scaled(topology: Topology, factor: float, figures: Callable[[Device | Wire], Sequence[str]]) -> Topology:
    """Return *topology* with figures of its devices and wires *factor* times as high.

    *figures* names those of a device or wire by the fields of its part; what a part lacks, or has as 0, stays.
    """

    def changed(of: Any) -> Any:
        known = {name: value for name in figures(of) if (value := getattr(of.part, name, None))}
        update = {name: factor * value for name, value in known.items()}
        return replace(of, part=of.part.model_copy(update=update)) if update else of

    devices, wires = (tuple(map(changed, every)) for every in (topology.devices, topology.wires))
    return replace(topology, devices=devices, wires=wires)


def slower_adapters(topology: Topology, share: float) -> Topology:
    """Return *topology* with adapters, and what is plugged into them, at *share* of their rate."""
    ends = {device.name for device in topology.devices if isinstance(device.part, NicPart)}

    def figures(of: Device | Wire) -> Sequence[str]:
        slower = of.name in ends if isinstance(of, Device) else of.part.of != "pcie" and bool(ends & {of.a, of.b})
        return ("bandwidth",) if slower else ()

    return scaled(topology, share, figures)


def without_nvlink(topology: Topology) -> Topology:
    """Return *topology* without direct links between GPUs, and without the switches of such links."""
    gone = {d.name for d in topology.devices if isinstance(d.part, SwitchPart) and d.part.of == "nvlink"}
    kept = tuple(wire for wire in topology.wires if wire.part.of not in _DIRECT)
    return _without(replace(topology, wires=kept), gone)


def without_peers(topology: Topology) -> Topology:
    """Return *topology* with GPUs that cannot copy to each other over PCIe."""
    return with_transport(topology, peer_to_peer="none")


def narrower_pcie(topology: Topology, share: float, ends: Collection[str] = ()) -> Topology:
    """Return *topology* with PCIe links, or only the one between two *ends*, at *share* of their rate."""

    def figures(of: Device | Wire) -> Sequence[str]:
        narrow = isinstance(of, Wire) and of.part.of == "pcie" and (not ends or {of.a, of.b} == set(ends))
        return ("bandwidth",) if narrow else ()

    return scaled(topology, share, figures)


def fewer_links(topology: Topology, count: int, ends: Collection[str]) -> Topology:
    """Return *topology* with *count* of the parallel direct links between two *ends*."""
    fewer = (replace(w, count=count) if w.part.of in _DIRECT and {w.a, w.b} == set(ends) else w for w in topology.wires)
    return replace(topology, wires=tuple(fewer))


def _without(topology: Topology, gone: set[str]) -> Topology:
    devices = tuple(device for device in topology.devices if device.name not in gone)
    wires = tuple(wire for wire in topology.wires if not gone & {wire.a, wire.b})
    return replace(topology, devices=devices, wires=wires)
