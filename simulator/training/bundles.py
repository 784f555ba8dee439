"""One flow for the equal routes between the equal nodes of a team and the servers: :func:`bundled`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.collectives.communicator import Communicator
from simulator.network.route import Route

Uses = dict[int, list[tuple[int, float]]]  # by resource: the routes that load it, with their shares


def bundled(
    group: Communicator, cpus: Sequence[int], others: Sequence[int], servers: Sequence[int]
) -> dict[tuple[int, int], Route]:
    """Return routes by (source, target), each of which stands for the routes of all *cpus* to or from a server.

    The keys contain only the first of *cpus*.  A route loads the resources of the first CPU's own route once, and
    resources that all CPUs share once per CPU: progressive filling (Bertsekas, Gallager, Data Networks, section 6.5.2)
    gives equal flows equal rates, so the other CPUs' own resources need not be considered.

    Returns an empty dict if the CPUs are not equal: if one of them is a server, if some but not all share a resource,
    or if a resource used by one alone is also on a route of *others*, the CPUs of all other nodes.
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
    """Return the resources that the routes between *cpu* and each of *servers* load."""
    found: Uses = {}
    for number, server in enumerate(servers):
        if server == cpu:
            continue
        for way, ends in ((2 * number, (cpu, server)), (2 * number + 1, (server, cpu))):
            for resource, share in group.router.route(*ends).loads:
                found.setdefault(resource, []).append((way, share))
    return found
