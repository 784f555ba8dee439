"""A batch divided among different devices: :func:`run_divided`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from simulator.api.alone import check_place
from simulator.api.steps import run_together
from simulator.collectives.communicator import Communicator
from simulator.collectives.request import Unsuitable
from simulator.devices.predict import Device
from simulator.errors import refused
from simulator.places import Place
from simulator.questions.layout import REPLICAS
from simulator.results.training import TrainingResult
from simulator.spelling import mention
from simulator.step.issue import launches_of
from simulator.training.alone import alone_rate, alone_s_of
from simulator.training.division import divide
from simulator.training.plan import SharedStep
from simulator.training.roles import Role
from simulator.training.stragglers import check_stragglers, straggler_pace
from simulator.workload.network import Network


def run_divided(shared: SharedStep, build: Callable[[int], Network]) -> TrainingResult:
    """Return the step in which the GPUs of *shared* and the question's helper CPUs share ``batch`` samples per GPU.

    *build* makes the network of so many samples, which are divided so that all devices finish at the same time, each
    computing alone.  Raises Unsuitable or InputError.
    """
    places, machine, group = shared.places, shared.machine, shared.group
    if not shared.layout.has_replicas:
        raise Unsuitable(f"a batch is divided over whole replicas; {shared.question.layout.words} has none")
    question = replace(shared.question, layout=REPLICAS)  # ranks gain CPUs and lose idle GPUs
    check_stragglers(machine, group.ranks, question.stragglers)
    helpers = [places.find(name) for name in question.helpers]
    for name, place in zip(question.helpers, helpers, strict=True):
        if place.name != place.host or machine.find(place.name) is None:
            raise refused("divided", "no such CPU can help", name)
    if helpers and question.strategy == "nccl":
        raise Unsuitable(
            f"NCCL works between GPUs, but a CPU takes part; use for example {mention('strategy', 'ring')}"
        )
    members: list[tuple[int, Place]] = [(node, places.place(node)) for node in group.ranks]
    members += [(machine.node(place.name).index, place) for place in helpers]
    for _, place in members:
        check_place(place, question)

    @cache
    def time_s(device: Device, pace: float, samples: int) -> float:
        return alone_s_of(device, build(samples), replace(question, micro_batches=1), pace)

    paces = [straggler_pace(machine, node, question.stragglers) for node, _ in members]
    total = question.batch * group.n_ranks
    times = [partial(time_s, place.device, pace) for (_, place), pace in zip(members, paces, strict=True)]
    shares = divide(times, total)
    working = [i for i, share in enumerate(shares) if share]
    roles: dict[object, Role] = {}
    for i in working:
        node, place = members[i]
        key = id(place.device), paces[i], shares[i]
        if key in roles:
            roles[key] = replace(roles[key], count=roles[key].count + 1, nodes=(*roles[key].nodes, node))
        else:
            own = build(shares[i])
            roles[key] = Role(place, node, 1, launches_of(place.device, own, question.options), paces[i], own, (node,))
    together = Communicator(machine, [members[i][0] for i in working], group.router)
    if together.n_ranks < 2:
        raise Unsuitable(
            f"{members[working[0]][1].name} is faster alone than with the others; choose it with {mention('device')}"
        )
    found = run_together(replace(shared, question=question, group=together), list(roles.values()))
    divided = tuple((members[i][1].name, members[i][1].part, shares[i]) for i in range(len(members)))
    everyone = [Role(place, node, 1, ()) for node, place in members]  # with those that get no samples
    return replace(found, shares=divided, alone_rate=alone_rate(everyone, shared.network, question))
