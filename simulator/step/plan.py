"""The plan of a step: the host issues, the device runs what has been issued, each in its order."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.devices.dispatch import DISPATCH
from simulator.plan.plan import Plan, PlanBuilder
from simulator.step.issue import Issue

__all__ = ["GRAPH_LAUNCH_S", "plan_step"]

GRAPH_LAUNCH_S = DISPATCH.graph_launch_s


def plan_step(
    issues: Sequence[Issue],
    *,
    device: str,
    host: str,
    cuda_graph: bool = False,
    graph_launch_s: float = GRAPH_LAUNCH_S,
) -> Plan:
    """Return the plan of *issues* on the nodes *device* and *host*.

    The host runs ahead of the device; a kernel starts once it has been issued and the one before has
    ended.  An issue that waits begins on the host when the device is done with all before it.  With
    *cuda_graph* one call launches them all, and the host looks at nothing.  A CPU computes where it
    issues: *device* equal to *host* is one stream.
    """
    builder = PlanBuilder()
    launched: tuple[int, ...] = ()
    if cuda_graph and issues:
        launched = (builder.work("launch graph", host, graph_launch_s, stream="host"),)
    before: tuple[int, ...] = ()
    for issue in issues:
        if device == host:
            builder.work(issue.name, host, issue.host_s + issue.device_s, stream="host")
            continue
        after = launched
        if not cuda_graph:
            waited = before if issue.waits else ()
            after = (builder.work(issue.name, host, issue.host_s, stream="host", after=waited),)
        before = (builder.work(issue.name, device, issue.device_s, stream="compute", after=after),)
    return builder.build()
