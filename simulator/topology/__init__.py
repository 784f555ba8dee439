"""Machines and parts as YAML files, loaded and checked; here what is loaded: :class:`Topology`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from simulator.records import dataclass, lists_by_key, replace, sums_by_key
from simulator.topology.parts import NETWORK_LINKS, CpuPart, DeviceKind, LinkPart, NicPart, Part
from simulator.topology.schema import NO_COSTS, MessagesSpec, Price, TransportSpec
from simulator.topology.yaml_source import YamlSource
from simulator.units import format_bandwidth


def each(first: int) -> str:
    """Return the name prefix of devices on equal machines numbered from *first*; the star stands for the offset."""
    return f"node*{first or ''}."


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
    """A machine or cluster.  Devices are in file order, of equal machines once, and the network's follow."""

    name: str
    description: str
    aliases: tuple[str, ...]
    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    transport: TransportSpec
    n_nodes: int
    file: str
    trays: int = 1  # computers that NVLinks join into one machine, with equal shares of the GPUs, in order
    notes: tuple[str, ...] = ()  # oddities, each with its place in a file
    price_per_hour: Price | None = None  # of all nodes
    messages: MessagesSpec = NO_COSTS  # processor time of messages between nodes
    shared_network: float | None = None  # share by which other jobs may lower the rates between nodes

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Runs of equal machines, in order, as (number of the first, count)."""
        firsts = sorted({device.node for device in self.devices if device.node >= 0})
        return [(first, after - first) for first, after in pairwise([*firsts, self.n_nodes])]


def neighbours(names: Iterable[str], wires: Iterable[Wire]) -> dict[str, list[str]]:
    """Return those at the other ends of *wires* for each of *names*."""
    ends = (pair for wire in wires for pair in ((wire.a, wire.b), (wire.b, wire.a)))
    return {name: [] for name in names} | lists_by_key(ends)


def reached(start: str, beside: Mapping[str, Sequence[str]]) -> set[str]:
    """Return what is reached from *start* by way of neighbours."""
    found, left = {start}, [start]
    while left:
        new = [name for name in beside[left.pop()] if name not in found]
        found.update(new)
        left += new
    return found


def on_hosts(devices: Sequence[Device], wires: Sequence[Wire]) -> tuple[tuple[Device, ...], int]:
    """Return *devices* with their computers, cut at the NICs' cables (-1: the network's), and how many."""
    kinds = {device.name: device.kind for device in devices}
    within = [w for w in wires if w.part.of not in NETWORK_LINKS or "nic" not in (kinds[w.a], kinds[w.b])]
    if len(within) == len(wires):  # perhaps sockets whose link the file leaves out
        return tuple(devices), 1
    host_of: dict[str, int] = {}
    n_hosts = 0
    beside = neighbours(kinds, within)
    for device in devices:
        if device.name in host_of:
            continue
        found = reached(device.name, beside)
        computes = any(kinds[name] in ("cpu", "gpu") for name in found)
        host_of |= dict.fromkeys(found, n_hosts if computes else -1)
        n_hosts += computes
    if n_hosts < 2:  # its network, if any, leads nowhere
        return tuple(devices), 1
    return tuple(replace(device, node=host_of[device.name]) for device in devices), n_hosts


def with_host_apart(cluster: Topology, host: int) -> Topology:
    """Return *cluster* with the devices of *host* listed separately, so that it may differ from its equals."""
    begin, count = next(run for run in cluster.runs if run[0] <= host < sum(run))
    if count == 1:
        return cluster
    firsts = sorted({begin, host, host + 1} - {begin + count})
    old = [d for d in cluster.devices if d.node == begin]
    names = {d.name for d in old}

    def of(name: str, first: int) -> str:
        return each(first) + name.removeprefix(each(begin)) if name in names else name

    own = [replace(d, name=of(d.name, first), node=first) for first in firsts for d in old]
    place = cluster.devices.index(old[0])
    others = [d for d in cluster.devices if d.node != begin]
    copied = [(wire, firsts if names & {wire.a, wire.b} else firsts[:1]) for wire in cluster.wires]
    wires = [replace(w, a=of(w.a, first), b=of(w.b, first)) for w, on in copied for first in on]
    return replace(cluster, devices=(*others[:place], *own, *others[place:]), wires=tuple(wires))


def lane_notes(
    source: YamlSource, devices: Mapping[str, Device], keys: Mapping[str, str], wires: Sequence[Wire]
) -> tuple[str, ...]:
    """Return a note, with its place, for each CPU with fewer lanes than its links take; *keys*: keys of devices."""
    taken = sums_by_key((end, wire.count * (wire.part.lanes or 0)) for wire in wires for end in {wire.a, wire.b})
    cpus = ((name, device.part.pcie_lanes) for name, device in devices.items() if isinstance(device.part, CpuPart))
    lacking = ((name, there) for name, there in cpus if there is not None and taken.get(name, 0) > there)
    said = lists_by_key(((keys[name], taken[name], there), name) for name, there in lacking)
    notes = []
    for (key, used, there), names in said.items():
        simulated = "they are simulated at full width, which needs a switch, or links of fewer lanes"
        message = f"{', '.join(names)}: links take {used} PCIe lanes, and the CPU has {there}; {simulated}"
        notes.append(str(source.fault(("devices", key), message, key=True)))
    return tuple(notes)


def at_adapters(wire: Wire, devices: Mapping[str, Device]) -> Wire:
    """Return *wire*, at most as fast as the adapters at its ends if it is a network's."""
    cable = wire.part
    if cable.of not in NETWORK_LINKS:
        return wire
    for name in (wire.a, wire.b):
        adapter = devices[name].part if name in devices else None
        if isinstance(adapter, NicPart):
            both = _directions(cable)
            if both * adapter.bandwidth * adapter.efficiency / wire.count < cable.bandwidth * cable.efficiency:
                own = {"bandwidth": both * adapter.bandwidth / wire.count, "efficiency": adapter.efficiency}
                cable = cable.model_copy(update=own)
    return replace(wire, part=cable)


def _directions(cable: LinkPart) -> int:
    """Return how many directions share the rate of *cable*; that of an adapter is for each."""
    return 2 if cable.duplex == "half" else 1


def cable_notes(
    source: YamlSource, devices: Mapping[str, Device], keys: Mapping[str, str], wires: Sequence[Wire]
) -> list[str]:
    """Return a note, with its position, for each key of *keys* with adapters slower than their cables together."""
    cables = [wire for wire in wires if wire.part.of in NETWORK_LINKS]
    ends = [(name, wire.count, wire.part) for wire in cables for name in (wire.a, wire.b)]
    rates_Bps = sums_by_key((name, n * of.bandwidth * of.efficiency / _directions(of)) for name, n, of in ends)
    found: dict[str, str] = {}
    for name, rate_Bps in rates_Bps.items():
        adapter = devices[name].part
        if isinstance(adapter, NicPart) and rate_Bps > 1.001 * adapter.bandwidth * adapter.efficiency:
            together, own = format_bandwidth(rate_Bps), format_bandwidth(adapter.bandwidth * adapter.efficiency)
            text = f"{name}: its cables together reach {together}, the adapter {own}; each is simulated by itself"
            found.setdefault(keys[name], str(source.fault(("devices", keys[name]), text, key=True)))
    return list(found.values())
