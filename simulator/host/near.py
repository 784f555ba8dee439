"""The memory that an access goes to: that of the core's own socket, of another socket, or a persistent module."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError, nearest
from simulator.host.latency import LoadedMemory, memory_place
from simulator.network.machine import Link, Machine, Node
from simulator.topology.parts import CpuPart, StoragePart
from simulator.units import format_duration


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory as a core reaches it.

    ``bandwidth_Bps`` limits traffic from it; None where only the socket's own figures do.  ``why`` describes its
    distance.
    """

    place: LoadedMemory | None
    bandwidth_Bps: float | None = None
    why: tuple[str, ...] = ()


def memory_of(machine: Machine, part: CpuPart, node: str, *, writes: bool = False) -> Memory:
    """Return the memory that *node* names, as reached from a core of the machine's first CPU, of *part*.

    *node* is ``local``, ``remote`` (the next socket's memory) or a device of the machine: a CPU, or storage that is
    read like memory.  *writes*: the access writes.  Raises InputError where there is no such memory, no link to it, or
    no latency of it.
    """
    if node == "local":
        return Memory(memory_place(part))
    own = next((n for n in machine.nodes if isinstance(n.part, CpuPart) and n.host == 0), None)
    if own is None:
        raise InputError("the machine has no CPU")
    if node == "remote":
        link = _hop(machine, own, None)
        if link is None:
            raise InputError(f"node=remote: {machine.name} has no second socket, or no link to it")
        return _across(part, link)
    found = machine.find(node)
    if found is None:
        known = ["local", "remote", *(n.name for n in machine.nodes if _is_memory(n))]
        raise InputError(f"node={node}: {machine.name} has no such memory; {nearest(node, known)}")
    if found.index == own.index:
        return Memory(memory_place(part))
    if isinstance(found.part, CpuPart):
        link = _hop(machine, own, found)
        if link is None:
            raise InputError(f"node={node}: no link joins {own.name} and {node}")
        return _across(part, link)
    if not _is_memory(found):
        raise InputError(f"node={node}: {node} is not read like memory; a storage part with of: dimm is")
    assert isinstance(found.part, StoragePart)
    latency_s = found.part.write_latency if writes else found.part.read_latency
    if latency_s is None:
        raise InputError(f"node={node}: the part has no {'write' if writes else 'read'}_latency")
    rate_Bps = found.part.write_bandwidth if writes else found.part.read_bandwidth
    said = f"{node} answers a {'write' if writes else 'read'} after {format_duration(latency_s, 3)}"
    return Memory(LoadedMemory(node, latency_s), rate_Bps, (said,))


def _is_memory(node: Node) -> bool:
    return isinstance(node.part, CpuPart) or (isinstance(node.part, StoragePart) and node.part.of == "dimm")


def _hop(machine: Machine, own: Node, other: Node | None) -> Link | None:
    """Return the link from one socket to *other*, or to any other socket; None where there is none."""
    return next(
        (
            link
            for link in machine.outgoing[own.index]
            if isinstance(machine.nodes[link.dst].part, CpuPart) and (other is None or link.dst == other.index)
        ),
        None,
    )


def _across(part: CpuPart, link: Link) -> Memory:
    name = f"memory beyond {link.kind} link"
    said = f"the other socket's memory is one hop of {format_duration(link.latency_s, 3)} further away"
    return Memory(memory_place(part, link.latency_s, name), link.nominal_Bps, (said,))
