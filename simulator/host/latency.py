"""Single accesses of a CPU: what serves a load, and patterns (docs/decisions/host.md)."""

import math
from collections.abc import Sequence

from simulator.devices.cpu import LINE_BYTES, Cpu
from simulator.devices.cpu.memory import bandwidth, own_share
from simulator.errors import InputError, nearest, stated
from simulator.host.answer import HostTime
from simulator.network.machine import Machine, Node
from simulator.questions.single import AccessQuestion
from simulator.records import dataclass
from simulator.topology.parts import CpuPart, StoragePart
from simulator.units import format_bandwidth, format_duration, format_size

_WORD_BYTES = 8
_SHOWN = 0.005  # smallest share of the loads that is mentioned in words
_ENTRY_BYTES = 8  # of a page table
_LARGE_PAGE = 2 << 20
_HALVINGS = 80  # bisections that reach the precision of a double
_SETTLED = 1e-6  # relative change of the latency between two rounds
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory as a core reaches it."""

    name: str
    latency_s: float | None  # to its first word; None: not stated
    bandwidth_Bps: float | None = None  # at most; None: the socket's
    why: tuple[str, ...] = ()  # its distance, in words


@dataclass(frozen=True, slots=True)
class LatencyLevel:
    """A level that serves ``share`` of the loads, each after ``latency_s``."""

    name: str
    share: float
    latency_s: float
    is_memory: bool = False

    @property
    def words(self) -> str:
        """Its name as in what is said of it."""
        return self.name if self.is_memory else "the far half of L2" if self.name == "far_l2" else self.name.upper()


@dataclass(frozen=True, slots=True)
class Chase:
    """The mean latency of a load: that of the data, and that of translating its address."""

    stages: tuple[LatencyLevel, ...]
    translation_s: float
    walked: float  # share of the loads whose translation is read from the page table

    @property
    def data_s(self) -> float:
        """Mean latency over the levels, in seconds."""
        return sum(stage.share * stage.latency_s for stage in self.stages)

    @property
    def latency_s(self) -> float:
        """Mean latency of a load with its translation, in seconds."""
        return self.data_s + self.translation_s

    @property
    def missed(self) -> float:
        """Share of loads that memory serves."""
        return sum(stage.share for stage in self.stages if stage.is_memory)

    @property
    def bound(self) -> str:
        """The level on which loads spend most time, in words."""
        return f"latency of {max(self.stages, key=lambda stage: stage.share * stage.latency_s).words}"

    @property
    def served(self) -> str:
        """The levels that serve loads, in words."""
        shown = [stage for stage in self.stages if stage.share >= _SHOWN]
        shares = (f"{each.share:.0%} {each.words} ({format_duration(each.latency_s, 3)})" for each in shown)
        return f"served by {', '.join(shares)}"

    @property
    def reasons(self) -> list[str]:
        """The levels and the translation, in words."""
        said = [f"{self.served}: {format_duration(self.data_s, 3)}"]
        if self.translation_s:
            walked = f", {self.walked:.0%} of them read from the page table" if self.walked else ""
            said.append(f"translating addresses adds {format_duration(self.translation_s, 3)}{walked}")
        return said

    @property
    def shares(self) -> dict[str, float]:
        """The shares of the levels, by name."""
        return {f"{'memory' if stage.is_memory else stage.name}_share": stage.share for stage in self.stages}

    @property
    def figures(self) -> dict[str, float]:
        """The shares of the levels, and seconds of data and translation, by name."""
        return self.shares | {"data_s": self.data_s, "translation_s": self.translation_s, "walked_share": self.walked}


def memory_place(part: CpuPart, extra_s: float = 0.0) -> Memory:
    """Return the memory of the socket, *extra_s* farther away."""
    return Memory("memory", None if part.memory_latency is None else part.memory_latency + extra_s)


def chase(
    part: CpuPart,
    working_set_bytes: float,
    memory: Memory,
    page_bytes: float = 4096.0,
    pages: float | None = None,  # over which the set is spread; None: as many as it fills
    *,
    is_cyclic: bool = False,  # each line is used once before the first is used again
) -> Chase:
    """Return the latency of loads in random (*is_cyclic*: repeated) order over *pages*.

    Raises InputError where the set exceeds the caches and *memory* has no latency.
    """
    page = page_bytes if is_cyclic else 0.0
    latency_s, stages = 0.0, _stages(part, working_set_bytes, memory, page, 0.0)
    # Beside neighbours, the longer a load takes, the less of a cache the loads keep, which makes them slower still.
    for _ in range(_ROUNDS if any(level.neighbours for level in part.caches.values()) else 0):
        next_s = sum(stage.share * stage.latency_s for stage in stages)
        if abs(next_s - latency_s) <= _SETTLED * next_s:
            break
        latency_s = next_s
        stages = _stages(part, working_set_bytes, memory, page, latency_s)
    pages = max(1.0, working_set_bytes / page_bytes if pages is None else pages)
    translation_s = known = 0.0
    for tlb in part.tlb.values():
        large = tlb.large_entries if page_bytes >= _LARGE_PAGE else None
        reach = min(1.0, (tlb.entries if large is None else large) / pages)
        if reach > known:
            translation_s += (reach - known) * tlb.latency
            known = reach
    if not part.tlb or known >= 1.0:
        return Chase(stages, translation_s, 0.0)
    walk_s = _walk_s(part, working_set_bytes, pages, memory)
    if part.nested_page:
        walk_s += _walk_s(part, working_set_bytes, max(1.0, working_set_bytes / part.nested_page), memory)
    return Chase(stages, translation_s + (1.0 - known) * walk_s, 1.0 - known)


def _stages(
    part: CpuPart, working_set_bytes: float, memory: Memory, page_bytes: float, latency_s: float
) -> tuple[LatencyLevel, ...]:
    """Return what serves loads of *latency_s* each (0: no neighbours) in a walk cyclic by pages, or not (0)."""
    found: list[LatencyLevel] = []
    held, names = 0.0, list(part.caches)
    for name, level in part.caches.items():
        if page_bytes and name != names[-1]:
            # The first level is indexed by virtual addresses, which are contiguous.
            contiguous = math.inf if name == names[0] else page_bytes
            reach = cyclic_share(level.size, level.ways, working_set_bytes, contiguous)
        else:
            kept = own_share(level.neighbours, LINE_BYTES / latency_s) if level.neighbours and latency_s else 1.0
            reach = min(1.0, kept * level.size / working_set_bytes)
        if reach > held:
            found.append(LatencyLevel(name, reach - held, level.latency))
            held = reach
    if held < 1.0:
        memory_s = stated(memory.latency_s, "the part has no memory_latency")
        found.append(LatencyLevel(memory.name, 1.0 - held, memory_s, is_memory=True))
    return tuple(found)


def _walk_s(part: CpuPart, working_set_bytes: float, pages: float, memory: Memory) -> float:
    """Return the seconds to read the last entry in a table of *pages*; those above it are taken to be cached."""
    data, table = working_set_bytes / LINE_BYTES, max(1.0, pages * _ENTRY_BYTES / LINE_BYTES)
    seconds = held = 0.0
    for level in part.caches.values():
        reach = max(held, kept_share(level.size / LINE_BYTES, table, (table, data)))
        seconds += (reach - held) * level.latency
        held = reach
    if held < 1.0 and memory.latency_s is not None:
        seconds += (1.0 - held) * memory.latency_s
    return seconds


def kept_share(lines: float, mine: float, others: Sequence[float]) -> float:
    """Return the share of *mine* in a cache of *lines*: sum n (1 - exp(-t / n)) of sets in turn stay, hence t."""
    if sum(others) <= lines:
        return 1.0
    low, high = 0.0, 64.0 * max(others)
    for _ in range(_HALVINGS):
        t = 0.5 * (low + high)
        if sum(-n * math.expm1(-t / n) for n in others) < lines:
            low = t
        else:
            high = t
    return -math.expm1(-low / mine)


def cyclic_share(size_bytes: float, ways: int, working_set_bytes: float, page_bytes: float) -> float:
    """Return the share of the lines of *working_set_bytes* that a cache of *size_bytes* serves."""
    colours = size_bytes / (ways * page_bytes)  # page colours: pages of different colours share no set
    if colours <= 1.0:
        return min(1.0, max(0.0, 1.0 - (working_set_bytes / size_bytes - 1.0) * ways))
    trials, chance = max(0, math.ceil(working_set_bytes / page_bytes) - 1), 1.0 / colours
    total = 0.0  # the probability that at most ways - 1 other pages have the colour
    for count in range(min(ways - 1, trials) + 1):
        ordered = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        total += math.exp(ordered + count * math.log(chance) + (trials - count) * math.log1p(-chance))
    return min(1.0, total)


def memory_of(machine: Machine, part: CpuPart, node: str, *, writes: bool = False) -> Memory:
    """Return the memory *node* as the first CPU sees it: ``local``, ``remote`` (the next socket's) or of a device.

    Raises InputError where there is no such memory, no link to it, or no latency of it.
    """
    if node == "local":
        return memory_place(part)
    cpus = (n for n in machine.nodes if isinstance(n.part, CpuPart) and n.host == 0)
    own = stated(next(cpus, None), "the machine has no CPU")
    found = None if node == "remote" else machine.find(node)
    if node != "remote" and found is None:
        known = ["local", "remote", *(n.name for n in machine.nodes if _is_memory(n))]
        raise InputError(f"node={node}: {machine.name} has no such memory; {nearest(node, known)}")
    if found is not None and found.index == own.index:
        return memory_place(part)
    if found is None or isinstance(found.part, CpuPart):
        hops = (link for link in machine.outgoing[own.index] if isinstance(machine.nodes[link.dst].part, CpuPart))
        missing = f"node=remote: {machine.name} has no second socket, or no link to it"
        if found is not None:
            missing = f"node={node}: no link joins {own.name} and {node}"
        link = stated(next((link for link in hops if found is None or link.dst == found.index), None), missing)
        said = f"the other socket's memory is one hop of {format_duration(link.latency_s, 3)} further away"
        latency_s = memory_place(part, link.latency_s).latency_s
        return Memory(f"memory beyond {link.kind} link", latency_s, link.nominal_Bps, (said,))
    if not _is_memory(found):
        raise InputError(f"node={node}: {node} is not read like memory; a storage part with of: dimm is")
    assert isinstance(found.part, StoragePart)
    does = "write" if writes else "read"
    takes_s: float = stated(getattr(found.part, f"{does}_latency"), f"node={node}: the part has no {does}_latency")
    rate_Bps = found.part.write_bandwidth if writes else found.part.read_bandwidth
    return Memory(node, takes_s, rate_Bps, (f"{node} answers a {does} after {format_duration(takes_s, 3)}",))


def _is_memory(node: Node) -> bool:
    return isinstance(node.part, CpuPart) or (isinstance(node.part, StoragePart) and node.part.of == "dimm")


def random_answer(question: AccessQuestion, part: CpuPart, memory: Memory, cpu: Cpu) -> HostTime:
    """Return the mean time of a random access; raises InputError where the question's figures are out of range."""
    if question.each_bytes > question.size_bytes:
        raise InputError(f"each={format_size(question.each_bytes)} is more than all of the memory that is touched")
    if question.outstanding < 1:
        raise InputError(f"outstanding is at least 1; got {question.outstanding}")
    found = chase(part, question.size_bytes, memory, question.page_bytes)
    threads, most, rate_Bps = _drawn(question, memory, cpu, question.size_bytes)
    under_way = threads * min(question.outstanding, most)
    crossing = _crossing(question, min(question.each_bytes, LINE_BYTES))
    further_s = (max(0.0, question.each_bytes - _WORD_BYTES) + crossing * _WORD_BYTES) / rate_Bps
    waits = {found.bound: (found.latency_s + further_s) / under_way}
    lines = max(1.0, question.each_bytes / LINE_BYTES) + crossing
    if under_way > 1:
        waits["memory bandwidth"] = lines * LINE_BYTES * found.missed / rate_Bps
    if part.dram is not None and memory.bandwidth_Bps is None and memory.latency_s is not None:
        waits["banks of memory"] = found.missed * (part.dram.bank_cycle or memory.latency_s) / part.dram.banks
    bound = max(waits, key=lambda name: waits[name])
    time_s, word_s = waits[bound], _WORD_BYTES / rate_Bps
    why = [*found.reasons, *memory.why]
    if further_s:
        why.append(f"bytes after the first word take {format_duration(further_s, 3)} more")
    if under_way > 1:
        why.append(f"{under_way} accesses are under way at once")
    if question.outstanding > most:
        why.append(f"a core keeps at most {most} lines under way")
    if bound == "banks of memory" and part.dram is not None:
        why.append(f"{part.dram.banks} banks work independently, each busy with an address for so long")
    slower = time_s * _WORD_BYTES / max(question.each_bytes, _WORD_BYTES) / word_s
    why.append(f"one word after the other would come every {format_duration(word_s, 3)}: {slower:.3g} times as fast")
    figures = found.figures | {
        "outstanding": float(under_way),
        "further_s": further_s,
        "accesses_per_s": 1.0 / time_s,
        "sequential_word_s": word_s,
        "against_sequential": slower,
    }
    return HostTime(time_s, "an access", bound, tuple(why), figures)


def strided_answer(question: AccessQuestion, part: CpuPart, memory: Memory, cpu: Cpu) -> HostTime:
    """Return the mean time per element of a strided walk; raises InputError where the stride exceeds the memory."""
    stride, dram = question.stride_bytes, part.dram
    if stride > question.size_bytes:
        raise InputError(f"stride={format_size(stride)} is more than all of the memory that is walked through")
    lines = min(1.0, stride / LINE_BYTES)  # new lines per element
    touched = question.size_bytes / stride * lines * LINE_BYTES
    threads, most, rate_Bps = _drawn(question, memory, cpu, touched)
    why = []
    if dram is not None and dram.interleave and stride >= dram.interleave and not stride % dram.interleave:
        used = dram.channels // math.gcd(int(stride / dram.interleave), dram.channels)
        if used < dram.channels:
            rate_Bps = rate_Bps * used / dram.channels
            why.append(f"the stride meets {used} of {dram.channels} channels")
    bytes_s = (lines + _crossing(question, question.element_bytes) * (lines == 1.0)) * LINE_BYTES / rate_Bps
    pages = question.size_bytes / max(stride, question.page_bytes)
    found = chase(part, touched, memory, question.page_bytes, pages)
    figures = {"line_share": lines, "touched_bytes": touched, "bandwidth_Bps": rate_Bps}
    why.append(
        f"each element takes {'a line' if lines == 1.0 else f'{lines:.3g} of a line'} of {LINE_BYTES} B, "
        f"at {format_bandwidth(rate_Bps, 3)}"
    )
    if question.backward:
        why.append("backward is as fast as forward: prefetchers follow both ways")
    if stride <= question.page_bytes / 2:
        why.append("the prefetcher follows the stride, so latency does not count")
        bound = "memory bandwidth" if found.missed else "cache bandwidth"
        return HostTime(bytes_s, "an element", bound, tuple(why), figures)
    waits_s = found.latency_s / (threads * most)
    why += [*found.reasons, *memory.why]
    why.append(f"no prefetcher follows a stride beyond half a page; {threads * most} lines are under way at once")
    bound = found.bound if waits_s > bytes_s else "memory bandwidth"
    return HostTime(max(waits_s, bytes_s), "an element", bound, tuple(why), figures | found.figures)


def _drawn(question: AccessQuestion, memory: Memory, cpu: Cpu, touched_bytes: float) -> tuple[int, int, float]:
    """Return the threads that access, the lines that each keeps in flight, and the B/s that all draw."""
    threads = min(cpu.threads, cpu.core_count) if question.threads is not None else 1
    rate_Bps = bandwidth(cpu, touched_bytes, threads)
    rate_Bps = rate_Bps if memory.bandwidth_Bps is None else min(rate_Bps, memory.bandwidth_Bps)
    return threads, int(cpu.constants["cpu_cores"].lines_in_flight), rate_Bps


def _crossing(question: AccessQuestion, size_bytes: float) -> float:
    return size_bytes / LINE_BYTES if question.misaligned and size_bytes > 1 else 0.0
