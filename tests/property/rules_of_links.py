"""Rules of links and bytes: faster is never slower, and a slow link is one of that rate."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from simulator.collectives.nccl.strategy import KEPT
from simulator.engine.timeline import Timeline
from simulator.plan.plan import Fragment
from tests.property.anomalies import ANOMALY, choice_of_size
from tests.property.asking import Asker, time_s
from tests.property.questions import Made, Question
from tests.property.ruling import SkipError, both, not_slower, told, trouble

_EDITED = 1e-6
_SAME = 1e-9


def _some(made: Made, rng: random.Random) -> frozenset[int]:
    """Return the links of a kind, or one of them."""
    one = rng.randrange(len(made.wires))
    alike = (i for i, wire in enumerate(made.wires) if wire.kind == made.wires[one].kind)
    return frozenset(alike) if rng.random() < 0.5 else frozenset({one})


def faster_link(asker: Asker, asked: Question, rng: random.Random) -> str:
    """A faster link is never slower."""
    if not isinstance(asked.machine, Made):
        raise SkipError
    faster = asked.machine.scaled(_some(asked.machine, rng), rate=rng.choice((1.1, 2.0, 8.0)))
    return not_slower(asker, asked, replace(asked, machine=faster))


def lower_latency(asker: Asker, asked: Question, rng: random.Random) -> str:
    """A lower latency is never slower."""
    if not isinstance(asked.machine, Made):
        raise SkipError
    faster = asked.machine.scaled(_some(asked.machine, rng), latency=rng.choice((0.0, 0.5)))
    return not_slower(asker, asked, replace(asked, machine=faster))


def more_bytes(asker: Asker, asked: Question, rng: random.Random) -> str:
    """More bytes are never faster."""
    workload = asked.get("workload")
    if asked.kind == "exchange":
        n_bytes = asker.question(asked)[1].size_bytes  # type: ignore[union-attr]
        more = f"bytes:{math.ceil(n_bytes * rng.choice((1.01, 1.5, 2.0, 10.0))) // 8 * 8 + 8}B"
    elif workload.startswith(("copy:", "access:")):
        size = workload.rpartition(",")[2]
        number = int("".join(c for c in size if c.isdigit()))
        more = workload.replace(size, size.replace(str(number), str(number * rng.choice((2, 3, 10)))))
    else:
        raise SkipError
    larger = asked.having(workload=more)
    found = not_slower(asker, larger, asked)
    return found and (choice_of_size(asker, larger, asked) or found)


def slowed_link(asker: Asker, asked: Question, rng: random.Random) -> str:
    """A link that is slow for good, or another job on the links, makes nothing faster."""
    if asked.kind == "single":
        raise SkipError
    slow = trouble(asked, rng, passing=False)
    return not_slower(asker, asked.having(**slow), asked.having(**dict.fromkeys(slow)))


def passing_link(asker: Asker, asked: Question, rng: random.Random) -> str:
    """A link that is slow for the whole run takes as long as one that is slow for good, where the plans are the same.

    One that is slow for a part of the run takes no longer than that, and no shorter than without it.
    """
    if asked.kind == "single" or asked.get("slow_link") or asked.get("neighbour"):
        raise SkipError
    timeline = both(asker, asked, asked)[0].timeline
    crossed = sorted({number for _, *flows in _moves(timeline) for links, *_ in flows for number, _ in links})
    if not crossed:
        raise SkipError
    ends = timeline.machine.links[rng.choice(crossed)].name.replace("->", "-")
    slow = f"{ends}:{rng.choice((0.9, 0.5, 0.1))}x"
    for_good, throughout = (asked.having(slow_link=slow + when) for when in ("", "@0s..1000s"))
    first, second = both(asker, for_good, throughout)
    whole_s = time_s(second)
    if _moves(first.timeline) == _moves(second.timeline) and not math.isclose(time_s(first), whole_s, rel_tol=_SAME):
        return f"for good and throughout:\n{told(asker, (for_good, time_s(first)), (throughout, whole_s))}"
    begin, end = sorted(rng.random() * whole_s * 1e6 for _ in range(2))
    for_a_while = asked.having(slow_link=f"{slow}@{begin:.4f}us..{end + 1e-3:.4f}us")
    return not_slower(asker, throughout, for_a_while) or not_slower(asker, for_a_while, asked)


def _moves(timeline: Timeline) -> set[tuple[Any, ...]]:
    """Return the different transfers of *timeline*, those within exchanges too: rounds, and each flow's links."""
    plans = [timeline.plan]
    moves: set[tuple[Any, ...]] = set()
    for plan in plans:
        for task in plan.tasks:
            plans += [part.plan for part in task.parts if isinstance(part, Fragment)]
            moves.add((task.repeat, *((flow.route.links, flow.wire_bytes, flow.count) for flow in task.flows)))
    return moves


def edited_link(asker: Asker, asked: Question, rng: random.Random) -> str:
    """A link at a share of its rate for the whole run takes as long as one whose file has that rate.

    NCCL chooses by the rates of the file.  Where these would change it, the answer says so.
    """
    made = asked.machine
    if not isinstance(made, Made) or asked.get("slow_link") or asked.get("neighbour"):
        raise SkipError
    number, factor = rng.randrange(len(made.wires)), rng.choice((0.5, 0.25, 0.8))
    ends = {frozenset((wire.a, wire.b)) for wire in made.wires[number : number + 1]}
    which = frozenset(i for i, wire in enumerate(made.wires) if frozenset((wire.a, wire.b)) in ends)
    node = "node*." if asked.get("nodes") else ""
    wire = made.wires[number]
    slow = asked.having(slow_link=f"{node}{wire.a}-{node}{wire.b}:{factor}x")
    narrow = replace(asked, machine=made.scaled(which, rate=factor))
    first, second = both(asker, slow, narrow)
    if math.isclose(time_s(first), time_s(second), rel_tol=_EDITED):
        return ""
    if KEPT in getattr(first, "notes", ()):
        return f"{ANOMALY}NCCL's choice by nominal rates"
    return f"slow and edited:\n{told(asker, (slow, time_s(first)), (narrow, time_s(second)))}"
