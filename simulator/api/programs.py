"""Programs and Chakra traces on a machine, executed and evaluated; the ranks of a step written as a trace."""

from functools import cache
from typing import cast

from simulator.api.context import Context
from simulator.api.steps import together_timeline
from simulator.collectives.communicator import Request, Strategy, Unsuitable
from simulator.collectives.registry import strategy_of
from simulator.effects import data_file
from simulator.engine.executor import execute
from simulator.errors import InputError, counted, mention, refused
from simulator.host.copies import copy_plan
from simulator.plan.plan import Fragment, Part, Plan
from simulator.programs.chakra import read_chakra
from simulator.programs.chakra_plan import ChakraCosts, plan_trace
from simulator.programs.costs import Bound, ProgramPricer, State
from simulator.programs.loops import write_loop
from simulator.programs.reader import load_program
from simulator.programs.statements import Statement, check_program
from simulator.programs.writer import Writer
from simulator.questions.options import StepOptions
from simulator.questions.single import CopyQuestion, ProgramQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import TODAY
from simulator.results.chakra import chakra_files
from simulator.results.program import ProgramResult, make_program_result
from simulator.training.micro_batches import Batches
from simulator.training.plan import SharedStep, plan_step
from simulator.workload import Collective
from simulator.workload.network import Network


def run_program(context: Context, question: ProgramQuestion) -> ProgramResult:
    """Return the result of a program, whose own code runs only if trusted; raises InputError with all faults."""
    with data_file(trusted=question.trust_code):
        return _result(context, question)


def _result(context: Context, question: ProgramQuestion) -> ProgramResult:
    places = context.places(question.where)
    program = load_program(question.workload, question.text)
    check_program(program, places, question.device)

    def network(name: str, batch: int, options: StepOptions) -> Network:
        return context.network(StepQuestion(where=question.where, workload=name, batch=batch, options=options))

    def collective(exchange: Statement) -> Plan:
        group = context.group(question.where, tuple(range(exchange.keys.gpus)))
        request = Request(group, cast(Collective, exchange.keys.exchange), exchange.size_bytes)
        return strategy_of(exchange.keys.strategy, TODAY, constants=context.constants).plan(request)

    costs = ProgramPricer(program.software, network, collective, compiled=question.compiled, captured=question.captured)
    router = context.router(question.where)
    writer = Writer(program, places, router, costs, question.device, question.threads, write_loop)
    writer.block(program.body)
    if (question.compiled or question.captured) and not costs.has_networks:
        done = "compiled" if question.compiled else "captured"
        raise InputError(f"{question.workload}: the program runs no network that could be {done}; operators stay eager")
    if question.threads is not None and not writer.runs_on_cpu:
        raise refused("threads", f"applies to a CPU; {question.workload} runs nothing on one")
    timeline = execute(places.machine, writer.builder.build())
    return make_program_result(program.name, places.machine.name, writer.default, writer.state, timeline)


def run_trace(context: Context, question: ProgramQuestion) -> ProgramResult:
    """Return the result of a trace, rank *r* on GPU *r*; raises InputError with all faults of its files."""
    for name in ("device", "threads", "compiled", "captured"):
        if getattr(question, name):
            raise refused(name, "is of a program; a Chakra trace says what each rank runs, and where")
    where = question.where
    trace = read_chakra(question.workload)
    places, group, router = context.places(where), context.group(where, None), context.router(where)
    count = len(trace.ranks)
    if count > group.n_ranks:
        has = f"{places.machine.name} has {counted(group.n_ranks, 'GPU')}"
        raise InputError(f"{question.workload}: has {counted(count, 'rank')}; {has} ({mention('nodes', 2)} joins two)")
    strategy = strategy_of("nccl", TODAY, constants=context.constants)
    at = [places.place(node) for node in group.ranks[:count]]

    @cache
    def exchange(ranks: tuple[int, ...], op: Collective, size_bytes: float) -> Fragment:
        among = group if len(ranks) == group.n_ranks else group.part(ranks)
        return _planned(strategy, Request(among, op, size_bytes))

    @cache
    def transfer(src: int, dst: int, size_bytes: float) -> Fragment:
        return _planned(strategy, Request(group.part([src, dst]), "send-recv", size_bytes, pairs=((0, 1),)))

    def copy(rank: int, inward: bool, size_bytes: float) -> list[tuple[Part, ...]]:
        asked = CopyQuestion(where=where, kind="h2d" if inward else "d2h", size_bytes=size_bytes, src=rank)
        return [task.parts for task in copy_plan(asked, places, router).tasks]

    def computing(rank: int, flop: float, size_bytes: float) -> tuple[float, Bound]:
        device = places.gpu(rank)
        peak = device.peak_flops_per_s.get("fp16") or device.peak("fp32")
        flop_s, memory_s = flop / peak, size_bytes / device.memory_bandwidth_Bps
        return (flop_s, "arithmetic") if flop_s > memory_s else (memory_s, "memory")

    costs = ChakraCosts([place.name for place in at], [place.host for place in at], exchange, transfer, copy, computing)
    plan = plan_trace(trace, costs)
    state = State(operators=sum(node.kind in ("compute", "host") for nodes in trace.ranks for node in nodes.values()))
    state.copies = len(plan.tasks) - state.operators
    timeline = execute(places.machine, plan)
    return make_program_result(trace.name, places.machine.name, counted(count, "rank"), state, timeline)


def check_ranks(question: StepQuestion) -> None:
    """Raise InputError if a step of *question* has no form as a trace."""
    if question.has_servers or question.one_process or question.programs > 1 or question.divided or question.input:
        what = "no servers, unequal shares, programs, input, or processes of several GPUs"
        raise InputError(f"a Chakra trace has equal ranks alone, and {what}")


def written_ranks(shared: SharedStep) -> dict[str, bytes]:
    """Return the files of *shared*'s trace, as :func:`chakra_files`; raises as it does, and Unsuitable."""
    roles, timeline = together_timeline(shared)
    group, placement = shared.group, shared.placement
    streams = [""] * group.n_ranks
    if shared.layout.pp > 1:
        for stage in range(shared.layout.pp):
            for rank in placement.stage_ranks(stage):
                streams[rank] = f"stage {stage}/"
    else:
        timeline = execute(shared.machine, plan_step(shared, roles, Batches(shared.question.micro_batches)))
        place = {node: rank for rank, node in enumerate(group.ranks)}
        for role in roles if len(roles) > 1 else ():
            for node in role.nodes:
                streams[place[node]] = f"{role.place.name}/"
    return chakra_files(timeline, group.ranks, streams)


def _planned(strategy: Strategy, request: Request) -> Fragment:
    try:
        return Fragment(strategy.plan(request))
    except Unsuitable as error:
        raise InputError(f"{strategy.name} does not fit: {error.why}") from None
