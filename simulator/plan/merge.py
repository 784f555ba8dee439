"""Several plans at once: ``merge``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.plan.plan import Plan, Task

__all__ = ["merge"]


def merge(plans: Sequence[Plan]) -> Plan:
    """Return one plan that starts all *plans* together on the same machine.

    Each keeps its order within itself and waits for none of the others: the plans meet only
    in the links that they share.  Streams are told apart by the number of the plan
    (``0/main``), tasks are renumbered, and a fact stays where all plans agree on it.
    """
    if len(plans) == 1:
        return plans[0]
    tasks: list[Task] = []
    for number, plan in enumerate(plans):
        offset = len(tasks)
        tasks.extend(
            replace(
                task, id=task.id + offset, stream=f"{number}/{task.stream}", after=tuple(a + offset for a in task.after)
            )
            for task in plan.tasks
        )
    facts = dict(plans[0].facts) if plans else {}
    for plan in plans[1:]:
        facts = {key: value for key, value in facts.items() if key in plan.facts and plan.facts[key] == value}
    return Plan(
        tuple(tasks),
        tuple(ring for plan in plans for ring in plan.rings),
        tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
        facts,
    )
