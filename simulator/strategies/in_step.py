"""Equal plans of several groups of ranks as one, round by round: ``in_step``."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.plan.plan import Flow, Plan, PlanBuilder, Task, Transfer

__all__ = ["in_step"]


def in_step(builder: PlanBuilder, plans: Sequence[Plan], stream: str, after: Sequence[int]) -> list[int]:
    """Add *plans*, which start together once *after* has ended; return their last tasks.

    Plans of transfers alike but for the routes become one: a round begins when that before
    has ended in all groups.  So the cost of groups at the same work does not grow with their
    number.  Other plans run beside each other, each at its own pace.
    """
    for plan in plans:
        builder.rings.extend(plan.rings)
    shapes = {tuple(_shape(task) for task in plan.tasks) for plan in plans}
    if len(shapes) == 1 and all(isinstance(task, Transfer) for task in plans[0].tasks):
        columns = [list(column) for column in zip(*[plan.tasks for plan in plans], strict=True)]
        return _added(builder, columns, stream, after)
    ends: list[int] = []
    for i, plan in enumerate(plans):
        ends += _added(builder, [[task] for task in plan.tasks], f"{stream}{i}", after)
    return ends


def _shape(task: Task) -> tuple[object, ...]:
    if isinstance(task, Transfer):
        return task.label, task.stream, task.after, task.repeat, len(task.flows)
    return task.label, task.stream, task.after, task.place


def _added(builder: PlanBuilder, columns: list[list[Task]], stream: str, after: Sequence[int]) -> list[int]:
    """Add one task for each column of tasks alike; return those for which no other waits."""
    offset = len(builder.tasks)
    ends: dict[int, None] = {}
    for column in columns:
        head = column[0]
        needs = [a + offset for a in head.after] or list(after)
        name = f"{stream}.{head.stream}"
        if isinstance(head, Transfer):
            flows: list[Flow] = [flow for task in column if isinstance(task, Transfer) for flow in task.flows]
            number = builder.transfer(head.label, flows, stream=name, after=needs, repeat=head.repeat)
        else:
            number = builder.work(head.label, head.place, head.duration_s, stream=name, after=needs)
        for need in needs:
            ends.pop(need, None)
        ends[number] = None
    return list(ends)
