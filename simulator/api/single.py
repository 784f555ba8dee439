"""One operation alone: ``ANSWERS`` have a time and its limiter, ``LEAST`` baselines from the data sheet alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.api.context import Context
from simulator.engine.executor import execute
from simulator.host.answer import HostTime, check_copy
from simulator.host.copies import copy_answer, copy_bound_s, copy_plan, copy_within_s
from simulator.host.disks import disk_answer, disk_bound_s, requests_plan
from simulator.host.launches import core_answer, launch_answer, launch_kernels_s
from simulator.host.memory import access_answer, access_bound_s
from simulator.host.messages import message_answer, message_bound_s
from simulator.questions.single import CopyQuestion, DiskQuestion
from simulator.records import replace
from simulator.step.operator import operator_roofline_s


def _copy(context: Context, question: CopyQuestion) -> HostTime:
    check_copy(question)
    places, router = context.places(question.where), context.group(question.where, None).router
    time_s = copy_within_s(question, places)
    if time_s is None:
        time_s = execute(places.machine, copy_plan(question, places, router)).end_s
    return copy_answer(question, places, router, time_s)


def _disk(context: Context, question: DiskQuestion) -> HostTime:
    machine = context.machine(question.where)
    answer = disk_answer(question, machine, context.places(question.where))
    found = None if question.hit_percent else requests_plan(machine, question)
    if found is None:
        return answer
    plan, blocks = found  # a queue with slots, which the engine simulates
    return replace(answer, time_s=max(answer.time_s, execute(machine, plan).end_s / blocks))


ANSWERS: dict[str, Callable[[Context, Any], HostTime]] = {
    "copy": _copy,
    "launch": lambda context, q: launch_answer(q, context.device(q.where, q.device)),
    "access": lambda context, q: access_answer(q, context.machine(q.where), context.places(q.where)),
    "disk": _disk,
    "message": lambda context, q: message_answer(q, context.places(q.where), context.router(q.where)),
    "core": lambda context, q: core_answer(q, context.machine(q.where)),
}
LEAST: dict[str, Callable[[Context, Any], float]] = {
    "operator": lambda context, q: operator_roofline_s(q, context.device(q.where, q.device, q.threads)),
    "copy": lambda context, q: copy_bound_s(q, context.places(q.where), context.group(q.where, None).router),
    "launch": lambda context, q: launch_kernels_s(q, context.device(q.where, q.device)),
    "access": lambda context, q: access_bound_s(q, context.device(q.where, q.device, q.threads)),
    "disk": lambda context, q: disk_bound_s(q, context.machine(q.where)),
    "message": lambda context, q: message_bound_s(q, context.router(q.where)),
}
