"""Questions whose answers are seconds alone: operators, copies, launches; and of a program when all is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError
from simulator.questions.copy import CopyQuestion
from simulator.questions.launch import LaunchQuestion
from simulator.questions.operator import OperatorQuestion
from simulator.questions.program import ProgramQuestion

if TYPE_CHECKING:  # the models are imported when one is asked for
    from simulator.api.session import Session

__all__ = ["SINGLE_LEAST", "SINGLE_TIMES"]


def _operator_s(session: Session, question: OperatorQuestion) -> float:
    from simulator.step.operator import operator_s

    return operator_s(question, session.device(question.where, question.device, question.threads))


def _operator_bound_s(session: Session, question: OperatorQuestion) -> float:
    from simulator.step.operator import operator_roofline_s

    return operator_roofline_s(question, session.device(question.where, question.device, question.threads))


def _copy_s(session: Session, question: CopyQuestion) -> float:
    from simulator.engine.executor import execute
    from simulator.host.copies import copy_plan, copy_within_s

    places = session.places(question.where)
    within_s = copy_within_s(question, places)
    if within_s is not None:
        return within_s
    router = session.group(question.where, None).router
    return execute(places.machine, copy_plan(question, places, router)).end_s


def _copy_bound_s(session: Session, question: CopyQuestion) -> float:
    from simulator.host.copies import copy_bound_s

    return copy_bound_s(question, session.places(question.where), session.group(question.where, None).router)


def _launch_s(session: Session, question: LaunchQuestion) -> float:
    from simulator.host.launches import launch_s

    return launch_s(question, session.device(question.where, question.device))


def _launch_bound_s(session: Session, question: LaunchQuestion) -> float:
    from simulator.host.launches import launch_kernels_s

    return launch_kernels_s(question, session.device(question.where, question.device))


def _program_s(session: Session, question: ProgramQuestion) -> float:
    return session.program(question).done_s


def _no_least(_session: Session, _question: ProgramQuestion) -> float:
    raise InputError("of a program the data sheet says nothing")


SINGLE_TIMES: dict[type, Callable[[Session, Any], float]] = {
    OperatorQuestion: _operator_s,
    CopyQuestion: _copy_s,
    LaunchQuestion: _launch_s,
    ProgramQuestion: _program_s,
}
SINGLE_LEAST: dict[type, Callable[[Session, Any], float]] = {
    OperatorQuestion: _operator_bound_s,
    CopyQuestion: _copy_bound_s,
    LaunchQuestion: _launch_bound_s,
    ProgramQuestion: _no_least,
}
