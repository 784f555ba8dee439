"""Single accesses of a CPU: at a stride, at random places, or each waiting for the one before it.

These are closed forms.  The core's prefetcher follows strides up to half a page, so they cost bandwidth only: a line,
or a share of one, per element.  Longer strides and random accesses cost the latency, divided by the accesses that the
core or the program keeps in flight (Little's law); memory banks bound the number that are served at once.  Bytes after
the first word arrive at the memory's bandwidth (Drepper, What Every Programmer Should Know About Memory, sections 2.2
and 3.3).
"""

from __future__ import annotations

from math import gcd

from simulator.devices.cpu import LINE_BYTES, CoreCosts, Cpu
from simulator.devices.cpu.memory import bandwidth
from simulator.errors import InputError
from simulator.host.answer import HostTime
from simulator.host.latency import Chase, LatencyLevel, Memory, chase
from simulator.questions.single import AccessQuestion
from simulator.topology.parts import CpuPart
from simulator.units import format_bandwidth, format_duration, format_size

_WORD_BYTES = 8
_SHOWN = 0.005  # smallest share of the loads that is mentioned in words


def chase_answer(question: AccessQuestion, part: CpuPart, memory: Memory) -> HostTime:
    """Return the latency of dependent loads; raises InputError where the part has no memory latency."""
    found = chase(part, question.size_bytes, memory.place, question.page_bytes, is_cyclic=True)
    return HostTime(found.latency_s, "a load", _level_words(found), (*_reasons(found), *memory.why), _figures(found))


def random_answer(question: AccessQuestion, part: CpuPart, memory: Memory, cpu: Cpu) -> HostTime:
    """Return the mean time of a random access; raises InputError where the question's figures are out of range."""
    if question.each_bytes > question.size_bytes:
        raise InputError(f"each={format_size(question.each_bytes)} is more than all of the memory that is touched")
    if question.outstanding < 1:
        raise InputError(f"outstanding is at least 1; got {question.outstanding}")
    found = chase(part, question.size_bytes, memory.place, question.page_bytes)
    threads = min(cpu.threads, cpu.core_count) if question.threads is not None else 1
    most = cpu.constants(CoreCosts).lines_in_flight
    under_way = threads * min(question.outstanding, most)
    rate_Bps = _rate(cpu, memory, threads, question.size_bytes)
    crossing = _crossing(question)
    further_s = (max(0.0, question.each_bytes - _WORD_BYTES) + crossing * _WORD_BYTES) / rate_Bps
    waits = {"latency": (found.latency_s + further_s) / under_way}
    lines = max(1.0, question.each_bytes / LINE_BYTES) + crossing
    if under_way > 1:
        waits["bandwidth"] = lines * LINE_BYTES * found.missed / rate_Bps
    if part.dram is not None and memory.bandwidth_Bps is None and memory.place is not None:
        cycle_s = part.dram.bank_cycle or memory.place.latency_s
        waits["banks"] = found.missed * cycle_s / part.dram.banks
    bound = max(waits, key=lambda name: waits[name])
    time_s = waits[bound]
    word_s = _WORD_BYTES / rate_Bps
    why = [*_reasons(found), *memory.why]
    if further_s:
        why.append(f"bytes after the first word take {format_duration(further_s, 3)} more")
    if under_way > 1:
        why.append(f"{under_way} accesses are under way at once")
    if question.outstanding > most:
        why.append(f"a core keeps at most {most} lines under way")
    if bound == "banks" and part.dram is not None:
        why.append(f"{part.dram.banks} banks work independently, each busy with an address for so long")
    random_word_s = time_s * _WORD_BYTES / max(question.each_bytes, _WORD_BYTES)
    why.append(
        f"one word after the other would come every {format_duration(word_s, 3)}: "
        f"{random_word_s / word_s:.3g} times as fast"
    )
    words = {"latency": _level_words(found), "bandwidth": "memory bandwidth", "banks": "banks of memory"}
    figures = _figures(found) | {
        "outstanding": float(under_way),
        "further_s": further_s,
        "accesses_per_s": 1.0 / time_s,
        "sequential_word_s": word_s,
        "against_sequential": random_word_s / word_s,
    }
    return HostTime(time_s, "an access", words[bound], tuple(why), figures)


def strided_answer(question: AccessQuestion, part: CpuPart, memory: Memory, cpu: Cpu) -> HostTime:
    """Return the mean time per element of a strided walk; raises InputError where the stride exceeds the memory."""
    stride = question.stride_bytes
    if stride > question.size_bytes:
        raise InputError(f"stride={format_size(stride)} is more than all of the memory that is walked through")
    threads = min(cpu.threads, cpu.core_count) if question.threads is not None else 1
    lines = min(1.0, stride / LINE_BYTES)  # new lines per element
    elements = question.size_bytes / stride
    touched = elements * lines * LINE_BYTES
    rate_Bps, used = _channel_rate(part, stride, _rate(cpu, memory, threads, touched))
    bytes_s = (lines + _crossing(question) * (lines == 1.0)) * LINE_BYTES / rate_Bps
    why = []
    if used is not None:
        assert part.dram is not None
        why.append(f"the stride meets {used} of {part.dram.channels} channels")
    pages = question.size_bytes / max(stride, question.page_bytes)
    found = chase(part, touched, memory.place, question.page_bytes, pages)
    figures = {"line_share": lines, "touched_bytes": touched, "bandwidth_Bps": rate_Bps}
    why.append(
        f"each element takes {'a line' if lines == 1.0 else f'{lines:.3g} of a line'} of {LINE_BYTES} B, "
        f"at {format_bandwidth(rate_Bps, 3)}"
    )
    if question.backward:
        why.append("backward is as fast as forward: prefetchers follow both ways")
    if stride <= question.page_bytes / 2:
        why.append("the prefetcher follows the stride, so latency does not count")
        return HostTime(
            bytes_s, "an element", "memory bandwidth" if found.missed else "cache bandwidth", tuple(why), figures
        )
    under_way = threads * cpu.constants(CoreCosts).lines_in_flight
    waits_s = found.latency_s / under_way
    why += [*_reasons(found), *memory.why]
    why.append(f"no prefetcher follows a stride beyond half a page; {under_way} lines are under way at once")
    bound = _level_words(found) if waits_s > bytes_s else "memory bandwidth"
    return HostTime(max(waits_s, bytes_s), "an element", bound, tuple(why), figures | _figures(found))


def _rate(cpu: Cpu, memory: Memory, threads: int, touched_bytes: float) -> float:
    rate_Bps = bandwidth(cpu, touched_bytes, threads)
    return rate_Bps if memory.bandwidth_Bps is None else min(rate_Bps, memory.bandwidth_Bps)


def _channel_rate(part: CpuPart, stride: float, rate_Bps: float) -> tuple[float, int | None]:
    """Return the rate of the channels that the stride uses, in B/s, and their number; None where it uses all."""
    dram = part.dram
    if dram is None or not dram.interleave or stride < dram.interleave or stride % dram.interleave:
        return rate_Bps, None
    used = dram.channels // gcd(int(stride / dram.interleave), dram.channels)
    return (rate_Bps, None) if used == dram.channels else (rate_Bps * used / dram.channels, used)


def _crossing(question: AccessQuestion) -> float:
    """Return the share of accesses that straddle two lines."""
    size = question.element_bytes if question.kind == "strided" else min(question.each_bytes, LINE_BYTES)
    return size / LINE_BYTES if question.misaligned and size > 1 else 0.0


def _level_words(found: Chase) -> str:
    slowest = max(found.stages, key=lambda stage: stage.share * stage.latency_s)
    return f"latency of {_named(slowest)}"


def _named(stage: LatencyLevel) -> str:
    return stage.name if stage.is_memory else stage.name.upper()


def _reasons(found: Chase) -> list[str]:
    shown = [stage for stage in found.stages if stage.share >= _SHOWN]
    shares = ", ".join(f"{stage.share:.0%} {_named(stage)} ({format_duration(stage.latency_s, 3)})" for stage in shown)
    said = [f"served by {shares}: {format_duration(found.data_s, 3)}"]
    if found.translation_s:
        walked = f", {found.walked:.0%} of them read from the page table" if found.walked else ""
        said.append(f"translating addresses adds {format_duration(found.translation_s, 3)}{walked}")
    return said


def _figures(found: Chase) -> dict[str, float]:
    shares = {f"{'memory' if stage.is_memory else stage.name}_share": stage.share for stage in found.stages}
    return shares | {"data_s": found.data_s, "translation_s": found.translation_s, "walked_share": found.walked}
