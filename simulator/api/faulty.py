"""Faulty or misconfigured variants of a machine, to compare a slow measurement with.

Each is a copy of the topology in which one thing is missing, slower or disabled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from simulator.topology import Device, Topology, Wire
from simulator.topology.parts import NicPart, SwitchPart

_DIRECT = ("nvlink", "xgmi")


class FaultyMachine(NamedTuple):
    """A faulty machine: what is amiss, the possible reasons, and the topology that has it.

    Reasons may be names of settings.  ``decided_by`` are the settings that leave no other reason either.
    """

    what: str
    reasons: tuple[str, ...]
    topology: Topology
    decided_by: frozenset[str] = frozenset()


def faulty_machines(topology: Topology) -> Iterator[FaultyMachine]:
    """Yield each possible fault of *topology*."""
    nics = [device for device in topology.devices if isinstance(device.part, NicPart) and device.node >= 0]
    no_peers = ("NCCL_P2P_DISABLE", "a container", "ACS")
    if topology.n_nodes > 1:
        for count in sorted({len(nics) // 2, len(nics) // 4, 1} - {0, len(nics)}, reverse=True):
            kept, hca = fewer_adapters(topology, range(count)), "NCCL_IB_HCA"
            yield FaultyMachine(f"{count} of {len(nics)} adapters used", (hca, "links down"), kept, frozenset({hca}))
        if any(isinstance(nic.part, NicPart) and nic.part.gpudirect for nic in nics):
            yield FaultyMachine(
                "no GPUDirect RDMA", ("nvidia-peermem", "NCCL_NET_GDR_LEVEL"), without_gpudirect(topology)
            )
        if nics:
            slower = slower_adapters(topology, 0.5)
            yield FaultyMachine("adapters at half of their rate", ("cable", "switch", "PCIe slot"), slower)
    if any(wire.part.of in _DIRECT for wire in topology.wires):
        bare = without_nvlink(topology)
        yield FaultyMachine("PCIe in place of NVLink", ("fabric manager", "links down"), bare)
        yield FaultyMachine("no direct copies between GPUs", no_peers, without_peers(bare))
    elif topology.transport.peer_to_peer != "none":
        yield FaultyMachine("no direct copies between GPUs", no_peers, without_peers(topology))
    narrower = narrower_pcie(topology, 0.5)
    yield FaultyMachine("PCIe links at half of their rate", ("x8 for x16", "a generation less"), narrower)


def adapters_of(topology: Topology) -> int:
    """Return the number of adapters of one node."""
    counts = Counter(device.node for device in topology.devices if isinstance(device.part, NicPart))
    return max(counts.values(), default=0)


def fewer_adapters(topology: Topology, kept: Collection[int]) -> Topology:
    """Return *topology* with only the *kept* adapters of each node, counted from 0."""
    seen: Counter[int] = Counter()
    gone = set()
    for device in topology.devices:
        if isinstance(device.part, NicPart):
            if seen[device.node] not in kept:
                gone.add(device.name)
            seen[device.node] += 1
    return _without(topology, gone)


def without_gpudirect(topology: Topology) -> Topology:
    """Return *topology* with adapters that reach only host memory."""
    return replace(topology, transport=topology.transport.model_copy(update={"gpudirect_rdma": "none"}))


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
    return replace(topology, transport=topology.transport.model_copy(update={"peer_to_peer": "none"}))


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
