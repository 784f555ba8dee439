"""What bounds the time of a copy: :func:`copy_answer`.

The bound is whatever takes most of the time: calls and the engine's start for a small copy; for a large one the slowest
link, the host thread that fills and empties the driver's buffer, or the page faults on memory touched first.
"""

from __future__ import annotations

from simulator.devices.cpu.memory import bandwidth
from simulator.host.answer import HostTime
from simulator.host.copies import PAGE_BYTES, CopyCosts, copy_route, is_staged, page_faults_s, thread_rate
from simulator.network.machine import Machine
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.places import Places
from simulator.questions.single import CopyQuestion
from simulator.units import format_bandwidth, format_duration, format_size

_OF = "a copy"


def copy_answer(question: CopyQuestion, places: Places, router: Router, time_s: float) -> HostTime:
    """Return the answer to *question*, which takes *time_s*, with its bound; raises InputError as copy_plan does."""
    if question.kind in ("h2h", "d2d"):
        return _within(question, places, time_s)
    costs, route = places.constants(CopyCosts), copy_route(question, router)
    staged = is_staged(route)
    starts_s = route.latency_s + costs.engine_s * (2 if staged else 1)
    waited_s = costs.waited_s if question.waited or not question.pinned else 0.0
    link, link_Bps = _slowest(router.machine, route)
    parts = {"start of the copy engine": starts_s, "the host's call and wait": waited_s}
    why = [f"the engine begins after {format_duration(starts_s, 3)}"]
    if waited_s:
        why.append(f"the call and the wait for it take the host {format_duration(waited_s, 3)}")
    why.append(f"{link} gives {format_bandwidth(link_Bps, 3)}" + (", through host memory" if staged else ""))
    figures = {"engine_s": starts_s, "waited_s": waited_s, "link_Bps": link_Bps}
    crossing_s, bound = question.size_bytes / link_Bps, f"link {link}"
    if not question.pinned and question.kind != "p2p":
        figures["thread_Bps"] = thread_rate(router.machine, places, route)
        thread_s, faults_s = question.size_bytes / figures["thread_Bps"], page_faults_s(question, places)
        why.append(f"pageable: one thread of the host copies at {format_bandwidth(figures['thread_Bps'], 3)}")
        if faults_s:
            why.append(_faults(places))
        if thread_s + faults_s > crossing_s:
            crossing_s = thread_s + faults_s
            bound = "page faults of the host" if faults_s > thread_s else "the host's thread that copies"
    slowest = max(parts, key=lambda name: parts[name])
    bound = slowest if parts[slowest] > crossing_s else bound
    figures = {"bandwidth_Bps": question.size_bytes / time_s, **figures}
    of = "both copies" if question.both_ways else _OF
    return HostTime(time_s, of, bound, tuple(why), figures)


def _within(question: CopyQuestion, places: Places, time_s: float) -> HostTime:
    """Return the answer for a copy within one memory."""
    figures = {"bandwidth_Bps": question.size_bytes / time_s}
    said = f"{format_size(question.size_bytes, 4)} are read and written"
    faults_s = page_faults_s(question, places)
    if question.kind == "h2h":
        cpu = places.host_of(None, question.threads)
        least_s = 2.0 * question.size_bytes / bandwidth(cpu, 2.0 * question.size_bytes, cpu.threads)
    else:
        gpu = places.gpu(question.src)
        least_s = 2.0 * question.size_bytes / gpu.memory_bandwidth_Bps
    if faults_s > least_s:
        return HostTime(time_s, _OF, "page faults of the host", (said, _faults(places)), figures)
    bound = "memory bandwidth" if 2.0 * least_s > time_s else "the host's call"
    return HostTime(time_s, _OF, bound, (said, *([_faults(places)] if faults_s else [])), figures)


def _faults(places: Places) -> str:
    page_s = places.constants(CopyCosts).page_s
    return f"fresh: it takes a page fault of {format_duration(page_s, 3)} for each {PAGE_BYTES // 1024} KiB"


def _slowest(machine: Machine, route: Route) -> tuple[str, float]:
    """Return the name of the slowest link, memory or switch along *route*, and its rate for the copy in B/s."""
    resource, share = min(route.loads, key=lambda load: (machine.capacity_Bps[load[0]] / load[1], load[0]))
    return machine.resource_names[resource], machine.capacity_Bps[resource] / share
