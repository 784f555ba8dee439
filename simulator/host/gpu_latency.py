"""The latency of a load on a GPU: from shared memory, L1, L2 or device memory."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.host.answer import HostTime
from simulator.questions.single import AccessQuestion
from simulator.topology.parts import GpuPart
from simulator.units import format_duration, format_size

_WORDS = {"l1": "L1", "l2": "L2", "memory": "device memory"}


def gpu_chase_answer(question: AccessQuestion, part: GpuPart) -> HostTime:
    """Return the latency of dependent loads by one thread.

    Each level serves the share of the loads that equals the share of the working set it holds.  Raises InputError where
    the part lacks a latency, or where the working set exceeds shared memory.
    """
    if question.level == "scratchpad":
        return _shared_memory(question, part)
    levels = (("l1", part.l1_size_per_sm, part.l1_latency), ("l2", part.l2_size, part.l2_latency))
    shares: dict[str, tuple[float, float]] = {}
    held = 0.0
    for name, size, latency_s in levels:
        reach = min(1.0, (size or 0.0) / question.size_bytes)
        if reach > held and latency_s is not None:
            shares[name] = (reach - held, latency_s)
            held = reach
    if not shares:
        raise InputError("the part has no l1_latency and no l2_latency")
    if held < 1.0:
        if part.memory_latency is None:
            raise InputError("the part has no memory_latency")
        shares["memory"] = (1.0 - held, part.memory_latency)
    time_s = sum(share * latency_s for share, latency_s in shares.values())
    slowest = max(shares, key=lambda name: shares[name][0] * shares[name][1])
    served = ", ".join(
        f"{share:.0%} {_WORDS[name]} ({format_duration(latency_s, 3)})" for name, (share, latency_s) in shares.items()
    )
    why = [f"served by {served}"]
    if part.shared_memory_latency is not None:
        why.append(f"shared memory would answer after {format_duration(part.shared_memory_latency, 3)}")
    figures = {f"{name}_share": share for name, (share, _) in shares.items()}
    return HostTime(time_s, "a load", f"latency of {_WORDS[slowest]}", tuple(why), figures)


def _shared_memory(question: AccessQuestion, part: GpuPart) -> HostTime:
    size = part.shared_memory_per_sm
    if part.shared_memory_latency is None:
        raise InputError("the part has no shared_memory_latency")
    if size is not None and question.size_bytes > size:
        raise InputError(f"a multiprocessor has {format_size(size)} of shared memory")
    why = ("a multiprocessor's shared memory serves all of it",)
    return HostTime(part.shared_memory_latency, "a load", "latency of shared memory", why)
