"""Answers of steps without advice, which takes most of their time: for ``Session.advised``."""

from simulator.api.session import Session
from simulator.questions.step import StepQuestion
from simulator.results.training import TrainingResult


def without_advice(session: Session, question: StepQuestion, *_: object) -> TrainingResult:
    """Return the step of *question*."""
    return session.step(question)
