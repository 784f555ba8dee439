"""Answers that the tests of a file share: a built-in machine is made once, and a step of a built-in network runs once.

Files whose commands ask the same again use the fixture ``answered_once`` (``tests/conftest.py``).  Not for files whose
tests change the simulator itself, such as a constant or a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from simulator.api.session import Session
from simulator.constants import DEFAULT
from simulator.kept import Kept
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.topology.catalogue import builtin_topologies
from simulator.workload.zoo.registry import network_names

_STEPS = 32  # the last results, some MB each with their timelines


@contextmanager
def answers_shared() -> Iterator[None]:
    """Share machines, networks and steps of built-in names among all sessions of this process."""
    machines, steps, once = Kept(), Kept(_STEPS), Kept.once

    def made_once(self: Kept, key: Hashable, find: Callable[[], Any]) -> Any:
        return once(machines if _is_of_built_ins(key) else self, key, find)

    def shared(answer: Callable[..., Any]) -> Callable[..., Any]:
        def known(self: Session, question: StepQuestion, **more: Any) -> Any:
            usual = not self.calibrations and self.constants is DEFAULT and not self.networks
            if not usual or not _is_built_in(question.where) or question.workload not in network_names():
                return answer(self, question, **more)
            key = answer.__name__, question, *more.items()
            return steps.once(key, lambda: answer(self, question, **more))

        return known

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "once", made_once)
        for name in ("_step", "step_timeline"):
            patch.setattr(Session, name, shared(getattr(Session, name)))
        yield


def _is_built_in(where: object) -> bool:
    """Return whether *where* names no file: what a file says may be something else in the next test."""
    named = isinstance(where, Where) and where.topology in builtin_topologies()
    return named and not (where.fabric and where.fabric.endswith((".yaml", ".yml")))  # type: ignore[union-attr]


def _is_of_built_ins(key: object) -> bool:
    """Return whether *key* of a session is a machine, its group or router, or a network, of a built-in name."""
    if not isinstance(key, tuple):
        return _is_built_in(key)
    if key[0] == "source":
        return key[1][0] in network_names()
    return len(key) == 2 and key[1] in ("all", "router") and _is_built_in(key[0])
