"""Cables at the adapters (NICs) of a file: the rate of each, and notes where an adapter cannot feed them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from simulator.topology.parts import NETWORK_LINKS, LinkPart, NicPart
from simulator.topology.topology import Device, Wire
from simulator.topology.yaml_source import YamlSource
from simulator.units import format_bandwidth


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
    """Return a note, with its position, for adapters whose cables together are faster than themselves.

    *keys* maps each device to its key under ``devices``; the first adapter of a key stands for the others.
    """
    rates_Bps: dict[str, float] = {}
    for wire in wires:
        if wire.part.of in NETWORK_LINKS:
            rate_Bps = wire.count * wire.part.bandwidth * wire.part.efficiency / _directions(wire.part)
            for name in (wire.a, wire.b):
                rates_Bps[name] = rates_Bps.get(name, 0.0) + rate_Bps
    found: dict[str, str] = {}
    for name, rate_Bps in rates_Bps.items():
        adapter = devices[name].part
        if isinstance(adapter, NicPart) and rate_Bps > 1.001 * adapter.bandwidth * adapter.efficiency:
            together, own = format_bandwidth(rate_Bps), format_bandwidth(adapter.bandwidth * adapter.efficiency)
            text = f"{name}: its cables together reach {together}, the adapter {own}; each is simulated by itself"
            found.setdefault(keys[name], str(source.fault(("devices", keys[name]), text, key=True)))
    return list(found.values())
