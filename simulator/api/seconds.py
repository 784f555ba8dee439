"""Questions whose answers are seconds alone: operators; and of a program when all is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError
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


def _program_s(session: Session, question: ProgramQuestion) -> float:
    return session.program(question).done_s


def _no_least(_session: Session, _question: ProgramQuestion) -> float:
    raise InputError("of a program the data sheet says nothing")


SINGLE_TIMES: dict[type, Callable[[Session, Any], float]] = {
    OperatorQuestion: _operator_s,
    ProgramQuestion: _program_s,
}
SINGLE_LEAST: dict[type, Callable[[Session, Any], float]] = {
    OperatorQuestion: _operator_bound_s,
    ProgramQuestion: _no_least,
}
