"""The time of a step, divided into parts that add up to it: :func:`time_shares`."""

from __future__ import annotations

from typing import NamedTuple

from simulator.results.streams import StreamUse
from simulator.results.training_run import TrainingRun
from simulator.training.exchange import STREAM
from simulator.training.worker import AUTOGRAD, HOST

_AXES = {"tp": "tensor", "cp": "context", "ep": "expert", "etp": "expert"}
SHARE_WORDS = {
    "computing": "computing",
    "slowest": "slowest rank",
    "update": "update",
    "cpu_update": "update on the host",
    "cpu_copies": "exposed copies to and from the host",
    "host": "waiting for the host",
    "input": "waiting for the input",
    **{name: f"exposed {name}-parallel exchange" for name in (*_AXES.values(), "data")},
    "tied": "exposed exchange of tied parameters",
    "fill": "pipeline fill",
}


class TimeShare(NamedTuple):
    """A part of the step's time.

    Its name is ``computing``, ``slowest`` (extra time of the slowest rank), ``update``, ``host`` (the device waits for
    the host), ``input`` (all devices wait for input), ``cpu_update`` and ``cpu_copies`` (the device waits for its host,
    which updates), ``fill`` (a pipeline stage waits for others), or the axis of exposed communication: ``tensor``,
    ``context``, ``expert``, ``data``; or ``tied``, if two pipeline stages hold a parameter and sum its gradients.
    """

    name: str
    seconds: float


def time_shares(result: TrainingRun) -> tuple[TimeShare, ...]:
    """Return the parts of the step's time on the device that *result* describes, the largest first.

    They add up to the step's time.  The waiting time of a pipeline stage is split into the exchange of gradients or
    parameters, while no stage computes, and pipeline fill.
    """
    found: dict[str, float] = {}
    several = f"{result.step.device}/compute"  # if ranks have several roles
    compute = result.streams.get(several, result.streams.get("compute", StreamUse()))
    for stream, waited_s in compute.waits_s.items():
        axis = stream.rpartition("/")[2].removesuffix(STREAM).strip()
        if stream.endswith((HOST, AUTOGRAD)):
            name = "host"
        elif stream.endswith(STREAM):
            name = _AXES.get(axis, "data")
        else:  # a stage of servers, a copy between devices, or another device that has not sent yet
            name = "fill" if result.question.layout.pp > 1 else "data"
        found[name] = found.get(name, 0.0) + waited_s
    if result.question.layout.pp > 1:
        waits_s = found.get("fill", 0.0) + found.get("data", 0.0)
        found["fill"] = min(waits_s, result.bubble_s)
        found["tied"] = min(waits_s - found["fill"], result.tied_s)
        found["data"] = waits_s - found["fill"] - found["tied"]
    if result.offload is not None:
        run, waits_s = result.offload, found.get("data", 0.0)  # the rest waits for the host's launches meanwhile
        found["cpu_update"] = min(run.exposed_update_s, waits_s)
        found["cpu_copies"] = min(run.exposed_copies_s, waits_s - found["cpu_update"])
        found["data"] = waits_s - found["cpu_update"] - found["cpu_copies"]
    found["update"] = _update_s(result)
    if result.input is not None:
        found["input"] = max(0.0, result.step_time_s - result.input.step_s)
    rest_s = max(0.0, result.step_time_s - sum(found.values()))
    found["slowest"] = rest_s * (1.0 - 1.0 / result.pace)
    found["computing"] = result.step_time_s - sum(found.values())
    shares = [TimeShare(name, seconds) for name, seconds in found.items() if seconds > 0]
    return tuple(sorted(shares, key=lambda share: (-round(share.seconds, 12), share.name)))


def _update_s(result: TrainingRun) -> float:
    if result.question.layout.pp > 1 or not result.step.kinds:
        return result.step.parts_s.get("update", 0.0)
    return sum(kind.parts_s.get("update", 0.0) for kind in result.step.kinds)
