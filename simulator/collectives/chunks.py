"""Schedule times by the alpha-beta model, and the number of chunks of a pipeline.

A round takes L + bytes / B, where L is the latency of its slowest route and B follows from the most loaded resource
when all flows of the round run at once.  The estimates only choose between equivalent schedules; the engine does not
use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, sqrt

from simulator.collectives.request import Request
from simulator.collectives.schedule import Schedule, Send

# Smaller chunks give no measurable gain and make unfolded runs long.
_MIN_CHUNK_BYTES = 4096
_MAX_CHUNKS = 65_536


def best_chunk_count(size_bytes: float, n_fill: int, latency_s: float, s_per_byte: float) -> int:
    """Return the chunk count m that minimises (m + n_fill)(latency_s + size_bytes s_per_byte / m).

    The optimum, sqrt(n_fill size_bytes s_per_byte / latency_s), is rounded to the better neighbour.  A chunk has at
    least 4 KiB, and there are at most 65,536 chunks.
    """
    most = max(1, min(_MAX_CHUNKS, int(size_bytes / _MIN_CHUNK_BYTES)))
    if n_fill <= 0 or most == 1:
        return 1
    if latency_s <= 0:
        return most

    def time_s(m: int) -> float:
        return (m + n_fill) * (latency_s + size_bytes * s_per_byte / m)

    ideal = min(float(most), max(1.0, sqrt(n_fill * size_bytes * s_per_byte / latency_s)))
    return min(floor(ideal), ceil(ideal), key=time_s)


def pipeline_chunk_count(
    request: Request, make: Callable[[int], Schedule], size_bytes: float, nodes: Sequence[int]
) -> int:
    """Return the best number of chunks for the pipeline ``make(n_chunks)`` of *size_bytes* over *nodes*."""
    one = make(1)  # with one chunk, each round is one stage; in the steady state all stages are busy
    latency_s, s_per_byte = overlapped_cost(request, one, nodes)
    return best_chunk_count(size_bytes / one.n_chunks, len(one.rounds) - 1, latency_s, s_per_byte)


def estimate_s(request: Request, schedule: Schedule, size_bytes: float, nodes: Sequence[int]) -> float:
    """Return the approximate time of *schedule* over *nodes*, in seconds, without work in memory."""
    chunk_bytes = size_bytes / schedule.n_chunks
    total_s = 0.0
    for step in schedule.rounds:
        latency_s, s_per_byte = _round_cost(request, step.sends, nodes)
        total_s += step.repeat * (latency_s + s_per_byte * chunk_bytes)
    return total_s


def overlapped_cost(request: Request, schedule: Schedule, nodes: Sequence[int]) -> tuple[float, float]:
    """Return (latency in s, seconds per byte of a chunk) of one round that contains all sends of *schedule*."""
    return _round_cost(request, (s for r in schedule.rounds for s in r.sends), nodes)


def _round_cost(request: Request, sends: Iterable[Send], nodes: Sequence[int]) -> tuple[float, float]:
    """Return (latency in s, seconds per byte of a chunk) of a round."""
    loads: dict[int, float] = {}
    latency_s = 0.0
    for send in sends:
        route = request.router.route(nodes[send.src], nodes[send.dst])
        latency_s = max(latency_s, route.latency_s)
        for resource, share in route.loads:
            loads[resource] = loads.get(resource, 0.0) + share * send.width
    capacity = request.machine.capacity_Bps
    return latency_s, max((load / capacity[r] for r, load in loads.items()), default=0.0)
