"""Latencies of one core other than memory: dependent arithmetic, mispredicted branches, uncontended locks."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.host.answer import HostTime
from simulator.network.machine import Machine
from simulator.questions.single import CoreQuestion
from simulator.topology.parts import CpuPart
from simulator.units import format_duration

_WORDS = {
    "fma": "a multiply-add that needs the result of the last",
    "branch-miss": "a branch that was predicted wrongly, until the right instructions are there",
    "mutex": "a mutex that nobody else wants, locked and unlocked",
}


def core_answer(question: CoreQuestion, machine: Machine) -> HostTime:
    """Return *question*'s time on the first CPU or ``device``; raises InputError without it, its latency or a count."""
    cpus = [node for node in machine.nodes if isinstance(node.part, CpuPart)]
    named = [node for node in cpus if question.device in (None, "cpu", node.name, node.part_name)]
    if not named:
        raise InputError(f"{machine.name} has no CPU of that name: {question.device or 'none at all'}")
    part = named[0].part
    assert isinstance(part, CpuPart)
    if question.operation not in part.core_latency:
        known = ", ".join(part.core_latency) or "none"
        raise InputError(f"the part has no core_latency of {question.operation}; it has {known}")
    if question.count < 1:
        raise InputError(f"count is at least 1; got {question.count}")
    each_s = part.core_latency[question.operation]
    why = (f"{_WORDS[question.operation]}: {format_duration(each_s, 3)}",)
    return HostTime(question.count * each_s, "all of it" if question.count > 1 else "an operation", "the core", why)
