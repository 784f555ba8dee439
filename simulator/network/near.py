"""An order of machines in which neighbours are near each other in the network: :func:`near_each_other`."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.network.machine import Machine


def near_each_other(machine: Machine, hosts: Sequence[int]) -> list[int]:
    """Return *hosts* switch by switch, each switch followed by the one with the fewest hops that is left.

    Otherwise the order stays, and it does not change where the network has a single switch.
    """
    network = machine.runs[-1]
    own = range(network.node, network.node + network.n_own)
    switches = [node for node in own if machine.nodes[node].kind == "network-switch"]
    if len(switches) < 2:
        return list(hosts)
    wanted = set(hosts)
    below: dict[int, list[int]] = {}
    placed: set[int] = set()
    for switch in switches:
        for link in machine.outgoing[switch]:
            host = machine.nodes[link.dst].host
            if host in wanted and host not in placed:
                placed.add(host)
                below.setdefault(switch, []).append(host)
    left = dict.fromkeys(below)
    found = [host for host in hosts if host not in placed]
    at = next(iter(left), None)
    while at is not None:
        del left[at]
        found += sorted(below[at], key=hosts.index)
        at = _nearest(machine, at, left)
    return found


def _nearest(machine: Machine, switch: int, left: dict[int, None]) -> int | None:
    """Return the switch of *left* with the fewest hops from *switch*, the first of several; None if none is left."""
    seen, frontier = {switch}, [switch]
    while frontier:
        reached = {link.dst for at in frontier for link in machine.outgoing[at]} - seen
        seen |= reached
        frontier = sorted(node for node in reached if machine.nodes[node].kind == "network-switch")
        near = next((each for each in left if each in reached), None)
        if near is not None:
            return near
    return next(iter(left), None)
