"""One operation alone: an operator, a copy, a launch, memory accesses, a disk, a message, a core's latencies.

Operators have only a time (``TIMES``, seconds); the others also have a limiter with its reason (``ANSWERS``).
``LEAST`` holds the baselines in seconds from the data sheet alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError
from simulator.questions.access import AccessQuestion
from simulator.questions.copy import CopyQuestion
from simulator.questions.core import CoreQuestion
from simulator.questions.disk import DiskQuestion
from simulator.questions.launch import LaunchQuestion
from simulator.questions.message import MessageQuestion
from simulator.questions.operator import OperatorQuestion

if TYPE_CHECKING:  # the models are imported on first use
    from simulator.api.context import Context
    from simulator.host.answer import Answer
else:
    Answer = Any

__all__ = ["ANSWERS", "LEAST", "TIMES"]


def _operator_s(context: Context, question: OperatorQuestion) -> float:
    from simulator.step.operator import operator_s

    return operator_s(question, context.device(question.where, question.device, question.threads))


def _operator_bound_s(context: Context, question: OperatorQuestion) -> float:
    from simulator.step.operator import operator_roofline_s

    return operator_roofline_s(question, context.device(question.where, question.device, question.threads))


def _copy(context: Context, question: CopyQuestion) -> Answer:
    from simulator.engine.executor import execute
    from simulator.host.copies import copy_plan, copy_within_s
    from simulator.host.copy_reason import copy_answer
    from simulator.host.unread import check_copy

    check_copy(question)
    places, router = context.places(question.where), context.group(question.where, None).router
    time_s = copy_within_s(question, places)
    if time_s is None:
        time_s = execute(places.machine, copy_plan(question, places, router)).end_s
    return copy_answer(question, places, router, time_s)


def _copy_bound_s(context: Context, question: CopyQuestion) -> float:
    from simulator.host.copies import copy_bound_s

    return copy_bound_s(question, context.places(question.where), context.group(question.where, None).router)


def _launch(context: Context, question: LaunchQuestion) -> Answer:
    from simulator.host.launches import launch_answer

    return launch_answer(question, context.device(question.where, question.device))


def _launch_bound_s(context: Context, question: LaunchQuestion) -> float:
    from simulator.host.launches import launch_kernels_s

    return launch_kernels_s(question, context.device(question.where, question.device))


def _access(context: Context, question: AccessQuestion) -> Answer:
    from simulator.host.memory import access_answer

    return access_answer(question, context.machine(question.where), context.places(question.where))


def _access_bound_s(context: Context, question: AccessQuestion) -> float:
    from simulator.host.memory import access_bound_s

    return access_bound_s(question, context.device(question.where, question.device, question.threads))


def _disk(context: Context, question: DiskQuestion) -> Answer:
    from simulator.engine.executor import execute
    from simulator.host.disks import disk_answer, requests_plan

    machine = context.machine(question.where)
    answer = disk_answer(question, machine, context.places(question.where))
    found = None if question.hit_percent else requests_plan(machine, question)
    if found is None:
        return answer
    plan, blocks = found  # a queue with slots, which the engine simulates
    return replace(answer, time_s=max(answer.time_s, execute(machine, plan).end_s / blocks))


def _disk_bound_s(context: Context, question: DiskQuestion) -> float:
    from simulator.host.disks import disk_bound_s

    return disk_bound_s(question, context.machine(question.where))


def _message(context: Context, question: MessageQuestion) -> Answer:
    from simulator.host.messages import message_answer

    return message_answer(question, context.places(question.where), context.router(question.where))


def _message_bound_s(context: Context, question: MessageQuestion) -> float:
    from simulator.host.messages import message_bound_s

    return message_bound_s(question, context.router(question.where))


def _core(context: Context, question: CoreQuestion) -> Answer:
    from simulator.host.core import core_answer

    return core_answer(question, context.machine(question.where))


def _no_least(_context: Context, _question: CoreQuestion) -> float:
    raise InputError("a latency has no rate")


TIMES: dict[type, Callable[[Context, Any], float]] = {
    OperatorQuestion: _operator_s,
}
ANSWERS: dict[type, Callable[[Context, Any], Answer]] = {
    CopyQuestion: _copy,
    LaunchQuestion: _launch,
    AccessQuestion: _access,
    DiskQuestion: _disk,
    MessageQuestion: _message,
    CoreQuestion: _core,
}
LEAST: dict[type, Callable[[Context, Any], float]] = {
    OperatorQuestion: _operator_bound_s,
    CopyQuestion: _copy_bound_s,
    LaunchQuestion: _launch_bound_s,
    AccessQuestion: _access_bound_s,
    DiskQuestion: _disk_bound_s,
    MessageQuestion: _message_bound_s,
    CoreQuestion: _no_least,
}
