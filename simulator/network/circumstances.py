"""Machines that deviate from their files: slow and failed links, and the traffic of other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.errors import InputError, nearest
from simulator.network.machine import Machine, Node, compile_machine
from simulator.network.routing import Router
from simulator.questions.where import Neighbour, SlowLink
from simulator.topology.cluster import apart, each
from simulator.topology.topology import Topology, Wire
from simulator.units import format_bandwidth

__all__ = ["machine_of", "passing"]


def machine_of(
    topology: Topology, slow_links: Sequence[SlowLink] = (), neighbours: Sequence[Neighbour] = ()
) -> Machine:
    """Return the machine of *topology*, compiled for simulation, with *slow_links* and *neighbours*.

    A slow link carries a fraction of its bandwidth.  With factor 0 it is absent, and bytes take another route if there
    is one.  A neighbour takes its rate from every capacity on its route, before all others.  NCCL, which plans with
    nominal figures, uses the machine's ``nominal``; its nodes, links and resources have the same numbers.  In a
    cluster, nodes touched by a slow link or neighbour no longer count as equal to others.

    Links that are slow only for a time are left unchanged (:func:`passing`).

    Raises InputError if a device or link does not exist, a neighbour's end is neither a GPU nor a CPU, or a capacity is
    too small for a neighbour's rate.
    """
    slow_links = [slow for slow in slow_links if not slow.is_passing]
    machine = compile_machine(topology)
    if not slow_links and not neighbours:
        return machine
    slowed = [(slow, _ends("--slow-link", slow.ends, machine)) for slow in slow_links]
    busy = [(neighbour, _ends("--neighbour", neighbour.ends, machine)) for neighbour in neighbours]
    for neighbour, ends in busy:
        for end in ends:
            if end.kind not in ("gpu", "cpu"):
                raise InputError(
                    f"--neighbour {neighbour.ends}: {end.name} is neither a GPU nor a CPU, which jobs run on"
                )
    touched = {end.host for _, ends in (*slowed, *busy) for end in ends if end.host >= 0}
    for host in sorted(touched) if topology.n_nodes > 1 else ():
        topology = apart(topology, host)
    nominal, wires = list(topology.wires), list(topology.wires)
    for slow, ends in slowed:
        names = frozenset(_written(topology, end) for end in ends)
        if not any({wire.a, wire.b} == names for wire in wires):
            raise InputError(f"--slow-link {slow.ends}: no link joins these two; {_links_near(slow.ends, machine)}")
        wires = [made for wire in wires for made in _slowed(wire, slow.factor if {wire.a, wire.b} == names else 1.0)]
        if not slow.factor:
            nominal = [wire for wire in nominal if {wire.a, wire.b} != names]
    machine = compile_machine(replace(topology, wires=tuple(wires)))
    machine = replace(machine, nominal=compile_machine(replace(topology, wires=tuple(nominal))))
    router = Router(machine)
    left_Bps = list(machine.capacity_Bps)
    for neighbour, (src, dst) in busy:
        for resource, share in router.route(src.index, dst.index).loads:
            used_Bps = share * neighbour.rate_Bps
            if used_Bps >= left_Bps[resource]:
                name, has = machine.resource_names[resource], format_bandwidth(left_Bps[resource])
                raise InputError(
                    f"--neighbour {neighbour.ends}: needs {format_bandwidth(used_Bps)} of {name}, which has {has}"
                )
            left_Bps[resource] -= used_Bps
    return replace(machine, capacity_Bps=tuple(left_Bps))


def passing(machine: Machine, slow_links: Sequence[SlowLink]) -> list[tuple[float, str, float]]:
    """Return the temporary changes of links as (time in s, name of the resource, remaining factor), sorted.

    If intervals overlap, the last change applies.  Raises InputError if a link does not exist.
    """
    found: list[tuple[float, str, float]] = []
    for slow in slow_links:
        if not slow.is_passing:
            continue
        first, second = _ends("--slow-link", slow.ends, machine)
        ways = {(first.index, second.index), (second.index, first.index)}
        names = {machine.resource_names[link.resource] for link in machine.links if (link.src, link.dst) in ways}
        if not names:
            raise InputError(f"--slow-link {slow.ends}: no link joins these two; {_links_near(slow.ends, machine)}")
        for name in sorted(names):
            found.append((slow.from_s, name, slow.factor))
            if slow.until_s < float("inf"):
                found.append((slow.until_s, name, 1.0))
    return sorted(found)


def _links_near(ends: str, machine: Machine) -> str:
    known = [link.name.replace("->", "-") for link in machine.links if link.index % 2 == 0]
    return nearest(ends, list(dict.fromkeys(known)), listed=8)


def _written(topology: Topology, node: Node) -> str:
    """Return the name in *topology* of a node that has no equal ones."""
    if any(device.name == node.name for device in topology.devices):
        return node.name
    return each(node.host) + node.name.partition(".")[2]


def _slowed(wire: Wire, factor: float) -> list[Wire]:
    """Return *wire* at *factor* of its bandwidth; an empty list if the factor is 0."""
    if factor in (0.0, 1.0):
        return [wire] if factor else []
    part = wire.part.model_copy(update={"efficiency": wire.part.efficiency * factor})
    return [replace(wire, part=part)]


def _ends(option: str, text: str, machine: Machine) -> tuple[Node, Node]:
    """Return the two nodes named in *text*, which are separated by ``-``; names may contain ``-`` too.

    Raises InputError if *text* does not name two devices.
    """
    places = [place for place, letter in enumerate(text) if letter == "-"]
    for place in places:
        first, second = machine.find(text[:place]), machine.find(text[place + 1 :])
        if first is not None and second is not None and first != second:
            return first, second
    for place in places:
        unknown = [name for name in (text[:place], text[place + 1 :]) if machine.find(name) is None]
        if len(unknown) == 1:
            hint = nearest(unknown[0], [node.name for node in machine.nodes])
            raise InputError(f"{option} {text}: no device is called '{unknown[0]}'; {hint}")
    example = f"{machine.nodes[0].name}-{machine.nodes[len(machine.nodes) - 1].name}"
    raise InputError(f"{option} {text}: names two devices with - between, for example {example}")
