"""Ask a random question: with one session for many of them, or by every door."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator import simulate
from simulator.api.session import Session
from simulator.cli import run
from simulator.cli.exchange_command import exchange_questions
from simulator.cli.single_command import answer_singles
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import DEFAULTS, check_read
from simulator.collectives.communicator import Unsuitable
from simulator.console.run import error_lines
from simulator.errors import InputError, TopocastError
from simulator.plan.plan import Plan, merge
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.workload.parse import parse_workload
from tests.property.questions import Question
from tests.unit.test_both_doors import plain


class RefusedError(Exception):
    """The question is refused, in these words."""


def time_s(result: Any) -> float:
    """Return the seconds of a result of any kind."""
    for name in ("sync_time_s", "step_time_s", "time_s"):
        if hasattr(result, name):
            return float(getattr(result, name))
    raise TypeError(type(result))


class Asker:
    """Asks questions about machines whose files stand in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = Session()

    def question(self, asked: Question) -> tuple[Session, CollectiveQuestion | StepQuestion]:
        """Return the question as a session reads it; raises InputError."""
        written = asked.written(self.folder)
        check_read(written)
        if written.kind == "step":
            session, found = ask_steps(written, self.session)
            return session, found[0]
        questions, _ = exchange_questions(written.but(strategy=written.strategy or "nccl"), self.session)
        payload = parse_workload(written.workload).in_type(questions[0].dtype)
        return self.session, replace(questions[0], size_bytes=payload.sizes[0])

    def answer(self, asked: Question, *, fold: bool = True) -> Any:
        """Return the result; raises RefusedError."""
        try:
            if asked.kind == "single":
                return answer_singles(asked.written(self.folder), Session()).results[0]
            session, question = self.question(asked)
            if isinstance(question, CollectiveQuestion):
                return session.collective(question, fold=fold)
            return session.step(question, fold=fold)
        except (TopocastError, Unsuitable) as error:
            raise RefusedError(str(error)) from None

    def time(self, asked: Question, *, fold: bool = True) -> float:
        """Return the seconds; raises RefusedError."""
        return time_s(self.answer(asked, fold=fold))

    def plan(self, asked: Question) -> tuple[Any, Plan]:
        """Return the machine of an exchange and its plan; raises RefusedError."""
        try:
            session, question = self.question(asked)
            assert isinstance(question, CollectiveQuestion)
            strategy, requests = session.planned(question)
            return requests[0].machine, merge([strategy.plan(request) for request in requests])
        except (InputError, Unsuitable) as error:
            raise RefusedError(str(error)) from None

    # -- every door ----------------------------------------------------------------

    def said(self, asked: Question, *more: str) -> tuple[int, str, str]:
        """Return the exit status and what the command says on both streams."""
        import shlex

        words = shlex.split(asked.command(self.folder))[1:]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run([*words, "--quiet", *more])
        return status, out.getvalue(), err.getvalue()

    def in_python(self, asked: Question) -> Any:
        """Return Python's result, or the lines in which it refuses."""
        written = asked.written(self.folder)
        given = {name: value for name, value in vars(written).items() if name != "quiet" and value != DEFAULTS[name]}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return simulate(**given)
        except TopocastError as error:
            return [plain(line) for line in error_lines("simulate", error)]


def in_python(lines: str) -> list[str]:
    """Return a refusal of the command as Python words it."""
    return [plain(line) for line in lines.splitlines()]


def trace_end_s(path: Path) -> float:
    """Return the end of the last activity in a trace, in seconds."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return max((float(e.get("ts", 0)) + float(e.get("dur", 0)) for e in events), default=0.0) * 1e-6
