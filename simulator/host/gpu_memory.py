"""Memory accesses on a GPU: the latency of dependent loads, and the bandwidth that few threads or small blocks reach.

A waiting thread has a fixed number of bytes in flight; by Little's law all threads together draw these bytes once per
latency.  As the rate approaches the memory's, requests queue, so the curve bends.  Blocks start at a limited rate,
which does not keep the SMs busy when blocks are small.
"""

from __future__ import annotations

from simulator.constants import constants
from simulator.devices.gpu import Gpu
from simulator.errors import InputError, stated
from simulator.host.answer import HostTime
from simulator.questions.single import AccessQuestion
from simulator.records import dataclass
from simulator.topology.parts import GpuPart
from simulator.units import format_bandwidth, format_duration, format_size

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
        shares["memory"] = (1.0 - held, stated(part.memory_latency, "the part has no memory_latency"))
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
    latency_s = stated(part.shared_memory_latency, "the part has no shared_memory_latency")
    if size is not None and question.size_bytes > size:
        raise InputError(f"a multiprocessor has {format_size(size)} of shared memory")
    why = ("a multiprocessor's shared memory serves all of it",)
    return HostTime(latency_s, "a load", "latency of shared memory", why)


@constants("occupancy")
@dataclass(frozen=True, slots=True)
class OccupancyCosts:
    """Constants of occupancy, the same for all GPUs."""

    sharpness: float
    blocks_per_clock: float


def with_few_threads(
    question: AccessQuestion, part: GpuPart, gpu: Gpu, time_s: float
) -> tuple[float, str | None, tuple[str, ...]]:
    """Return the time of a pass with the threads of *question*, what bounds it (None: as before), and why.

    *time_s* is the time of the pass at full occupancy.  Raises InputError where the part lacks the latency of its
    memory or L2.
    """
    costs = gpu.constants(OccupancyCosts)
    bound: str | None = None
    why: list[str] = []
    resident = question.resident
    if question.persistent and question.block_threads and not resident:
        resident = gpu.sm_count * question.block_threads  # one block stays on each SM
    if resident:
        name = "memory_latency" if question.reads else "l2_latency"
        latency_s: float = stated(getattr(part, name), f"the part has no {name}")
        each = (question.reads + question.writes) * question.element_bytes
        drawn_Bps = resident * each / latency_s
        full_Bps = question.size_bytes / time_s
        rate_Bps = (full_Bps**-costs.sharpness + drawn_Bps**-costs.sharpness) ** (-1.0 / costs.sharpness)
        time_s = question.size_bytes / rate_Bps
        why.append(
            f"{resident} threads with {each} B each under way draw {format_bandwidth(drawn_Bps, 3)}; all that the GPU "
            f"holds would have {format_bandwidth(full_Bps, 3)}"
        )
        if drawn_Bps < full_Bps:
            bound = "latency: too few threads are under way"
    elif question.block_threads:
        threads = question.size_bytes / ((question.reads + question.writes) * question.element_bytes)
        blocks = max(1.0, threads / question.block_threads)
        begun_s = blocks / (costs.blocks_per_clock * gpu.light_clock_Hz)
        if begun_s > time_s:
            bound = "beginning of blocks"
            why.append(f"{blocks:.0f} blocks of {question.block_threads} threads are begun one after the other")
        time_s = max(time_s, begun_s)
    return time_s, bound, tuple(why)
