"""Roles: ranks that do the same, one of which stands for all; and what their devices achieve alone."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

from simulator.collectives.communicator import FragmentLoads
from simulator.constants import Constants
from simulator.devices.dispatch import graph_launch_time
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError, mention, nearest, one_line
from simulator.network.machine import Machine
from simulator.places import Place, Places
from simulator.plan.plan import Plan
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, lists_by_key, replace, sums_by_key
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.workload.network import Network, once

_NUMBERED = re.compile(r"gpu(?:\d{1,6}|\[[^\]]*\])", re.ASCII)


def straggler_pace(machine: Machine, node: int, stragglers: Sequence[tuple[str, float]]) -> float:
    """Return the time of *node* relative to the mean of its part."""
    return next((factor for name, factor in stragglers if any(node in meant for meant in _meant(machine, name))), 1.0)


def check_stragglers(machine: Machine, ranks: Sequence[int], stragglers: Sequence[tuple[str, float]]) -> None:
    """Raise InputError if a name in *stragglers* is none of *ranks*, or two have a device in common."""
    if not stragglers:
        return
    from simulator.network.named import names_several

    told: set[int] = set()
    for name, _ in stragglers:
        said, every = mention("stragglers", one_line(name, 60)), _meant(machine, name)
        idle = [meant.isdisjoint(ranks) for meant in every]
        if all(idle) if "*" in name else any(idle):
            on = [f"node{machine.nodes[rank].host}" for rank in ranks] if machine.n_hosts > 1 else []
            known = [*(machine.nodes[rank].name for rank in ranks), *dict.fromkeys(on)]
            what = "not every such device" if names_several(name) and not all(idle) else "no such device"
            raise InputError(f"{said}: {what} takes part; {nearest(name, known)}")
        devices_meant = set().union(*every)
        if twice := told & devices_meant:
            raise InputError(f"{said}: {machine.nodes[min(twice)].name} is given twice")
        told |= devices_meant


@lru_cache(maxsize=256)
def _meant(machine: Machine, name: str) -> tuple[frozenset[int], ...]:
    """Return the nodes of each name: a device's own, gpu3, a machine's (node2); raises InputError if one is unknown."""
    from simulator.network.named import devices, expanded, hosts

    said = mention("stragglers", one_line(name, 60))
    whole = hosts(said, name, machine)
    if whole is not None:
        return tuple(frozenset(node.index for node in machine.nodes_of(host)) for host in whole)
    if name == "gpu*":
        return tuple(frozenset((gpu,)) for gpu in machine.gpus)
    if _NUMBERED.fullmatch(name) is None:
        return tuple(frozenset((node.index,)) for node in devices(said, name, machine))
    found = []
    for each in expanded(said, name):  # the GPU of this name or, if none is, of this number
        number = int(each.removeprefix("gpu"))
        is_number = machine.find(each) is None and number < len(machine.gpus)
        found.append(machine.gpus[number] if is_number else devices(said, each, machine)[0].index)
    return tuple(frozenset((gpu,)) for gpu in found)


def slowest_of(count: int, known: Constants) -> float:
    """Return the slowest of *count* devices relative to the mean: the greatest normal deviate (Blom, 1958)."""
    greatest = NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
    return 1.0 + known["fleet"].device_spread * greatest


MOST_ROLES = 32  # of equal devices that exchanges load unequally


@dataclass(frozen=True, slots=True)
class Role:
    """``count`` ranks on devices of one part."""

    place: Place  # the first device
    node: int
    count: int
    issues: tuple[Launch, ...]  # of each rank in a step
    pace: float = 1.0  # time relative to the mean of their part
    network: Network | None = None  # their own, if their batch differs
    nodes: tuple[int, ...] = ()  # all of them
    less_loaded: float = 0.0  # share by which exchanges load some less than the first

    @property
    def passes(self) -> list[Launch]:
        """What each rank issues before the update."""
        return [issue for issue in self.issues if issue.part != "update"]


def loaded(roles: Sequence[Role]) -> dict[int, float]:
    """Return the GPUs that an exchange of *roles* loads, each with its memory traffic for a byte that it exchanges."""
    return {role.node: role.place.device.constants["contention"].memory_passes for role in roles}


def roles_of(
    places: Places,
    ranks: Sequence[int],
    network: Network,
    options: StepOptions,
    *,
    stragglers: Sequence[tuple[str, float]] = (),  # have roles of their own
    fold: bool = True,  # one role for equal ranks
) -> list[Role]:
    """Return the roles of GPUs *ranks* in a step; without *fold*, one for each.  Raises InputError."""
    machine = places.machine
    found: dict[object, list[int]] = {}
    if stragglers or not fold:
        for rank, node in enumerate(ranks):
            key = (places.place(node).device, straggler_pace(machine, node, stragglers)) if fold else rank
            found.setdefault(key, []).append(node)
    else:
        for nodes in machine.sorts(ranks).values():
            found.setdefault(places.place(nodes[0]).device, []).extend(nodes)
    acting = [(places.place(nodes[0]), nodes) for nodes in found.values()]
    issues = {id(place.device): launches_of(place.device, network, options) for place, _ in acting}
    if options.framework == "adaptdl":
        from simulator.step.gradient_statistics import with_statistics

        devices = {id(place.device): place.device for place, _ in acting}
        issues = {key: with_statistics(devices[key], network, own, alone=False) for key, own in issues.items()}
    paces = [straggler_pace(machine, nodes[0], stragglers) for _, nodes in acting]
    return [
        Role(place, nodes[0], len(nodes), issues[id(place.device)], pace, nodes=tuple(nodes))
        for (place, nodes), pace in zip(acting, paces, strict=True)
    ]


def alike_roles(places: Places, roles: Sequence[Role], plan: Plan) -> list[Role]:
    """Return *roles* divided so that the exchanges of *plan* load all ranks of a role (nearly) alike."""
    parts = (part for task in plan.tasks for part in task.parts if isinstance(part, FragmentLoads))
    loads = list(dict.fromkeys(part.gpu_loads for part in parts))
    kinds = list({each.kind: each for each in loads}.values())
    found = []
    for role in roles:
        alike = lists_by_key((tuple([each.place(node) for each in kinds]), node) for node in role.nodes)
        equal: dict[tuple[float, ...], list[int]] = {}
        for same in alike.values():  # by loads, without the differences that rounding makes
            loads_on = tuple([float(f"{share:.11e}") for each in loads for share in each.on(same[0])])
            equal.setdefault(loads_on, []).extend(same)
        if len(equal) < 2:
            found.append(role)
            continue
        for together in _nearest(equal):
            first, *others = (sorted(equal[each]) for each in together)
            nodes = (*first, *(node for each in others for node in each))
            most, least = sum(together[0]), sum(together[-1])
            less = 1.0 - least / most if most else 0.0
            place, count = places.place(nodes[0]), len(nodes)
            found.append(replace(role, place=place, node=nodes[0], count=count, nodes=nodes, less_loaded=less))
    return found


def _nearest(equal: dict[tuple[float, ...], list[int]]) -> list[list[tuple[float, ...]]]:
    """Return the keys of *equal* in groups, at most ``MOST_ROLES``, each by falling sums and cut at the widest gaps."""
    if len(equal) <= MOST_ROLES:
        return [[each] for each in sorted(equal, key=lambda each: min(equal[each]))]
    falling = sorted(equal, key=sum, reverse=True)
    gaps = sorted(range(1, len(falling)), key=lambda i: sum(falling[i]) - sum(falling[i - 1]))
    cuts = [0, *sorted(gaps[: MOST_ROLES - 1]), len(falling)]
    return [falling[start:end] for start, end in pairwise(cuts)]


_SAME = 1e-9  # relative: two micro-batches whose times differ only by rounding


def alone_rate(roles: Iterable[Role], network: Network, question: StepQuestion) -> float:
    """Return the samples per second of *roles*' devices if all step alone on *network*; raises InputError."""
    counts = sums_by_key((role.place.device, role.count) for role in roles)
    samples = network.samples * question.micro_batches
    times = [(alone_s_of(device, network, question), count) for device, count in counts.items()]
    return float(sum(count * samples / alone_s for alone_s, count in times if alone_s > 0))


def alone_s_of(device: Device, network: Network, question: StepQuestion, pace: float = 1.0) -> float:
    """Return the seconds of a step of *network* on *device* alone, with kernels at *pace*; raises InputError."""
    return _alone_s(device, pace, network, question.options, question.micro_batches)


@once
def _alone_s(device: Device, pace: float, network: Network, options: StepOptions, micro_batches: int) -> float:
    """Return the end of the plan of a step on one device, whose two streams share nothing, in closed form."""
    issues = launches_of(device, network, options)
    passes = [issue for issue in issues if issue.part != "update"]
    captured_s = graph_launch_time(device) if options.cuda_graph else None

    def run(issues: Sequence[Launch], host: float, last: float) -> tuple[float, float]:
        """Return the ends of the host and of the device after *issues*, from *host* and *last* on."""
        for issue in issues:
            if not isinstance(device, Gpu):
                host = last = host + (issue.host_s + issue.device_s)
                continue
            if captured_s is None:
                host = (max(host, last) if issue.waits else host) + issue.host_s
            last = max(host, last) + pace * issue.device_s
        return host, last

    host, last = run([issue for issue in passes if not issue.adds], captured_s or 0.0, 0.0)
    before = (-1.0, -1.0)
    for left in range(micro_batches - 1, 0, -1):
        starts = host, last
        host, last = run(passes, host, last)
        took = host - starts[0], last - starts[1]
        if max(abs(now_s - before_s) for now_s, before_s in zip(took, before, strict=True)) <= _SAME * max(host, last):
            host, last = host + (left - 1) * took[0], last + (left - 1) * took[1]
            break
        before = took
    return max(run([issue for issue in issues if issue.part == "update" and issue.over != "summed"], host, last))
