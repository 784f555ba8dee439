"""Teams: nodes that do the same in a step through parameter servers.  One node is simulated and stands for all.

Two nodes do the same if exchanging them changes nothing: they are equal machines, with the same GPUs at the same pace,
and hold equal shares of every key.  A small key is on one server only, so each node with a server is usually a team of
its own.  Where nodes do not wait for each other in every step, each is one: servers serve one of them before the other,
so equal nodes do not stay in step.

One flow stands for the equal routes between the equal nodes of a team and the servers (:func:`bundled`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isqrt
from typing import NamedTuple

from simulator.collectives.communicator import Communicator
from simulator.collectives.parameter_server import place_servers, worker_cpu
from simulator.network.route import Route
from simulator.records import dataclass, replace
from simulator.training.data_parallel import gradient_bytes
from simulator.training.keys import Key, keys_of
from simulator.training.plan import SharedStep
from simulator.training.roles import Role, check_stragglers, roles_of

_MOST_ACTIVITIES = 500_000  # times teams, as sharing the links takes longer with more of them: up to 20 s to simulate
_OF_KEY = 11  # activities of a team for each key of a step
MOST_FLOWS = 600  # of a key at once: a step with more takes minutes to simulate


@dataclass(frozen=True, slots=True)
class NodeTeam:
    """Equal nodes, with the CPUs ``cpus``.

    ``ranks`` are those of the first node; ``roles`` those of its GPUs, each with the count of the whole team.
    ``spread``: the nodes' servers hold unlike keys, which count as spread evenly over all servers.
    """

    cpus: tuple[int, ...]
    ranks: tuple[int, ...]
    roles: tuple[Role, ...]
    spread: bool = False

    @property
    def gpu_count(self) -> int:
        """GPUs of all nodes in the team."""
        return sum(role.count for role in self.roles)


def servers_of(group: Communicator, count: int | None, places: tuple[str, ...]) -> tuple[int, ...]:
    """Return the CPUs that serve *group*, as in :func:`simulator.collectives.parameter_server.place_servers`."""
    cpus = [worker_cpu(group.router, group.ranks[ranks[0]]) for ranks in group.by_host().values()]
    return place_servers(group.machine, cpus, count, places)


def teams_of(shared: SharedStep, servers: Sequence[int], n_steps: int) -> tuple[list[NodeTeam], int | None]:
    """Return the teams of *shared* in *n_steps* steps through *servers*; without its ``fold``, each node is one.

    If there are too many teams to simulate, equal nodes with as many servers form one, though they are served one after
    the other or hold different keys.  In step, all of them would send each key to one server at once, which nodes that
    drift apart do not; so keys count as spread over all servers, whose adapters carry as much.  Then the second value
    is the largest number of teams that is simulated, otherwise None.

    Raises InputError if a device lacks a figure, or a straggler takes no part; Unsuitable if a node has no CPU.
    """
    machine, group, network, question = shared.machine, shared.group, shared.network, shared.question
    check_stragglers(machine, group.ranks, question.stragglers)
    nodes: dict[int, _Node] = {}
    for host, ranks in group.by_host().items():
        gpus = [group.ranks[rank] for rank in ranks]
        roles = roles_of(shared.places, gpus, network, question.options, stragglers=question.stragglers)
        nodes[host] = _Node(worker_cpu(group.router, gpus[0]), ranks, roles)
    if not shared.fold:
        return [_team([node]) for node in nodes.values()], None
    passes = [issue for issue in next(iter(nodes.values())).roles[0].issues if issue.part != "update"]
    element = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    keys = keys_of(network, passes, element, len(servers))
    held = _held(group, servers, keys)
    exact: dict[object, list[_Node]] = {}
    rough: dict[object, list[_Node]] = {}
    for host, node in nodes.items():
        first = machine.gpus_of(host)[0]
        same = (
            machine.like(host),
            tuple(group.ranks[rank] - first for rank in node.ranks),
            tuple((id(role.place.device), role.pace, role.node - first) for role in node.roles),
        )
        own = held.get(host, ())
        exact.setdefault((same, own) if question.staleness == 0 else host, []).append(node)
        rough.setdefault((same, tuple(index for index, _ in own)), []).append(node)
    most = _most(exact.values(), len(keys), n_steps)
    if question.staleness != 0:
        most = min(most, MOST_FLOWS // len(servers))
    holding = len(servers) > 1 and any(host in held for host in nodes)  # unlike keys
    if len(rough) < len(exact) > most:
        return [_team(alike, spread=holding) for alike in rough.values()], most
    return [_team(alike) for alike in exact.values()], None


class _Node(NamedTuple):
    """A working node: its CPU, ranks and roles."""

    cpu: int
    ranks: list[int]
    roles: list[Role]


def _team(nodes: Sequence[_Node], *, spread: bool = False) -> NodeTeam:
    first = nodes[0]
    return NodeTeam(
        cpus=tuple(node.cpu for node in nodes),
        ranks=tuple(first.ranks),
        roles=tuple(replace(role, count=role.count * len(nodes)) for role in first.roles),
        spread=spread,
    )


def _most(teams: Collection[Sequence[_Node]], n_keys: int, n_steps: int) -> int:
    """Return how many teams like *teams* are simulated, each for itself; two always are."""
    issues = sum(issue.part != "update" for nodes in teams for role in nodes[0].roles for issue in role.issues)
    activities = n_steps * (2 * issues / len(teams) + _OF_KEY * n_keys)  # of a team, with those of the host
    return max(2, isqrt(int(_MOST_ACTIVITIES / activities)))


def _held(
    group: Communicator, servers: Sequence[int], keys: Sequence[Key]
) -> dict[int, tuple[tuple[int, tuple[float, ...]], ...]]:
    """Return by host its servers, each with its place in the host and its share of each key in bytes."""
    found: dict[int, list[tuple[int, tuple[float, ...]]]] = {}
    for number, server in enumerate(servers):
        _, host, index = group.machine.locate(server)
        found.setdefault(host, []).append((index, tuple(key.shares_bytes[number] for key in keys)))
    return {host: tuple(sorted(own)) for host, own in found.items()}


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
