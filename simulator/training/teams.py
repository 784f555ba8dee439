"""Teams: nodes that do the same in a step through parameter servers.  One node is simulated and stands for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.collectives.communicator import Communicator
from simulator.collectives.servers import place_servers, worker_cpu
from simulator.places import Places
from simulator.questions.options import StepOptions
from simulator.training.roles import Role, roles_of
from simulator.training.stragglers import check_stragglers
from simulator.workload.network import Network

__all__ = ["Team", "servers_of", "teams_of"]


@dataclass(frozen=True, slots=True)
class Team:
    """Equal nodes, with the CPUs ``cpus``.

    ``ranks`` are those of the first node; ``roles`` those of its GPUs, each with the count of the whole team.
    """

    cpus: tuple[int, ...]
    ranks: tuple[int, ...]
    roles: tuple[Role, ...]

    @property
    def gpu_count(self) -> int:
        """GPUs of all nodes in the team."""
        return sum(role.count for role in self.roles)


def servers_of(group: Communicator, count: int | None, places: tuple[str, ...]) -> tuple[int, ...]:
    """Return the CPUs that serve *group*, as in :func:`simulator.collectives.servers.place_servers`."""
    cpus = [worker_cpu(group.router, group.ranks[ranks[0]]) for ranks in group.by_host().values()]
    return place_servers(group.machine, cpus, count, places)


def teams_of(
    places: Places,
    group: Communicator,
    network: Network,
    options: StepOptions,
    servers: Sequence[int],
    *,
    stragglers: Sequence[tuple[str, float]] = (),
    fold: bool = True,
) -> list[Team]:
    """Return the teams of *group*; without *fold*, each node is one.

    Nodes are equal if the same GPUs of equal machines take part, at the same pace, with as many *servers* on the node.

    Raises InputError if a device lacks a figure, or a straggler takes no part; Unsuitable if a node has no CPU.
    """
    machine = group.machine
    check_stragglers(machine, group.ranks, stragglers)
    found: dict[object, list[tuple[int, list[int], list[Role]]]] = {}
    for host, ranks in group.by_host().items():
        gpus = [group.ranks[rank] for rank in ranks]
        roles = roles_of(places, gpus, network, options, stragglers=stragglers)
        cpu = worker_cpu(group.router, gpus[0])
        first = machine.gpus_of(host)[0]
        key = (
            machine.like(host),
            tuple(gpu - first for gpu in gpus),
            tuple((id(role.place.device), role.pace, role.node - first) for role in roles),
            sum(server == cpu for server in servers),
        )
        found.setdefault(key if fold else host, []).append((cpu, ranks, roles))
    return [
        Team(
            cpus=tuple(cpu for cpu, _, _ in nodes),
            ranks=tuple(nodes[0][1]),
            roles=tuple(replace(role, count=role.count * len(nodes)) for role in nodes[0][2]),
        )
        for nodes in found.values()
    ]
