"""Roles: ranks that do the same.  One of them is simulated and stands for all (:func:`roles_of`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.devices.contention import ContentionCosts
from simulator.places import Place, Places
from simulator.questions.options import StepOptions
from simulator.step.issue import Issue, issues_of
from simulator.training.stragglers import pace_of
from simulator.workload.network import Network

__all__ = ["Role", "loaded", "roles_of"]


@dataclass(frozen=True, slots=True)
class Role:
    """``count`` ranks on devices of one part.

    ``place`` is the first device, ``issues`` what each rank issues in a step.  ``pace``: their time relative to the
    mean of their part.  ``network``: their own network, if their batch differs from the others'.
    """

    place: Place
    node: int
    count: int
    issues: tuple[Issue, ...]
    pace: float = 1.0
    network: Network | None = None


def loaded(roles: Sequence[Role]) -> dict[int, float]:
    """Return the GPUs that an exchange of *roles* loads, each with its memory traffic for a byte that it exchanges."""
    return {role.node: role.place.device.constants(ContentionCosts).memory_passes for role in roles}


def roles_of(
    places: Places,
    ranks: Sequence[int],
    network: Network,
    options: StepOptions,
    *,
    stragglers: Sequence[tuple[str, float]] = (),
    fold: bool = True,
) -> list[Role]:
    """Return the roles of the GPU nodes *ranks* in a step of *network*; without *fold*, each rank has its own.

    *stragglers* have roles of their own.

    Raises InputError if a device lacks a figure that the step needs.
    """
    machine = places.machine
    found: dict[object, list[int]] = {}
    if stragglers or not fold:
        for rank, node in enumerate(ranks):
            key = (places.place(node).device, pace_of(machine, node, stragglers)) if fold else rank
            found.setdefault(key, []).append(node)
    else:
        for nodes in machine.sorts(ranks).values():
            found.setdefault(places.place(nodes[0]).device, []).extend(nodes)
    priced = {id(place.device): place for nodes in found.values() for place in (places.place(nodes[0]),)}
    issues = {key: issues_of(place.device, network, options) for key, place in priced.items()}
    roles = []
    for nodes in found.values():
        place = places.place(nodes[0])
        pace = pace_of(machine, nodes[0], stragglers)
        roles.append(Role(place, nodes[0], len(nodes), issues[id(place.device)], pace))
    return roles
