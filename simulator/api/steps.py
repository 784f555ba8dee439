"""One step of a network on one or several devices, which may share its batch unevenly."""

from collections.abc import Callable, Sequence
from functools import cache, partial

from simulator.api.context import perturbations_of
from simulator.collectives.communicator import Communicator, Unsuitable
from simulator.devices.predict import Device
from simulator.engine.executor import alone, execute
from simulator.engine.timeline import Timeline
from simulator.errors import InputError, mention, refused
from simulator.network.machine import Machine
from simulator.places import Place, Places
from simulator.plan.plan import Fragment, Perturbation, Plan
from simulator.questions.checks import changed
from simulator.questions.layout import REPLICAS
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.results.ran import StreamUse, run_counts, stream_uses
from simulator.results.step import StepResult, make_step_result, of_programs, peak_of, torch_flop_of
from simulator.results.training import StepAccount, TrainingResult, by_part, exchanged_in, training_result
from simulator.results.training_run import DeviceMemory
from simulator.step.issue import launches_of
from simulator.training import divide
from simulator.training.memory import alone_memory, device_memory, saved_shares
from simulator.training.micro_batches import Batches, periods_s
from simulator.training.plan import PROGRAM, SharedStep, contend, plan_alone, plan_offloaded_alone, plan_step
from simulator.training.roles import (
    Role,
    alike_roles,
    alone_rate,
    alone_s_of,
    check_stragglers,
    roles_of,
    straggler_pace,
)
from simulator.training.schedules import in_flight, passing_each
from simulator.training.worker import STREAM
from simulator.workload.network import Network, block_name

_EXPLICIT = (3, 6, 12)  # micro-batches simulated one by one, tried in turn until their times are periodic


def run_alone(places: Places, place: Place, network: Network, question: StepQuestion) -> TrainingResult:
    """Return the result of a step of *network* on *place* alone; raises InputError."""
    memory, timeline = alone_memory(network, question, place.device), alone_timeline(places, place, network, question)
    prefix, count = f"{PROGRAM} 0/" if question.programs > 1 else "", question.micro_batches
    step = make_step_result(place, network, question.options, memory, timeline, prefix, count)
    step = of_programs(step, question.programs)
    return TrainingResult(
        question=question,
        step=step,
        device_count=1,
        alone_rate=step.throughput,
        memory=(DeviceMemory(step.part, 1, step.memory, step.peak_flops_per_s),),
        streams=stream_uses(timeline),
        timeline=timeline,
    )


def together_timeline(shared: SharedStep, roles: list[Role] | None = None) -> tuple[list[Role], Timeline]:
    """Return the roles of the ranks in a step, and its timeline; raises Unsuitable or InputError."""
    machine, question, fold = shared.machine, shared.question, shared.fold
    check_stragglers(machine, shared.group.ranks, question.stragglers)
    if shared.layout.pp > 1:
        from simulator.api.pipeline import run_pipeline

        run = run_pipeline(shared)
        return [stage.role for stage in run.stages], run.timeline
    acting = roles or roles_of(
        shared.places,
        shared.group.ranks,
        shared.part,
        question.rank_options,
        stragglers=question.stragglers,
        fold=fold and not question.one_process,  # it launches for one rank after the other
    )
    few = Batches(min(2, question.micro_batches))  # the last one exchanges more than the others
    known: Plan | None = None

    def write(batches: Batches) -> Plan:
        return known if known is not None and batches == few else plan_step(shared, acting, batches)

    if fold and contend(question):
        known = write(few)
        finer = alike_roles(shared.places, acting, known)
        if len(finer) > len(acting):
            acting, known = finer, None
    perturbations = perturbations_of(machine, question.where.slow_links)
    return acting, executed(write, machine, question.micro_batches, fold=fold, perturbations=perturbations)


def run_together(shared: SharedStep, roles: list[Role] | None = None) -> TrainingResult:
    """Return the result of *shared*, in *roles* or those of the ranks' parts; raises Unsuitable or InputError."""
    question = shared.question
    if question.has_servers:
        from simulator.api.servers import run_servers

        return run_servers(shared)
    if question.strategy.startswith("parameter-server") and not question.layout.has_replicas:
        raise Unsuitable(f"servers keep the parameters of whole replicas; {question.layout.words} has none")
    if shared.layout.pp > 1:
        return _run_stages(shared)
    roles, timeline = together_timeline(shared, roles)
    networks = [role.network or shared.part for role in roles]
    needs = [
        device_memory(own, question, role.place.device, shared.layout, placement=shared.placement)
        for role, own in zip(roles, networks, strict=True)
    ]
    alone_s, rate = _alone(shared, roles)
    prefixes = [f"{role.place.name}/" if len(roles) > 1 else "" for role in roles]
    slowest, account = _slowest_of(timeline, prefixes, alone_s)
    role, count = roles[slowest], question.micro_batches
    seen = role.place, networks[slowest], question.rank_options, needs[slowest]
    step = make_step_result(*seen, timeline, prefixes[slowest], count)
    step = step if role.network else _of_whole(step, shared)
    memory = by_part(roles, list(zip(networks, needs, strict=True)), question.rank_options)
    return training_result(shared, step, roles, slowest, timeline, alone_rate=rate, memory=memory, account=account)


def _alone(shared: SharedStep, roles: Sequence[Role]) -> tuple[list[float], float]:
    """Return the seconds of a step of each of *roles* alone, and the samples per second of all so."""
    question, network = shared.question, shared.network
    if question.offload == "none":
        alone_s = [alone_s_of(role.place.device, role.network or network, question, role.pace) for role in roles]
        return alone_s, alone_rate(roles, network, question)
    whole = changed(question, layout=REPLICAS, gpus=(0,), stragglers=())  # each host updates all parameters
    alone_s = [role.pace * alone_timeline(shared.places, role.place, network, whole).end_s for role in roles]
    samples = network.samples * question.micro_batches
    return alone_s, sum(role.count * samples * role.pace / each for role, each in zip(roles, alone_s, strict=True))


def _slowest_of(timeline: Timeline, prefixes: list[str], alone_s: list[float]) -> tuple[int, StepAccount]:
    """Return the number of the role that is slowest, or exchanges most, and its account; *prefixes*: of streams."""
    uses = dict(sorted(stream_uses(timeline).items(), key=lambda use: use[0].endswith(STREAM)))  # compute streams first
    of_roles = [uses.get(f"{prefix}compute", StreamUse()) for prefix in prefixes]
    slowest = max(range(len(prefixes)), key=lambda i: (alone_s[i], round(of_roles[i].busy_s, 12)))
    waits_s = of_roles[slowest].waits_s.items()
    exposed_s = sum(waited_s for stream, waited_s in waits_s if stream.endswith(STREAM))
    exchanging_s = sum(use.busy_s for stream, use in uses.items() if stream.endswith(STREAM))
    tasks = zip(timeline.plan.tasks, run_counts(timeline), strict=True)
    fragments = [(part, n) for task, n in tasks for part in task.parts if isinstance(part, Fragment)]
    largest = max((part for part, _ in fragments), key=lambda part: alone(timeline.machine, part).end_s, default=None)
    exposed_s = min(exposed_s, exchanging_s)
    return slowest, StepAccount(uses, exposed_s, exchanging_s, largest, fragments, exchanged_in(timeline))


def _of_whole(step: StepResult, shared: SharedStep) -> StepResult:
    """Return one rank's *step* with tokens and parameters of the whole network, and an equal share of its FLOPs."""
    network, count = shared.network, shared.question.micro_batches
    flop = torch_flop_of(network, step.options) * count / shared.layout.model_ranks
    counts = {name: getattr(network, name) for name in ("parameter_count", "trained_count")}
    return replace(step, torch_flop=flop, tokens=network.tokens * count, **counts)


def _run_stages(shared: SharedStep) -> TrainingResult:
    question, layout, count = shared.question, shared.layout, shared.question.micro_batches
    from simulator.api.pipeline import run_pipeline

    run, passing = run_pipeline(shared), passing_each(layout, count)
    devices = []
    for number, each in enumerate(run.stages):
        place, saved = each.role.place, saved_shares(shared.part, question, layout, number)
        kept = in_flight(layout, number, count, saved)
        need = device_memory(each.network, question, place.device, layout, kept, shared.placement)
        peak = peak_of(each.network, question.rank_options, place)
        devices.append(DeviceMemory(place.part, each.role.count, need, peak, number, each.network, saved))
    # The busiest tells of the step; one with the embedding or the logits alone is not like the network.
    told = [n for n in range(layout.pp) if any(block_name(layer.name) for layer in run.stages[n].network.layers)]
    told = told if layout.blocks and told else [*range(layout.pp)]
    busiest = max(told, key=lambda number: (round(run.stages[number].busy_s(passing), 12), -number))
    stage, roles = run.stages[busiest], [stage.role for stage in run.stages]
    seen = stage.role.place, stage.network, question.rank_options, devices[busiest].need
    step = _of_whole(make_step_result(*seen, run.timeline, f"stage {busiest}/", count), shared)
    rate, account = alone_rate(roles, shared.network, question), run.account(busiest, passing)
    return training_result(
        shared, step, roles, busiest, run.timeline, alone_rate=rate, memory=tuple(devices), account=account
    )


def with_offload(result: TrainingResult, ranks: Sequence[int]) -> TrainingResult:
    """Return *result*, of a step of the GPU nodes *ranks* whose host updates, with what that costs."""
    from simulator.results.offload import offload_run

    step = result.step
    prefix = f"{step.device}/" if f"{step.device}/compute" in result.streams else ""  # of one of several
    run = offload_run(result.question, step.network, step.timeline, prefix, ranks)
    return replace(result, offload=run, exposed_s=min(result.exposed_s, run.exposed_exchange_s))


def check_place(place: Place, question: StepQuestion) -> None:
    """Raise InputError if *place* is a CPU and *question* has options for GPUs."""
    if place.name != place.host:
        return
    if question.options.cuda_graph or question.options.cuda_graph_blocks:
        raise InputError(f"{place.name} is a CPU; a CUDA graph is for GPUs")
    if question.programs > 1:
        raise refused("programs", f"{place.name} is a CPU; programs share a GPU here", question.programs)
    if question.offload != "none":
        raise refused("offload", f"{place.name} is a CPU; the host's memory is its own", question.offload)


def alone_timeline(
    places: Places, place: Place, network: Network, question: StepQuestion, *, host_scale: float = 1.0
) -> Timeline:
    """Return a step of *network* on *place* alone, launched *host_scale* times as slowly; raises InputError."""
    check_place(place, question)
    machine, offloads = places.machine, question.offload != "none"
    issues = launches_of(place.device, network, question.rank_options if offloads else question.options)
    if question.options.framework == "adaptdl":
        from simulator.step.gradient_statistics import with_statistics

        issues = with_statistics(place.device, network, issues, alone=True)
    node = machine.find(place.name)
    check_stragglers(machine, () if node is None else (node.index,), question.stragglers)
    pace = 1.0 if node is None else straggler_pace(machine, node.index, question.stragglers)
    if host_scale != 1.0:
        issues = tuple(replace(issue, host_s=host_scale * issue.host_s) for issue in issues)
    role = Role(place, -1, 1, issues, pace)
    write = partial(plan_alone, machine, role, question)
    if offloads:
        write = partial(plan_offloaded_alone, places, role, network, question)
    return executed(write, machine, question.micro_batches)


def executed(
    write: Callable[..., Plan],
    machine: Machine,
    count: int,
    *,
    fold: bool = True,
    perturbations: tuple[Perturbation, ...] = (),
) -> Timeline:
    """Execute the plan that *write* returns; periodic ones among *count* micro-batches pass at once."""
    if perturbations:
        plan = write(batches=Batches(count))
        return execute(machine, replace(plan, perturbations=(*plan.perturbations, *perturbations)), fold=fold)
    for explicit in _EXPLICIT if fold else ():
        if count <= 2 * (explicit + 1):  # to find the period takes as long
            break
        first = execute(machine, write(batches=Batches(explicit + 1)), fold=fold)
        found = periods_s(first.plan.tasks, [span.end_s for span in first.spans], explicit)
        if found is not None:
            return execute(machine, write(batches=Batches(count, explicit, found)), fold=fold)
    return execute(machine, write(batches=Batches(count)), fold=fold)


def run_divided(shared: SharedStep, build: Callable[[int], Network]) -> TrainingResult:
    """Return the step in which GPUs and helping CPUs share the samples so that all end at once; or Unsuitable."""
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
        other = mention("strategy", "ring")
        raise Unsuitable(f"NCCL works between GPUs, but a CPU takes part; use for example {other}")
    members: list[tuple[int, Place]] = [(node, places.place(node)) for node in group.ranks]
    members += [(machine.node(place.name).index, place) for place in helpers]
    for _, place in members:
        check_place(place, question)

    @cache
    def time_s(device: Device, pace: float, samples: int) -> float:
        return alone_s_of(device, build(samples), replace(question, micro_batches=1), pace)

    paces = [straggler_pace(machine, node, question.stragglers) for node, _ in members]
    times = [partial(time_s, place.device, pace) for (_, place), pace in zip(members, paces, strict=True)]
    shares = divide(times, question.batch * group.n_ranks + question.remainder)
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
        name = members[working[0]][1].name
        raise Unsuitable(f"{name} is faster alone than with the others; choose it with {mention('device')}")
    found = run_together(replace(shared, question=question, group=together), list(roles.values()))
    divided = tuple((members[i][1].name, members[i][1].part, shares[i]) for i in range(len(members)))
    everyone = [Role(place, node, 1, ()) for node, place in members]  # with those that get no samples
    return replace(found, shares=divided, alone_rate=alone_rate(everyone, shared.network, question))
