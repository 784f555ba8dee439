"""Faulty or misconfigured variants of a machine, to compare a slow measurement with.

Each is a copy of the topology in which one thing is missing, slower or disabled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from simulator.records import replace
from simulator.topology import Device, Topology, Wire
from simulator.topology.parts import GpuPart, NicPart, SwitchPart

_DIRECT = ("nvlink", "xgmi")
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
    """Yield each possible fault of *topology*."""
    no_peers = ("NCCL_P2P_DISABLE", "a container", "ACS", "a virtual machine")
    peers = frozenset({"P2P"})
    at_gpus = "`nvidia-smi topo -p2p r`, and p2pBandwidthLatencyTest of pairs"
    if topology.n_nodes > 1:
        yield from _of_adapters(topology)
    if any(wire.part.of in _DIRECT for wire in topology.wires):
        bare, links = without_nvlink(topology), "`nvidia-smi nvlink -s` on each machine"
        yield FaultyMachine("PCIe in place of NVLink", ("fabric manager", "links down"), bare, links)
        yield FaultyMachine("no direct copies between GPUs", no_peers, without_peers(bare), at_gpus, peers)
    elif has_peers(topology):
        yield FaultyMachine("no direct copies between GPUs", no_peers, without_peers(topology), at_gpus, peers)
    narrower = narrower_pcie(topology, 0.5)
    lanes = "`nvidia-smi -q`, `lspci -vv` (LnkSta) for width and generation under load"
    why = ("x8 for x16", "a generation less")
    yield FaultyMachine("PCIe links at half of their rate", why, narrower, lanes, frozenset({SLOTS}))


def has_peers(topology: Topology) -> bool:
    """Return whether any GPUs of *topology* may copy to each other over PCIe."""
    if topology.transport.peer_to_peer is not None:
        return topology.transport.peer_to_peer != "none"
    parts = [device.part for device in topology.devices if device.kind == "gpu"]
    return any(not isinstance(part, GpuPart) or part.pcie_peers for part in parts)


def _of_adapters(topology: Topology) -> Iterator[FaultyMachine]:
    """Yield what may be amiss with the adapters of several machines."""
    nics = [device for device in topology.devices if isinstance(device.part, NicPart) and device.node >= 0]
    one_by_one = "`ib_write_bw` or iperf3 over each adapter, one by one, then all at once"
    for count in sorted({len(nics) // 2, len(nics) // 4, 1} - {0, len(nics)}, reverse=True):
        kept, hca = fewer_adapters(topology, range(count)), "NCCL_IB_HCA"
        what = f"{count} of {len(nics)} adapters used"
        shown = "'Using [0]...' of NCCL_DEBUG=INFO, `ibstat`"
        yield FaultyMachine(what, (hca, "links down"), kept, shown, frozenset({hca}))
    direct = [nic.part for nic in nics if isinstance(nic.part, NicPart) and nic.part.gpudirect]
    if direct:
        reasons = ("nvidia-peermem", "NCCL_NET_GDR_LEVEL", "ACS", "a virtual machine that hides switches")
        shown = "'GDRDMA' in NCCL_DEBUG=INFO, `ib_write_bw --use_cuda` of each GPU with its adapter"
        yield FaultyMachine("no GPUDirect RDMA", reasons, without_gpudirect(topology), shown, frozenset({"GDRDMA"}))
        both = without_gpudirect(without_peers(topology))
        if not any(wire.part.of in _DIRECT for wire in topology.wires):
            acs = "`lspci -vvv` (ACSCtl), `nvidia-smi topo -p2p r`"
            what, shown_by = "all copies over PCIe through the CPU", frozenset({"P2P", "GDRDMA"})
            yield FaultyMachine(what, ("ACS", "IOMMU"), both, acs, shown_by)
        kernel = ("NCCL_IB_DISABLE", "NCCL_NET", "a container without /dev/infiniband")
        decided = frozenset({"RDMA", "NCCL_NET", "NCCL_IB_DISABLE"})
        shown = "'NET/Socket' or 'NET/IB' in NCCL_DEBUG=INFO"
        yield FaultyMachine("sockets in place of RDMA", kernel, with_sockets(topology), shown, decided)
        one = with_sockets(fewer_adapters(topology, (0,)))
        for rate_Bps in _INTERFACES_BPS:
            words = f"sockets over one interface of {rate_Bps * 8e-9:.0f} Gbit/s in place of RDMA"
            yield FaultyMachine(words, kernel, slower_adapters(one, rate_Bps / direct[0].bandwidth), shown, decided)
    if nics:
        for share, words in ((0.5, "half"), (0.25, "a quarter")):
            what, slower = f"adapters at {words} of their rate", slower_adapters(topology, share)
            yield FaultyMachine(what, ("cable", "switch", "PCIe slot"), slower, one_by_one, frozenset({ADAPTERS}))
        if far := with_far_adapters(topology):
            affinity = "`nvidia-smi topo -m`: each GPU and its adapter under one switch (PIX)"
            yield FaultyMachine("a wrong adapter for each GPU", ("NCCL_IB_HCA", "NCCL_TOPO_FILE"), far, affinity)


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


_INTERFACES_BPS = (12.5e9, 3.125e9, 1.25e9)
"""Ethernet beside adapters that speak RDMA: what a server has for storage, or for its administration."""


_SOCKET_LATENCY_S = 10e-6
"""One way through the kernel's TCP at one end, as the catalogue's Ethernet adapters have it."""


def with_sockets(topology: Topology) -> Topology:
    """Return *topology* with adapters that speak TCP through the kernel, and reach host memory only."""
    return with_adapters(topology, network="ethernet", gpudirect=False, latency=_SOCKET_LATENCY_S, plugin_time=0.0)


def with_adapters(topology: Topology, **figures: Any) -> Topology:
    """Return *topology* with adapters that have these *figures*."""

    def changed(device: Device) -> Device:
        is_nic = isinstance(device.part, NicPart)
        return replace(device, part=device.part.model_copy(update=figures)) if is_nic else device

    return replace(topology, devices=tuple(map(changed, topology.devices)))


def with_far_adapters(topology: Topology) -> Topology | None:
    """Return *topology* with each adapter in a slot of another CPU than its own; None if there is one CPU."""
    cpus = [device.name for device in topology.devices if device.kind == "cpu"]
    nics = [device.name for device in topology.devices if isinstance(device.part, NicPart)]
    if len(cpus) < 2:
        return None
    near = [next((w for w in topology.wires if w.part.of == "pcie" and nic in (w.a, w.b)), None) for nic in nics]
    half = max(1, len(nics) // 2)
    moved = {
        id(wire): replace(wire, a=nic, b=cpus[(at // half + 1) % len(cpus)])
        for at, (nic, wire) in enumerate(zip(nics, near, strict=True))
        if wire is not None
    }
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
