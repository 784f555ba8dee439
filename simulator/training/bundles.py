"""Equal nodes of a team whose ways to the servers pass as one flow each: :func:`bundled`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.collectives.communicator import Communicator
from simulator.network.route import Route

__all__ = ["bundled"]

Uses = dict[int, list[tuple[int, float]]]  # by resource: which ways load it, and with which share


def bundled(
    group: Communicator, cpus: Sequence[int], others: Sequence[int], servers: Sequence[int]
) -> dict[tuple[int, int], Route]:
    """Return, by source and target, one route that stands for those from each of *cpus* to a server, or back.

    It loads what is the first's alone once, and what all load as often as there are *cpus*: progressive filling
    (Bertsekas, Gallager, Data Networks, section 6.5.2) gives equal flows equal rates, so what is another's alone
    need not be looked at.  Its keys are the pairs of the first of *cpus*.

    Empty where they are not equal: where one holds a server, where some share what others do not, or where what is
    one's alone is also on the ways of *others*, which are the CPUs of all other nodes.
    """
    if len(cpus) < 2 or not set(cpus).isdisjoint(servers):
        return {}
    uses = [_uses(group, cpu, servers) for cpu in cpus]
    counts: dict[int, int] = {}
    for own in uses:
        for resource in own:
            counts[resource] = counts.get(resource, 0) + 1
    elsewhere = {resource for cpu in others for resource in _uses(group, cpu, servers)}
    shared = {resource for resource, count in counts.items() if count == len(cpus)}
    if any(resource not in shared and (n > 1 or resource in elsewhere) for resource, n in counts.items()):
        return {}
    capacity_Bps = group.machine.capacity_Bps
    forms = [
        (
            {resource: ways for resource, ways in own.items() if resource in shared},
            sorted((capacity_Bps[resource], ways) for resource, ways in own.items() if resource not in shared),
        )
        for own in uses
    ]
    if any(form != forms[0] for form in forms):
        return {}
    found = {}
    for server in servers:
        for ends in ((cpus[0], server), (server, cpus[0])):
            routes = [group.router.route(*(cpu if end == cpus[0] else end for end in ends)) for cpu in cpus]
            first = routes[0]
            if any(route.latency_s != first.latency_s for route in routes):
                return {}
            links: dict[int, float] = {}
            for route in routes:
                for link, share in route.links:
                    links[link] = links.get(link, 0.0) + share
            loads = tuple([(r, share * (len(cpus) if r in shared else 1)) for r, share in first.loads])
            found[ends] = replace(first, links=tuple(sorted(links.items())), loads=loads)
    return found


def _uses(group: Communicator, cpu: int, servers: Sequence[int]) -> Uses:
    """Return what the ways between *cpu* and each of *servers* load."""
    found: Uses = {}
    for number, server in enumerate(servers):
        if server == cpu:
            continue
        for way, ends in ((2 * number, (cpu, server)), (2 * number + 1, (server, cpu))):
            for resource, share in group.router.route(*ends).loads:
                found.setdefault(resource, []).append((way, share))
    return found
