"""Machines that deviate from their files: slow and failed links, the traffic of other jobs, a shared network."""

from collections.abc import Sequence

from simulator.errors import mention, nearest, one_line, refused
from simulator.network.compiling import compile_machine
from simulator.network.machine import Link, Machine, Node
from simulator.network.named import pairs
from simulator.network.routing import Router
from simulator.questions.where import Neighbour, SlowLink, Where
from simulator.records import replace
from simulator.topology import Topology, Wire, each, with_host_apart
from simulator.topology.parts import NETWORK_LINKS, SwitchPart
from simulator.units import format_bandwidth

_Ways = list[tuple[Node, Node]]


def machine_of(topology: Topology, where: Where, machine: Machine) -> Machine:
    """Return *topology*'s *machine* with the slow links, neighbours and congestion of *where*; raises InputError."""
    whole = topology
    slowed = [(slow, ways) for slow, ways in _joined(machine, where.slow_links) if not slow.is_passing]
    busy = [(neighbour, pairs(mention("neighbours"), neighbour.ends, machine)) for neighbour in where.neighbours]
    if not slowed and not busy and not where.congested:
        return machine
    for neighbour, ways in busy:
        for end in (end for ends in ways for end in ends):
            if end.kind not in ("gpu", "cpu"):
                raise refused("neighbours", f"{end.name} is neither a GPU nor a CPU, which jobs run on", neighbour.ends)
    for host in _unlike(topology, slowed, busy) if topology.n_nodes > 1 else ():
        topology = with_host_apart(topology, host)
    nominal, wires = list(topology.wires), list(topology.wires)
    for slow, ways in slowed:
        joined = {frozenset(_written(topology, end) for end in ends) for ends in ways}
        known = [(wire, frozenset((wire.a, wire.b)) in joined) for wire in wires]
        wires = [made for wire, is_slow in known for made in _slowed(wire, slow.factor if is_slow else 1.0)]
        if not slow.factor:
            nominal = [wire for wire in nominal if frozenset((wire.a, wire.b)) not in joined]
    unslowed = replace(topology, wires=tuple(nominal))
    usual = machine if unslowed == whole else compile_machine(unslowed)
    changed = replace(topology, wires=tuple(wires))
    machine = compile_machine(changed)
    failed = [ends for slow, ways in slowed if not slow.factor for ends in ways]
    full = compile_machine(topology) if failed else machine
    down = tuple(link for a, b in failed for link in _between(full, full.node(a.name), full.node(b.name)))
    left_Bps = _left(machine, busy)
    if where.congested:  # by jobs among which the neighbours are
        machine = compile_machine(_congested(changed))
        left_Bps = tuple(map(min, left_Bps, machine.capacity_Bps))
    machine = replace(machine, nominal=usual, down=down, capacity_Bps=left_Bps)
    passing(machine, where.slow_links)  # for its errors
    return machine


def passing(machine: Machine, slow_links: Sequence[SlowLink]) -> list[tuple[float, str, float]]:
    """Return temporary changes of links as (time in s, resource's name, factor on its capacity); or InputError."""
    usual = machine.nominal or machine
    is_congested = usual.shared_network != machine.shared_network
    begins: dict[tuple[float, str], float] = {}
    ends: dict[tuple[float, str], float] = {}
    for slow, ways in _joined(machine, [slow for slow in slow_links if slow.is_passing]):
        for link in (link for first, second in ways for link in _between(machine, first, second)):
            for way in (link, machine.reverse(link)):
                name, left_Bps = machine.resource_names[way.resource], machine.capacity_Bps[way.resource]
                whole_Bps, taken_Bps = usual.links[way.index].bandwidth_Bps, way.bandwidth_Bps - left_Bps
                whole_Bps *= _left_over(usual) if is_congested and way.kind in NETWORK_LINKS else 1.0
                factor = slow.factor * (whole_Bps / left_Bps) - taken_Bps / left_Bps
                if slow.factor and factor <= 0.0:
                    gives, takes = format_bandwidth(slow.factor * whole_Bps), format_bandwidth(taken_Bps)
                    told = f"leaves {gives} of {name}, of which other jobs ({mention('neighbours')}) take {takes}"
                    raise refused("slow_links", told, one_line(slow.ends, 60))
                begins[slow.from_s, name] = max(0.0, factor)
                if slow.until_s < float("inf"):
                    ends[slow.until_s, name] = 1.0
    return sorted((at_s, name, factor) for (at_s, name), factor in {**ends, **begins}.items())


def _joined(machine: Machine, slow_links: Sequence[SlowLink]) -> list[tuple[SlowLink, _Ways]]:
    """Return each pair that *slow_links* join; raises InputError for unknown ones, or two factors at one time."""
    told: dict[frozenset[int], list[SlowLink]] = {}
    found = []
    for slow in slow_links:
        ways = {frozenset((a.index, b.index)): (a, b) for a, b in pairs(mention("slow_links"), slow.ends, machine)}
        for numbers, (first, second) in ways.items():
            if not _between(machine, first, second):
                known = [link.name.replace("->", "-") for link in machine.links if link.index % 2 == 0]
                ends = f"{first.name}-{second.name}"
                which = "these two" if ends == slow.ends else ends
                hint = nearest(ends, list(dict.fromkeys(known)), listed=8)
                raise refused("slow_links", f"no link joins {which}; {hint}", slow.ends)
            others = told.setdefault(numbers, [])
            for other in others:
                if why := _clash(slow, other):
                    raise refused("slow_links", f"{first.name}-{second.name} {why}", one_line(slow.ends, 60))
            others.append(slow)
        found.append((slow, list(ways.values())))
    return found


def _clash(slow: SlowLink, other: SlowLink) -> str:
    """Return why a link cannot be *slow* as well as *other*; empty if it can."""
    if slow.is_passing != other.is_passing:
        return "" if slow.factor and other.factor else "is down for good, and cannot be slow for a while"
    from_s, until_s = max(slow.from_s, other.from_s), min(slow.until_s, other.until_s)
    return "" if from_s >= until_s else f"is given twice{SlowLink(slow.ends, 1.0, from_s, until_s).when}"


def _between(machine: Machine, first: Node, second: Node) -> list[Link]:
    near, far = (first, second) if first.host >= 0 else (second, first)  # not through the ports of a network's switch
    return [link for link in machine.outgoing[near.index] if link.dst == far.index]


def _left(machine: Machine, busy: Sequence[tuple[Neighbour, _Ways]]) -> tuple[float, ...]:
    """Return what the neighbours *busy* leave of the capacities of *machine*; raises InputError if one has no room."""
    router = Router(machine)
    left_Bps = list(machine.capacity_Bps)
    for neighbour, ways in busy:
        for src, dst in ways:
            used_Bps = {r: share * neighbour.rate_Bps for r, share in router.route(src.index, dst.index).loads}
            full = [r for r in used_Bps if used_Bps[r] >= left_Bps[r]]
            if full:
                narrowest = max(full, key=lambda r: used_Bps[r] / left_Bps[r])
                needs, has = format_bandwidth(used_Bps[narrowest]), format_bandwidth(left_Bps[narrowest])
                shared = " left by other jobs" if left_Bps[narrowest] < machine.capacity_Bps[narrowest] else ""
                name = machine.resource_names[narrowest]
                raise refused("neighbours", f"needs {needs} of {name}, which has {has}{shared}", neighbour.ends)
            for resource, rate_Bps in used_Bps.items():
                left_Bps[resource] -= rate_Bps
    return tuple(left_Bps)


def _unlike(
    topology: Topology, slowed: Sequence[tuple[SlowLink, _Ways]], busy: Sequence[tuple[Neighbour, _Ways]]
) -> list[int]:
    """Return the hosts whose changes set them apart from their equals; all hosts of a run may be changed alike."""
    changes: dict[int, set[object]] = {}
    for number, (_, ways) in enumerate(slowed):
        for ends in ways:
            own = frozenset(end.name.partition(".")[2] if end.host >= 0 else end.name for end in ends)
            several = len({end.host for end in ends if end.host >= 0}) > 1
            for end in ends:
                changes.setdefault(end.host, set()).add((number, own, end.host if several else -1))
    for _, ways in busy:
        for end in (end for ends in ways for end in ends):
            changes.setdefault(end.host, set()).add(end.host)
    runs = [range(begin, begin + count) for begin, count in topology.runs]
    alike = {host for run in runs if all(changes.get(each) == changes.get(run[0]) for each in run) for host in run}
    return sorted(host for host in changes if host >= 0 and host not in alike)


def _written(topology: Topology, node: Node) -> str:
    """Return the name in *topology* of *node*, which is that of all its equals."""
    begin = next((begin for begin, count in topology.runs if begin <= node.host < begin + count), -1)
    name = each(begin) + node.name.partition(".")[2]
    return name if begin >= 0 and topology.n_nodes > 1 and any(d.name == name for d in topology.devices) else node.name


def _congested(topology: Topology) -> Topology:
    """Return *topology* with all links and switches between its machines at the least rate of its shared network."""
    left = _left_over(topology)
    wires = [made for w in topology.wires for made in _slowed(w, left if w.part.of in NETWORK_LINKS else 1.0)]
    devices = list(topology.devices)
    for at, device in enumerate(devices):
        if device.kind == "network-switch" and isinstance(device.part, SwitchPart) and device.part.fabric_bandwidth:
            lower = {"fabric_bandwidth": left * device.part.fabric_bandwidth}
            devices[at] = replace(device, part=device.part.model_copy(update=lower))
    return replace(topology, wires=tuple(wires), devices=tuple(devices), shared_network=None)


def _left_over(whole: Topology | Machine) -> float:
    return 1.0 - (whole.shared_network or 0.0)


def _slowed(wire: Wire, factor: float) -> list[Wire]:
    if factor in (0.0, 1.0):
        return [wire] if factor else []
    return [replace(wire, part=wire.part.model_copy(update={"bandwidth": wire.part.bandwidth * factor}))]
