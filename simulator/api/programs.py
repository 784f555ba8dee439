"""A program on a machine: written as a plan, executed and evaluated."""

from __future__ import annotations

from simulator.api.context import Context
from simulator.collectives.registry import strategy_of
from simulator.collectives.request import Request
from simulator.effects import data_file
from simulator.engine.executor import execute
from simulator.errors import InputError, refused
from simulator.plan.plan import Plan
from simulator.programs.costs import ProgramPricer
from simulator.programs.loops import write_loop
from simulator.programs.reader import load_program
from simulator.programs.statements import CollectiveStatement, check_program
from simulator.programs.writer import Writer
from simulator.questions.options import StepOptions
from simulator.questions.single import ProgramQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import TODAY
from simulator.results.program import ProgramResult, make_program_result
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

    def collective(exchange: CollectiveStatement) -> Plan:
        group = context.group(question.where, tuple(range(exchange.gpus)))
        name: Collective = exchange.collective  # type: ignore[assignment]  # the reader has checked it
        request = Request(group, name, exchange.size_bytes)
        return strategy_of(exchange.strategy, TODAY, constants=context.constants).plan(request)

    costs = ProgramPricer(program.software, network, collective, compiled=question.compiled, captured=question.captured)
    writer = Writer(
        program, places, context.router(question.where), costs, question.device, question.threads, write_loop
    )
    writer.block(program.body)
    if (question.compiled or question.captured) and not costs.has_networks:
        done = "compiled" if question.compiled else "captured"
        raise InputError(f"{question.workload}: the program runs no network that could be {done}; operators stay eager")
    if question.threads is not None and not writer.runs_on_cpu:
        raise refused("threads", f"applies to a CPU; {question.workload} runs nothing on one")
    timeline = execute(places.machine, writer.builder.build())
    return make_program_result(program.name, places.machine.name, writer.default, writer.state, timeline)
