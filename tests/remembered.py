"""Steps of published tables as they were answered when the documents were made; a few are answered again."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from simulator.api.session import Question, Session
from simulator.bands.composition import Composition
from simulator.errors import InputError
from simulator.questions.step import StepQuestion

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "run python docs/make_tables.py"


def _make_tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = _make_tables()


class Remembering(tables.Answers):  # type: ignore[misc,name-defined]
    """Answers recorded when the documents were made; one in 24 is computed again.

    Of steps over several ranks it is one in 96, of the slowest steps one in 240; ``docs/make_tables.py`` computes all.
    The recorded ones detect a change and prove nothing: what is right, other tests say.

    Recomputed answers must equal the recorded ones.  Answers have no bands.
    """

    written_down: ClassVar[Mapping[str, list[float | str]]] = json.loads(tables.PREDICTED.read_text(encoding="utf-8"))

    def time_s(self, question: Question) -> float:
        return self._answer(question, 0, super().time_s)

    def bound_s(self, question: Question) -> float:
        return self._answer(question, 1, super().bound_s)

    def composed(self, question: Question) -> Composition:
        """Raise InputError: the tables show no bands, which would take most of the time."""
        raise InputError(f"no bands: {question.topic}")

    def _answer(self, question: Question, which: int, ask: Callable[[Question], float]) -> float:
        digest = tables.question_digest(question)
        assert digest in self.written_down, AGAIN
        known = self.written_down[digest][which]
        assert isinstance(question, StepQuestion)
        takes_long = question.layout.divides_network or question.layout.pp > 1 or question.workload == "tacotron2"
        over_several = question.gpus is None or len(question.gpus) > 1
        if int(digest, 16) % (240 if takes_long else 96 if over_several else 24):
            if isinstance(known, str):
                raise InputError(known)
            return known
        if isinstance(known, str):
            with pytest.raises(InputError) as refused:
                ask(question)
            assert str(refused.value) == known, AGAIN
            raise refused.value
        found = ask(question)
        assert found == pytest.approx(known, rel=1e-9), AGAIN
        return found


def remember_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every session answer steps as :class:`Remembering` does."""
    known = Remembering()
    for which, name in enumerate(("time_s", "bound_s")):
        ask = getattr(Session, name)

        def answer(self: Session, question: Question, ask: Callable = ask, which: int = which) -> float:  # type: ignore[type-arg]
            if not isinstance(question, StepQuestion):
                return ask(self, question)
            return known._answer(question, which, partial(ask, self))

        monkeypatch.setattr(Session, name, answer)
