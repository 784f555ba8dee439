"""Scheduling anomalies: right answers that break "faster is never slower".  Each class has a condition and its proof.

Choices
    A strategy fixes rings, orders, pieces, algorithm and protocol before it starts, by estimates from the machine's
    figures: NCCL by its planning numbers, a tree by the order of ranks that an alpha-beta estimate likes.  Other
    figures may lead to another choice, which may be worse.  *Condition*: the two plans differ in more than latencies,
    and the plan made for the slower machine is, executed on the faster one, not slower than it was.

    So may another size: below 4 KiB NCCL 2.4 sends twice the bytes (LL) where its planning numbers say that this is
    faster, which a slow network belies.  *Condition*: the two sizes differ in algorithm or protocol, the estimate of
    the smaller is the lower, and with the choice of the larger the smaller is not slower than the larger.

    In a step, it is exchanges that are chosen so.  *Condition*: where one takes longer alone on the faster machine, its
    plan for the slower machine would not; all else is the same, and takes no longer.

Sharing (Graham 1969: a list schedule may become longer when its tasks become shorter)
    In a graph of flows without a limit of slots, ends are longest paths: if no flow lasted longer, no end would be
    later.  A flow alone lasts as long as its links say, which are not slower.  So a later end needs a flow that lasts
    longer by sharing: one that was held back elsewhere now arrives earlier, or takes more of a link that both cross
    (max-min shares of one flow fall when another's own limit rises).  *Condition*: the same plan is slower on the
    faster machine, where no capacity is lower and no latency longer; no slots limit it, and flows cross the same links.

    In a step, kernels and exchanges share multiprocessors and memory besides, and later kernels meet other exchanges.
    *Condition*: without contention the step keeps the rule, and with it the difference is below 1 %.  Or, where the
    step breaks it without contention too: both plans do the same work in the same order, none of which takes longer
    alone on the faster machine, and transfers cross the same links or wait for the same slots.

Ties
    Of equally good choices the first in the file is taken, so the order of its lines may lead to another ring.
    *Condition*: the plans differ in the links that they cross, by the devices' names.

In flight
    Smaller micro-batches hold less while no more of them are in flight.  Where all m are (GPipe), their activations are
    A together however they are cut, and after the first backward pass A (m - 1)/m of them stand beside all gradients:
    this rises with m.  *Condition*: more are in flight, and the rise is at most one micro-batch's activations, A/m.
    (With fewer, the peak may be the update, which holds no activations; then the rise is smaller.)

Compiled blocks
    Blocks that are recomputed are compiled one by one, so that what one group would have kept inside is kept between
    two.  At a peak outside all blocks, which recomputation does not lower, this is a rise.  *Condition*: compiled, and
    the rise is at most what those groups keep beyond the groups without recomputation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from simulator.engine.executor import execute
from simulator.engine.timeline import Timeline
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.plan.plan import Activity, Flow, Fragment, Part, Plan, Work
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.results.training_run import DeviceMemory
from simulator.step.conversions import formats_of
from simulator.step.fusion import Partition
from simulator.training.schedules import in_flight
from simulator.workload.backward import saved_tensors
from simulator.workload.network import Network
from tests.property.asking import Asker, RefusedError
from tests.property.questions import Question

ANOMALY = "anomaly: "
_REL = 1e-6
_SLIGHTLY = 0.01


def anomaly(asker: Asker, slow: Question, fast: Question) -> str:
    """Return the class of the anomaly in which *fast*, on a faster machine, is slower than *slow*; empty if none.

    Both ask for the same exchange on machines that differ in figures only.
    """
    if slow.kind != "exchange" or slow.get("workload") != fast.get("workload"):
        return ""
    (slower, before), (faster, after) = asker.plan(slow), asker.plan(fast)
    if list(slower.resource_names) != list(faster.resource_names):
        return ""
    was_s, is_s = execute(slower, before).end_s, execute(faster, before).end_s
    other_plan = _shape(before) != _shape(after)
    if is_s <= was_s * (1 + _REL) and other_plan:
        return f"{ANOMALY}choice of {slow.get('strategy', 'nccl')}"
    plan = before if other_plan else after
    is_faster = all(one <= other for one, other in zip(slower.capacity_Bps, faster.capacity_Bps, strict=True)) and all(
        _latency_s(one) >= _latency_s(other) for one, other in zip(_flows(before), _flows(plan), strict=True)
    )
    return f"{ANOMALY}sharing" if is_faster and not plan.queues and _shares(plan) else ""


def choice_of_size(asker: Asker, more: Question, fewer: Question) -> str:
    """Return the class of the anomaly in which *fewer* bytes are slower than *more*; empty if none."""
    if more.kind != "exchange":
        return ""
    (session, large), (_, small) = (asker.question(each) for each in (more, fewer))
    assert isinstance(large, CollectiveQuestion)
    assert isinstance(small, CollectiveQuestion)
    if small.strategy != "nccl":
        return ""
    facts, other = (session.collective(each).facts for each in (large, small))
    chosen, instead = ((each["algorithm"], each["protocol"]) for each in (facts, other))
    if chosen == instead or float(other["planned_us"]) > float(facts["planned_us"]):
        return ""
    algorithm, protocol = (str(each) for each in chosen)
    same_way = replace(small, algorithm=algorithm, protocol=protocol)
    is_found = session.collective(same_way).sync_time_s <= session.collective(large).sync_time_s * (1 + _REL)
    return f"{ANOMALY}choice at another size" if is_found else ""


def anomaly_of_step(asker: Asker, slow: Question, fast: Question) -> str:
    """Return the class of the anomaly in which a step is slower than *slow*; empty if none."""
    if slow.kind != "step":
        return ""
    slower, faster = (asker.answer(each.having(contention=False)).timeline for each in (slow, fast))
    if none_is_longer(slower, faster, by_choice=True) and not none_is_longer(slower, faster):
        return f"{ANOMALY}choice of {slow.get('strategy', 'nccl')} in a step"
    times = [asker.time(each.having(contention=how)) for how in (None, False) for each in (slow, fast)]
    if times[1] > times[0] * (1 + _SLIGHTLY):
        return ""
    if times[3] <= times[2] * (1 + _REL):
        return f"{ANOMALY}contention"
    meets = bool(slower.plan.queues) or _shares(slower.plan)
    return f"{ANOMALY}sharing in a step" if meets and none_is_longer(slower, faster) else ""


def none_is_longer(slower: Timeline, faster: Timeline, *, by_choice: bool = False) -> bool:
    """Return whether *faster* does what *slower* does, in the same order, and nothing of it takes longer alone.

    *by_choice*: an exchange may take longer if another plan was chosen for it, and the one of *slower* would not.
    """
    if slower.plan.perturbations or faster.plan.perturbations or slower.plan.queues != faster.plan.queues:
        return False
    if len(slower.plan.tasks) != len(faster.plan.tasks):
        return False
    pairs = list(zip(slower.plan.tasks, faster.plan.tasks, strict=True))
    alike = all(
        (one.stream, one.after, one.repeat, one.takes, one.gives, len(one.parts))
        == (other.stream, other.after, other.repeat, other.takes, other.gives, len(other.parts))
        for one, other in pairs
    )
    parts = (both for one, other in pairs for both in zip(one.parts, other.parts, strict=True)) if alike else ()
    return alike and all(
        _alone_s(faster.machine, other) <= (was_s := _alone_s(slower.machine, one) * (1 + _REL))
        or (by_choice and _is_other_plan(one, other) and _alone_s(faster.machine, one) <= was_s)
        for one, other in parts
    )


def _is_other_plan(one: Part, other: Part) -> bool:
    return isinstance(one, Fragment) and isinstance(other, Fragment) and _shape(one.plan) != _shape(other.plan)


def _alone_s(machine: Machine, part: Part) -> float:
    """Return the seconds that *part* takes with nothing beside it."""
    if isinstance(part, Work):
        return part.duration_s
    plan = part.plan if isinstance(part, Fragment) else Plan((Activity(0, "", "", (), (part,)),))
    return execute(machine, plan).end_s


def in_flight_rise(asker: Asker, larger: Question, smaller: Question) -> str:
    """Return the class where *smaller* micro-batches, more of them in flight, take more memory; empty if none."""
    try:
        (_, one), (_, other) = asker.question(larger), asker.question(smaller)
    except InputError:
        return ""
    assert isinstance(one, StepQuestion)
    assert isinstance(other, StepQuestion)
    before, after = (in_flight(each.layout, 0, each.micro_batches) for each in (one, other))
    if one.layout.pp == 1 or after <= before:
        return ""
    try:
        first, second = (asker.answer(each).memory for each in (larger, smaller))
    except RefusedError:
        return ""
    (was, is_now) = (max(first, key=_total), max(second, key=_total))
    rise = _total(is_now) - _total(was)
    waiting = is_now.need.activations_bytes  # A (m' - 1)/m' or a little more, where the peak is in a backward pass
    held = waiting * after / max(1.0, after - 1.0) / before
    return f"{ANOMALY}in flight" if 0 < rise <= held else ""


def compiled_apart(asker: Asker, without: Question, recomputed: Question) -> str:
    """Return the class where recomputation, which compiles blocks one by one, takes more memory; empty if none."""
    (session, plain), (_, again) = (asker.question(each) for each in (without, recomputed))
    assert isinstance(plain, StepQuestion)
    assert isinstance(again, StepQuestion)
    if not plain.options.compiled:
        return ""
    network = session.network(plain)
    kept, kept_apart = (_kept_bytes(network, each.options, in_blocks=each is again) for each in (plain, again))
    was, is_now = (max(_total(device) for device in asker.answer(each).memory) for each in (without, recomputed))
    return f"{ANOMALY}compiled apart" if 0 < is_now - was <= kept_apart - kept else ""


def _kept_bytes(network: Network, options: StepOptions, *, in_blocks: bool) -> int:
    formats = formats_of(network, options, in_blocks=in_blocks)
    return Partition(network, formats, saved_tensors(network, formats), in_blocks=in_blocks).saved().total_bytes


def _total(device: DeviceMemory) -> float:
    return device.need.allocated_bytes


def tie(asker: Asker, one: Question, other: Question, new: Callable[[str], str]) -> str:
    """Return the class where two files in other orders lead to other choices; *new* renames the devices of *one*."""
    if one.kind != "exchange":
        return ""
    (machine, plan), (machine_2, plan_2) = asker.plan(one), asker.plan(other)
    same = _crossed(machine, plan, new) == _crossed(machine_2, plan_2, str)
    return "" if same else f"{ANOMALY}tie"


def _crossed(machine: Machine, plan: Plan, new: Callable[[str], str]) -> list[object]:
    """Return the links that the flows of each task cross, by the names of their ends."""

    def name(node: int) -> str:
        host, dot, device = machine.nodes[node].name.rpartition(".")
        return host + dot + new(device)

    ends = {link.index: (name(link.src), name(link.dst)) for link in machine.links}
    return [
        (task.repeat, sorted((f.bytes, f.count, sorted((ends[n], s) for n, s in f.route.links)) for f in task.flows))
        for task in plan.tasks
    ]


def _flows(plan: Plan) -> list[Flow]:
    return [flow for task in plan.tasks for flow in task.flows]


def _latency_s(flow: Flow) -> float:
    return flow.latency_s + flow.route.latency_s


def _shape(plan: Plan) -> list[object]:
    """Return what *plan* does, apart from latencies."""
    return [
        (task.stream, task.after, task.repeat, [(f.route.loads, f.bytes, f.count, f.overhead) for f in task.flows])
        for task in plan.tasks
    ]


def _shares(plan: Plan) -> bool:
    """Return whether any link is crossed by several flows."""
    crossed = Counter(number for flow in _flows(plan) for number, _ in flow.route.loads)
    return max(crossed.values(), default=0) > 1
