"""The plan of a step over one or several devices: ``plan_step``."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from simulator.collectives.communicator import Communicator, ConcurrentGroups, Strategy, Unsuitable
from simulator.errors import mention
from simulator.kept import Kept
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.places import Places
from simulator.plan.plan import Plan, PlanBuilder
from simulator.questions.layout import REPLICAS, Layout
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, fields, sums_by_key
from simulator.training import divided
from simulator.training.data_parallel import StepOutline, Sums, write_data_parallel
from simulator.training.micro_batches import Batches
from simulator.training.placement import Placement
from simulator.training.roles import Role, loaded, slowest_of
from simulator.training.worker import HOST, GroupExchange, OpenExchange, RankRoles, Worker, parts_of
from simulator.workload.network import Network

PROGRAM = "program"
_DRAFTS = Kept(4)  # of the last questions alone: a plan of many layers takes tens of megabytes
_OF_ALL_STRATEGIES = tuple(each.name for each in fields(StepQuestion) if each.name != "strategy")


@dataclass(frozen=True)
class SharedStep:
    """A step of ``question`` that the ranks of ``group`` share."""

    places: Places
    network: Network  # undivided, of a micro-batch
    question: StepQuestion
    group: Communicator
    strategy: Strategy  # for gradients or shards
    layer_strategy: Strategy  # for tensors within layers
    fold: bool = True  # simulate equal ranks, and micro-batches that repeat, as one

    @property
    def machine(self) -> Machine:
        """The machine of the ranks."""
        return self.group.machine

    @cached_property
    def placement(self) -> Placement:
        """Where the ranks are in the layout; raises InputError if it does not fit so many."""
        return Placement(self.group, self.question.layout.on(self.group.n_ranks))

    @property
    def layout(self) -> Layout:
        """The layout with all degrees."""
        return self.placement.layout

    @cached_property
    def part(self) -> Network:
        """The work of one rank, in a pipeline of one of each stage; raises InputError if it cannot be divided so."""
        return divided(self.network, self.layout, captured=self.question.options.cuda_graph)


def plan_alone(machine: Machine, role: Role, question: StepQuestion, batches: Batches) -> Plan:
    """Return the plan of a step on the only device; of all its programs, which take turns, if there are several."""
    builder, captured, turns = PlanBuilder(), question.options.cuda_graph, f"turns on {role.place.name}"
    crew = crew_of(builder, machine, [role], question, contends=False)
    if question.programs > 1:
        builder.queues[turns] = 1
        prefixes = [f"{PROGRAM} {number}/" for number in range(question.programs)]
        own: dict[str, Any] = {"captured": captured, "pace": role.pace, "turns": turns}
        crew = RankRoles([(role, Worker(builder, machine, role.place, prefix=prefix, **own)) for prefix in prefixes])
    for number in batches:
        crew.go_on(batches.skip(builder, number))
        for same in crew.passes():
            crew.issue(same, micro_batch=number)
    crew.update((), batches.last)
    return builder.build()


def plan_offloaded_alone(
    places: Places, role: Role, network: Network, question: StepQuestion, batches: Batches
) -> Plan:
    """Return the plan of a step on the only device, which has *role*, where the host updates; raises InputError."""
    from simulator.training.offload import OffloadWriter, write_offloaded

    machine, builder = places.machine, PlanBuilder()
    crew = crew_of(builder, machine, [role], question, contends=False)
    offload = OffloadWriter(builder, places, Router(machine), [machine.node(role.place.name).index], question)
    outline = StepOutline(builder, crew, network, question, REPLICAS, [Sums()], batches)
    if offload.scheme.has_parameters:
        from simulator.training.sharded import write_sharded

        write_sharded(outline, offload)
    else:
        write_offloaded(outline, offload, copies=question.bucket_bytes > 0)
    return builder.build()


def plan_step(shared: SharedStep, roles: Sequence[Role], batches: Batches) -> Plan:
    """Return the plan of *shared*; strategies share what they do not change of it.  Raises Unsuitable."""
    question = shared.question
    if question.one_process:
        return _plan_process(shared, roles)
    key = (
        id(shared.group),
        id(shared.network),
        *[getattr(question, name) for name in _OF_ALL_STRATEGIES],
        shared.layer_strategy if question.layout.divides_network else None,
        *[(role.node, role.nodes, role.pace, id(role.issues)) for role in roles],
        batches.count,
        batches.explicit,
        *batches.period_s.items(),
    )
    # The plan but for the strategy of its exchanges of gradients and parameters, which are left open.
    plan, left_open, _ = _DRAFTS.once(key, lambda: (*_draft(shared, roles, batches), (shared, roles)))
    loads_on = loaded(roles) if contend(question) else {}
    return plan.with_parts(parts_of(left_open, shared.strategy, loads_on))


def _draft(shared: SharedStep, roles: Sequence[Role], batches: Batches) -> tuple[Plan, list[OpenExchange]]:
    question, network, placement, layout = shared.question, shared.part, shared.placement, shared.layout
    builder, contends, left_open = PlanBuilder(), contend(question), list[OpenExchange]()
    exchanges = layer_exchanges(builder, shared, loaded(roles) if contends else {})
    crew = crew_of(builder, shared.machine, roles, question, contends=contends, exchanges=exchanges)

    def exchange(bundles: Sequence[ConcurrentGroups]) -> GroupExchange | None:
        return GroupExchange(builder, bundles, left_open, turns=_turns(layout)) if bundles[0].n_ranks > 1 else None

    def sums_of(*, experts: bool) -> Sums:
        among = placement.shard_groups, placement.replica_groups
        shards, replicas = (exchange(groups(0, experts=experts)) if layout.zero else None for groups in among)
        return Sums(exchange(placement.data_groups(0, experts=experts)), shards, replicas, question.sum_of_shards)

    both = [sums_of(experts=experts) for experts in ((False, True) if layout.has_experts_apart else (False,))]
    outline = StepOutline(builder, crew, network, question, layout, both, batches)
    copies, offload = contends and question.bucket_bytes > 0, None
    if question.offload != "none":
        from simulator.training.offload import OffloadWriter, write_offloaded

        group = shared.group
        offload = OffloadWriter(builder, shared.places, group.router, group.ranks, question)
    if both[0].shards is not None and layout.zero == 3:
        from simulator.training.sharded import write_sharded

        write_sharded(outline, offload)
    elif offload is not None:
        write_offloaded(outline, offload, copies=copies)
    else:
        write_data_parallel(outline, copies=copies)
    return builder.build(), left_open


def _plan_process(shared: SharedStep, roles: Sequence[Role]) -> Plan:
    from simulator.training.one_process import write_data_parallel_module, write_process

    builder, question, placement = PlanBuilder(), shared.question, shared.placement
    options = question.options
    if options.mode != "train":
        raise Unsuitable(
            f"one process that feeds all GPUs is simulated for {mention('mode', 'train')}, not {options.mode}"
        )
    if question.micro_batches > 1:
        raise Unsuitable("a step of one process that feeds all GPUs has one batch, and no micro-batches")
    crew = crew_of(builder, shared.machine, roles, question, contends=False)
    router = placement.group.router
    if shared.layout.process == "loop":
        write_process(crew, router, shared.part, options, builder)
    else:
        among = GroupExchange(builder, placement.data_groups(0), shared.strategy)
        write_data_parallel_module(crew, router, shared.part, options, among)
    return builder.build()


def contend(question: StepQuestion) -> bool:
    """Return whether devices wait for the slowest one, and kernels share resources with exchanges."""
    trains = question.options.trains or question.layout.zero == 3
    return question.contention and trains and not question.one_process


def crew_of(
    builder: PlanBuilder,
    machine: Machine,
    roles: Sequence[Role],
    question: StepQuestion,
    *,
    contends: bool,
    exchanges: Mapping[str, GroupExchange] | None = None,
) -> RankRoles:
    """Return the workers of *roles*, each at its pace or, where all wait for it, at that of the slowest equal device.

    Also one process for all GPUs waits for the slowest; its kernels share nothing with exchanges (*contends*).
    """
    waits = contends or question.one_process
    alike = sums_by_key((role.place.device, role.count) for role in roles)  # ranks by model
    workers = []
    for role in roles:
        place, device = role.place, role.place.device
        worker = Worker(
            builder,
            machine,
            place,
            captured=question.options.cuda_graph,
            loads=contends,
            pace=role.pace * (slowest_of(alike[device], device.constants) if waits else 1.0),
            prefix=f"{place.name}/" if len(roles) > 1 else "",
            host_stream=HOST if question.one_process else "",
        )
        workers.append((role, worker))
    beside = "tp" if question.layout.tp_overlap else ""
    return RankRoles(workers, exchanges, beside, blocking=question.options.launch_blocking)


def _turns(layout: Layout) -> str:
    """Return the queue of the default process group, whose communicator statistics and gradients share."""
    return "collectives of the default group" if layout.sync_bn else ""


def layer_exchanges(
    builder: PlanBuilder, shared: SharedStep, loads_on: Mapping[int, float]
) -> dict[str, GroupExchange]:
    """Return the exchanges within layers, by axis, each on its own stream."""
    flex, strategy, turns = shared.layout.flex, shared.layer_strategy, _turns(shared.layout)
    return {
        axis: GroupExchange(
            builder, found, strategy, loads_on, stream=f"{axis} communication", once=flex and axis == "ep", turns=turns
        )
        for axis, found in shared.placement.within_layers().items()
    }
