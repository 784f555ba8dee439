"""Keys and teams of a step through servers: nodes that do the same (docs/decisions/parallelism.md)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Literal

from simulator.collectives.communicator import Communicator
from simulator.collectives.levels import place_servers, worker_cpu
from simulator.network.route import Route
from simulator.records import dataclass, lists_by_key, replace, sums_by_key
from simulator.step.launch import Launch
from simulator.step.precision import gradient_bytes
from simulator.training.data_parallel import ready_after
from simulator.training.plan import SharedStep
from simulator.training.roles import Role, check_stragglers, roles_of
from simulator.workload.network import Network

# Keys with at least this many elements are sliced evenly over all servers; a smaller one is on a single server
# (MXNet 1.9, MXNET_KVSTORE_BIGARRAY_BOUND, docs "Environment Variables").
_SLICED_FROM = 1_000_000
_MOST_ACTIVITIES = 500_000  # times teams, as sharing the links takes longer with more of them: up to 20 s to simulate
_OF_KEY = 11  # activities of a team for each key of a step
MOST_FLOWS = 600  # of a key at once: a step with more takes minutes to simulate


@dataclass(frozen=True, slots=True)
class Key:
    """The parameters of a layer, as servers hold them."""

    layer: str
    ready_after: int  # issue that completes their gradients
    needed_by: int  # issue that reads them first
    size_bytes: float
    shares_bytes: tuple[float, ...]  # on each server


def keys_of(
    network: Network, passes: Sequence[Launch], element_bytes: int, n_servers: int, *, spread: bool = False
) -> list[Key]:
    """Return *network*'s keys, last layer first; small ones to the emptiest server, *spread* ones to all."""
    number_of = {layer.name: number for number, layer in enumerate(network.layers)}
    backwards = reversed([*enumerate(network.layers)])
    first_use = {parameter.name: number for number, layer in backwards for parameter in layer.parameters}
    forward = [(number_of[issue.layer], i) for i, issue in enumerate(passes) if issue.part == "forward"]
    held_bytes = [0.0] * n_servers
    keys = []
    for place, parameters in enumerate(ready_after(passes, network)):
        if not parameters:
            continue
        first = min(first_use[parameter.name] for parameter in parameters)
        needed_by = next((i for number, i in forward if number >= first), len(passes) - 1)
        elements = sum(parameter.elements for parameter in parameters)
        size_bytes = float(elements * element_bytes)
        if spread or elements >= _SLICED_FROM:
            shares = [size_bytes / n_servers] * n_servers
        else:
            shares = [0.0] * n_servers
            shares[held_bytes.index(min(held_bytes))] = size_bytes
        held_bytes = [held + share for held, share in zip(held_bytes, shares, strict=True)]
        keys.append(Key(passes[place].layer, place, needed_by, size_bytes, tuple(shares)))
    return keys


@dataclass(frozen=True)
class Loss:
    """The server with index ``server`` is lost at ``at_s`` seconds."""

    server: int
    at_s: float
    spans_s: Mapping[tuple[str, int, int], tuple[float, float]]  # without the loss, over all teams, by stage, step, key

    def progress(self, stage: str, step: int, key: int) -> Literal["done", "under way", "not begun"]:
        """Return the progress of *stage* of *key* at the loss; it is done only if it was for all teams."""
        start_s, end_s = self.spans_s.get((stage, step, key), (float("inf"), float("inf")))
        if end_s <= self.at_s:
            return "done"
        return "under way" if start_s < self.at_s else "not begun"

    def without(self, key: Key) -> Key:
        """Return *key* spread over the remaining servers."""
        kept = [0.0 if j == self.server else share for j, share in enumerate(key.shares_bytes)]
        shares = zip(kept, self.only(key).shares_bytes, strict=True)
        return replace(key, shares_bytes=tuple(own + more for own, more in shares))

    def only(self, key: Key) -> Key:
        """Return the lost server's part of *key*, spread over the remaining servers."""
        left = len(key.shares_bytes) - 1
        more = key.shares_bytes[self.server] / left
        return replace(key, shares_bytes=tuple(0.0 if j == self.server else more for j in range(left + 1)))


@dataclass(frozen=True, slots=True)
class NodeTeam:
    """Equal nodes, with the CPUs ``cpus``."""

    cpus: tuple[int, ...]
    ranks: tuple[int, ...]  # of the first node
    roles: tuple[Role, ...]  # of its GPUs, with the count of the whole team
    spread: bool = False  # servers hold unlike keys, which count as spread evenly

    @property
    def gpu_count(self) -> int:
        """GPUs of all nodes in the team."""
        return sum(role.count for role in self.roles)


def servers_of(group: Communicator, count: int | None, places: tuple[str, ...]) -> tuple[int, ...]:
    """Return the CPUs that serve *group*, as in :func:`simulator.collectives.levels.place_servers`."""
    cpus = [worker_cpu(group.router, group.ranks[ranks[0]]) for ranks in group.by_host().values()]
    return place_servers(group.machine, cpus, count, places)


def teams_of(shared: SharedStep, servers: Sequence[int], n_steps: int) -> tuple[list[NodeTeam], int | None]:
    """Return the teams of *shared*, and the most that are simulated if there are more; or InputError, Unsuitable."""
    machine, group, network, question = shared.machine, shared.group, shared.network, shared.question
    check_stragglers(machine, group.ranks, question.stragglers)
    nodes: dict[int, NodeTeam] = {}  # by host: a team of it alone
    for host, ranks in group.by_host().items():
        gpus = [group.ranks[rank] for rank in ranks]
        roles = roles_of(shared.places, gpus, network, question.options, stragglers=question.stragglers)
        nodes[host] = NodeTeam((worker_cpu(group.router, gpus[0]),), tuple(ranks), tuple(roles))
    if not shared.fold:
        return list(nodes.values()), None
    passes = next(iter(nodes.values())).roles[0].passes
    keys = keys_of(network, passes, gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32), len(servers))
    held: dict[int, list[tuple[int, tuple[float, ...]]]] = {}  # by host its servers' places and shares of each key
    for number, server in enumerate(servers):
        _, host, index = machine.locate(server)
        held.setdefault(host, []).append((index, tuple(key.shares_bytes[number] for key in keys)))
    exact: dict[object, list[NodeTeam]] = {}
    rough: dict[object, list[NodeTeam]] = {}
    for host, node in nodes.items():
        first = machine.gpus_of(host)[0]
        same = (
            machine.like(host),
            tuple(group.ranks[rank] - first for rank in node.ranks),
            tuple((id(role.place.device), role.pace, role.node - first) for role in node.roles),
        )
        own = tuple(sorted(held.get(host, ())))
        exact.setdefault((same, own) if question.staleness == 0 else host, []).append(node)
        rough.setdefault((same, tuple(index for index, _ in own)), []).append(node)
    # Two teams always are simulated, each for itself, and more if their activities, with those of the host, are few.
    issues = sum(len(role.passes) for team in exact.values() for role in team[0].roles)
    activities = n_steps * (2 * issues / len(exact) + _OF_KEY * len(keys))
    most = max(2, isqrt(int(_MOST_ACTIVITIES / activities)))
    if question.staleness != 0:
        most = min(most, MOST_FLOWS // len(servers))
    holding = len(servers) > 1 and any(host in held for host in nodes)  # unlike keys
    if len(rough) < len(exact) > most:
        return [_team(alike, spread=holding) for alike in rough.values()], most
    return [_team(alike) for alike in exact.values()], None


def _team(nodes: Sequence[NodeTeam], *, spread: bool = False) -> NodeTeam:
    roles = tuple(replace(role, count=role.count * len(nodes)) for role in nodes[0].roles)
    return NodeTeam(tuple(cpu for node in nodes for cpu in node.cpus), nodes[0].ranks, roles, spread)


def bundled(
    group: Communicator, cpus: Sequence[int], others: Sequence[int], servers: Sequence[int]
) -> dict[tuple[int, int], Route]:
    """Return routes that stand for those of equal *cpus* to and from servers, by ends; {} if they are unequal."""
    if len(cpus) < 2 or not set(cpus).isdisjoint(servers):
        return {}
    uses = [_uses(group, cpu, servers) for cpu in cpus]
    counts = Counter(resource for own in uses for resource in own)
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
            links = sums_by_key(link for route in routes for link in route.links)
            loads = tuple([(r, share * (len(cpus) if r in shared else 1)) for r, share in first.loads])
            found[ends] = replace(first, links=tuple(sorted(links.items())), loads=loads)
    return found


def _uses(group: Communicator, cpu: int, servers: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
    """Return by resource the routes between *cpu* and each of *servers* that load it, with their shares."""
    ends = enumerate(pair for server in servers for pair in ((cpu, server), (server, cpu)))
    routes = ((way, group.router.route(a, b)) for way, (a, b) in ends if a != b)
    return lists_by_key((resource, (way, share)) for way, route in routes for resource, share in route.loads)
