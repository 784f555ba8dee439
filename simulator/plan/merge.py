"""Combination of plans: concurrent (``merge``), or round by round as one (``in_step``)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.plan.carried import together
from simulator.plan.plan import Activity, Flow, Plan, PlanBuilder


def merge(plans: Sequence[Plan]) -> Plan:
    """Return one plan that starts all *plans* at once on the same machine.

    Each plan keeps its own order and waits for no other; plans interact only through shared links.  Streams are
    prefixed with the number of the plan (``0/main``), and activities are renumbered.  Facts are kept if all plans agree
    on them.
    """
    if len(plans) == 1:
        return plans[0]
    builder = PlanBuilder()
    for number, plan in enumerate(plans):
        builder.inline(plan, f"{number}/")
    builder.notes += dict.fromkeys(note for plan in plans for note in plan.notes)
    facts = dict(plans[0].facts) if plans else {}
    for plan in plans[1:]:
        facts = {key: value for key, value in facts.items() if key in plan.facts and plan.facts[key] == value}
    builder.facts |= facts
    return builder.build()


def in_step(builder: PlanBuilder, plans: Sequence[Plan], stream: str, after: Sequence[int]) -> list[int]:
    """Add *plans*, which start together once *after* has ended; return their last activities.

    If the plans are transfers that differ only in their routes, they become one plan, in which each round starts when
    the previous one has ended in all groups.  The cost of equal groups then does not grow with their number.  Other
    plans run concurrently, each at its own pace.
    """
    shapes = {tuple(_shape(task) for task in plan.tasks) for plan in plans}
    if len(shapes) > 1 or not all(isinstance(part, Flow) for task in plans[0].tasks for part in task.parts):
        return [end for i, plan in enumerate(plans) for end in builder.inline(plan, f"{stream}{i}.", after)]
    columns = zip(*[plan.tasks for plan in plans], strict=True)
    joined = [
        column[0]._replace(
            parts=tuple(part for task in column for part in task.parts),
            carries=together([task.carries for task in column]),
        )
        for column in columns
    ]
    return builder.inline(Plan(tuple(joined), tuple(r for plan in plans for r in plan.rings)), f"{stream}.", after)


def _shape(task: Activity) -> tuple[object, ...]:
    return task.label, task.stream, task.after, task.repeat, task.place, len(task.parts)
