"""What rules are made of: two questions, and how their answers disagree."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.property.anomalies import anomaly, anomaly_of_step
from tests.property.asking import Asker, RefusedError, time_s
from tests.property.questions import Question

Rule = Callable[[Asker, Question, random.Random], str]
NEVER_SLOWER = 1e-6


class SkipError(Exception):
    """The rule says nothing of this question."""


def both(asker: Asker, one: Question, other: Question) -> tuple[Any, Any]:
    """Return both answers; skip where the first is refused."""
    try:
        first = asker.answer(one)
    except RefusedError as error:
        raise SkipError(str(error)) from None
    try:
        return first, asker.answer(other)
    except RefusedError as error:
        raise SkipError(f"the other: {error}") from None


def told(asker: Asker, *each: tuple[Question, object]) -> str:
    """Return the commands of *each* with what came of them."""
    return "\n".join(f"  {asked.command(asker.folder)}\n    {found}" for asked, found in each)


def not_slower(asker: Asker, slow: Question, fast: Question) -> str:
    """Return how *fast* takes longer than *slow*, which it must not."""
    slower, faster = (time_s(found) for found in both(asker, slow, fast))
    if faster <= slower * (1 + NEVER_SLOWER):
        return ""
    found = anomaly(asker, slow, fast) if slow.kind == "exchange" else anomaly_of_step(asker, slow, fast)
    return found or f"slower, not faster:\n{told(asker, (slow, slower), (fast, faster))}"


def trouble(asked: Question, rng: random.Random, *, passing: bool, whole_s: float = 0.0) -> dict[str, str]:
    """Return options that slow a link or add a job, *passing* within *whole_s* seconds or for good."""
    ends = rng.choice(("gpu0-gpu1", "gpu0-gpu1", "gpu0-cpu0", "gpu0-nvswitch0", "gpu0-plx0", "gpu0-sw0", "cpu0-cpu1"))
    factor = rng.choice(("0.5", "0.1", "0.9"))
    node = "node0." if asked.get("nodes") else ""
    ends = "-".join(f"{node}{end}" for end in ends.split("-"))
    if not passing:
        if rng.random() < 0.3:
            return {"neighbour": f"{node}gpu0-{node}gpu1:{rng.choice((1, 2))}GB/s"}
        return {"slow_link": f"{ends}:{factor}x"}
    begin = rng.choice((0.0, 0.1, 0.37, 0.5, 0.9)) * whole_s
    end = begin + rng.choice((0.01, 0.2, 0.5, 3.0)) * whole_s + 1e-7
    return {"slow_link": f"{ends}:{rng.choice(('0', '0', factor))}x@{begin * 1e6:.4f}us..{end * 1e6:.4f}us"}
