"""Disks, flash and volumes: the time per block when each thread has one request in flight (docs/decisions/host.md)."""

from math import pi, sqrt
from typing import NamedTuple

from simulator.devices.cpu.memory import bandwidth
from simulator.devices.dispatch import cpu_call_time
from simulator.errors import InputError, nearest
from simulator.host.answer import HostTime
from simulator.network.machine import Machine, Node
from simulator.places import Places
from simulator.plan.plan import Plan, PlanBuilder
from simulator.questions.single import DiskQuestion
from simulator.records import replace
from simulator.topology.parts import StoragePart
from simulator.units import format_bandwidth, format_duration, format_size

_PERCENT = 100
_SMALL_BYTES = 4096  # size of the requests for which disks' latencies are stated
_BITS = 8  # of a byte
_ROUNDS = 4  # requests of each thread for each slot of the disk


class _Request(NamedTuple):
    """One request: its wait, the time of its bytes on the single path to the disk, and why."""

    wait_s: float
    bytes_s: float
    slots: int  # requests in service at once (0: unlimited)
    why: tuple[str, ...]
    holds: bool = False  # the transfer occupies the slot too
    is_ahead: bool = False  # the disk reads ahead: one block waits while another passes

    @property
    def held_s(self) -> float:
        """Seconds for which the request occupies its slot."""
        return self.wait_s + (self.bytes_s if self.holds else 0.0)


def disk_answer(question: DiskQuestion, machine: Machine, places: Places) -> HostTime:
    """Return the time per block and its reason; raises InputError for wrong figures, or a disk without them."""
    if not 0 <= question.hit_percent <= _PERCENT:
        raise InputError(f"hit-percent is from 0 to 100; got {question.hit_percent}")
    if question.threads < 1:
        raise InputError(f"threads is at least 1; got {question.threads}")
    part = None if question.cached else _part(machine, question)
    if question.sustained and (part is None or not part.burst_rate):
        raise InputError("sustained applies to a volume whose part has a burst_rate")
    hits = 1.0 if question.cached else question.hit_percent / _PERCENT
    if _does(question) == "write" and hits > 0.0:
        raise InputError("writes wait for the disk; cached and hit-percent apply to reads")
    if part is not None and not hits:
        return _block(part, question)
    host = places.host_of(None, question.threads, 1)
    call_s = (cpu_call_time(host) + host.constants["disks"].system_call_s) / min(question.threads, host.core_count)
    copied_s = 2.0 * question.block_bytes / bandwidth(host, float("inf"), question.threads)
    memory_s = call_s + copied_s
    if part is None or hits >= 1.0:
        bound = "memory bandwidth" if copied_s > call_s else "calls into the system"
        takes = f"a call takes {format_duration(call_s, 3)}, copying {format_duration(copied_s, 3)}"
        return HostTime(memory_s, "a block", bound, ("the system's memory holds all of it", takes))
    found = _block(part, question)
    each, others = format_duration(memory_s, 3), format_duration(found.time_s, 3)
    why = (f"memory serves {hits:.0%} of the blocks in {each} each, the disk the others in {others}", *found.why)
    time_s = hits * memory_s + (1.0 - hits) * found.time_s
    return replace(found, time_s=time_s, why=why, figures={**found.figures, "memory_s": memory_s, "hits": hits})


def disk_bound_s(question: DiskQuestion, machine: Machine) -> float:
    """Return the block's bytes over the disk's rate, in seconds; raises InputError where memory serves the block."""
    if question.cached:
        raise InputError("memory serves it, not the disk")
    return question.block_bytes / _rate(_part(machine, question), question)


def block_time(disk: StoragePart, question: DiskQuestion) -> float:
    """Return the seconds per block, all threads together; raises InputError where the part lacks a figure."""
    return _block(disk, question).time_s


def _does(question: DiskQuestion) -> str:
    return question.kind.partition("_")[0]


def _block(disk: StoragePart, question: DiskQuestion) -> HostTime:
    request = _request(disk, question)
    at_once = min(question.threads, request.slots) if request.slots else question.threads
    by_latency, by_bytes = "seek and rotation" if disk.rpm else "latency of a request", f"{_does(question)} bandwidth"
    waits, why = {by_bytes: request.bytes_s / (at_once if request.holds else 1)}, [*request.why]
    passing_s = request.wait_s + request.bytes_s
    if request.is_ahead:
        waits[by_latency] = request.wait_s / at_once
    else:
        waits[by_latency] = max(request.held_s / at_once, passing_s / question.threads)
    base, burst = disk.operation_rate or 0.0, disk.burst_rate or 0.0
    if base and (disk.of == "volume" or question.kind == "read_random"):
        waits["operations a second"] = 1.0 / (base if question.sustained else max(base, burst))
        said = f"it does {base:,.0f} operations a second"
        if burst > base:
            credits_s = disk.burst_credits / (burst - base) if disk.burst_credits else 0.0
            lasts = f" for {format_duration(credits_s, 3)}" if credits_s else ""
            said = f"it does {burst:,.0f} operations a second while its credits last{lasts}, then {base:,.0f}"
        why.append(said)
    bound = max(waits, key=lambda name: waits[name])
    if question.threads > 1:
        said = f"{question.threads} threads ask, {at_once} requests are served at once"
        why.append(said if at_once < question.threads else f"{question.threads} requests are served at once")
    figures = {
        "latency_s": max(request.wait_s, request.bytes_s) if request.is_ahead else passing_s,
        "operations_per_s": 1.0 / waits[bound],
        "bandwidth_Bps": question.block_bytes / waits[bound],
    }
    if disk.rpm:
        figures |= {"half_turn_s": 30.0 / disk.rpm, "turn_s": 60.0 / disk.rpm}
    if disk.rpm and disk.areal_density and disk.bit_aspect:
        bytes_per_m = sqrt(disk.areal_density * disk.bit_aspect) / _BITS
        for name, diameter_m in (("outer", disk.outer_track), ("inner", disk.inner_track)):
            if diameter_m:
                figures[f"{name}_track_bytes"] = pi * diameter_m * bytes_per_m
    return HostTime(waits[bound], "a block", bound, tuple(why), figures)


def _request(disk: StoragePart, question: DiskQuestion) -> _Request:
    does, size = _does(question), question.block_bytes
    latency_s = disk.write_latency if does == "write" else disk.read_latency
    if latency_s is None and not disk.rpm:
        raise InputError(f"the disk has no {does}_latency")
    rate_Bps = _rate(disk, question)
    bytes_s = size / rate_Bps
    moved = f"{format_size(size, 3)} at {format_bandwidth(rate_Bps, 3)} take {format_duration(bytes_s, 3)}"
    is_random = question.kind.endswith("random")
    if disk.rpm:
        slots = disk.parallel or 1
        if not is_random:
            return _Request(0.0, bytes_s, slots, (f"the head stays on its track: {moved}",), holds=True)
        seek_s, half_s = disk.seek or 0.0, 30.0 / disk.rpm
        seeks = f"the head moves for {format_duration(seek_s, 3)} and waits half a turn, {format_duration(half_s, 3)}"
        full = f"a whole turn at {disk.rpm} rpm takes {format_duration(2 * half_s, 3)}"
        return _Request(seek_s + half_s, bytes_s, slots, (seeks, full, moved), holds=True)
    assert latency_s is not None
    slots, why = disk.parallel or 0, [f"a small {does} takes {format_duration(latency_s, 3)}", moved]
    if not is_random:
        return _Request(latency_s, bytes_s, slots, tuple(why), is_ahead=True)
    whole = disk.write_block
    if does == "write" and whole and size < whole:
        bytes_s = whole / _rate(disk, replace(question, kind="read_random")) + whole / rate_Bps
        why.append(
            f"it is erased in blocks of {format_size(whole, 4)}: one is read, erased and written whole, "
            f"{whole / size:.3g} times the bytes, {format_duration(bytes_s, 3)}"
        )
    return _Request(max(0.0, latency_s - _SMALL_BYTES / rate_Bps), bytes_s, slots, tuple(why))


def requests_plan(machine: Machine, question: DiskQuestion) -> tuple[Plan, int] | None:
    """Return the plan of several threads' random requests, and its blocks; None for others; or InputError."""
    if question.threads < 2 or not question.kind.endswith("random") or question.cached:
        return None
    node = disk_of(machine, question.disk)
    request, plan = _request(_part(machine, question), question), PlanBuilder()
    slots = min(request.slots or question.threads, question.threads)
    way = f"{node.name}:bytes"
    plan.queues |= {node.name: slots, way: 1}
    rounds = _ROUNDS * slots
    for _ in range(rounds):
        for thread in range(question.threads):
            stream = f"thread{thread}"
            plan.work("request", node.name, request.held_s, stream=stream, takes=(node.name,), gives=(node.name,))
            if not request.holds:
                plan.work("bytes", node.name, request.bytes_s, stream=stream, takes=(way,), gives=(way,))
    return plan.build(), rounds * question.threads


def _rate(disk: StoragePart, question: DiskQuestion) -> float:
    """Return the rate on the question's track, in B/s; data sheets state that of the outermost one."""
    rate_Bps = disk.write_bandwidth if _does(question) == "write" else disk.read_bandwidth
    if not rate_Bps:
        raise InputError(f"the disk has no {_does(question)}_bandwidth")
    if question.track and not (disk.outer_track and disk.inner_track):
        needed = "a disk whose part has outer_track and inner_track, their diameters"
        raise InputError(f"track={question.track} needs {needed}")
    if question.track == "inner" and disk.inner_track and disk.outer_track:
        return rate_Bps * (disk.inner_track / disk.outer_track)
    return rate_Bps


def _part(machine: Machine, question: DiskQuestion) -> StoragePart:
    part = disk_of(machine, question.disk).part
    assert isinstance(part, StoragePart)
    return part


def disk_of(machine: Machine, name: str = "") -> Node:
    """Return the disk called *name*, by default the machine's first; raises InputError where there is none."""
    disks = [n for n in machine.nodes if isinstance(n.part, StoragePart) and n.host == 0 and n.part.of != "dimm"]
    if not disks:
        raise InputError("the machine has no disk; devices needs for example ssd0: {part: nvme-gen4}")
    found = next((node for node in disks if name in ("", node.name)), None)
    if found is None:
        raise InputError(f"disk={name}: {machine.name} has no such disk; {nearest(name, [d.name for d in disks])}")
    return found
