"""The latency of a load on a CPU: the cache or memory that serves it, and the translation of its address.

Loads access the working set in random order, so each level holds a share of the set in proportion to its size.  Where
loads repeat the same order, the inner levels, which evict the least recently used line, keep less
(:func:`cyclic_share`).  Last-level caches evict more cleverly: 46 ns for 64 MB on a cache of 35 MB (Eshelman's table)
means that it holds half of the set.  The same holds for translations: a TLB of *n* entries knows *n* pages.  A
translation that no TLB knows is read from the page table, whose 8-byte entries are in caches and memory like other data
(Drepper, What Every Programmer Should Know About Memory, sections 3.3.2 and 4.3).  Entries of the table and lines of
the set compete for a cache, which holds each according to how often it is used (Che, Tung, Wang: Hierarchical Web
Caching Systems, 2002).

In a guest, the entry holds an address of the guest's memory, which a second table, the host's, translates (Bhargava et
al., Accelerating Two-Dimensional Page Walks for Virtualized Systems, 2008).  Its last entry is read as well; the
entries above it, and those for the guest's own table, are cached nearby.  Beside neighbours that read through the same
cache, the set's share of it is in proportion to the rate at which its own loads fetch lines.

A walk that uses each line once before it uses the first again always misses in a set that more lines map to than it has
ways: the least recently used line, which is evicted, is the one needed next.  The addresses of lines decide which set
they map to.  Within a page they are spread evenly; so is the whole walk if one way of the cache is no larger than a
page.  Otherwise the operating system places pages at random, and some sets get more lines than others (Kessler and
Hill, Page Placement Algorithms for Large Real-Indexed Caches, 1992).

The memory is that of the core's own socket, of another socket, or a persistent module (:func:`memory_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.devices.cpu import LINE_BYTES
from simulator.devices.cpu.memory import own_share
from simulator.errors import InputError, nearest, stated
from simulator.network.machine import Link, Machine, Node
from simulator.records import dataclass
from simulator.topology.parts import CpuPart, StoragePart
from simulator.units import format_duration

_ENTRY_BYTES = 8  # of a page table
_LARGE_PAGE = 2 << 20
_HALVINGS = 80  # bisections that reach the precision of a double
_SETTLED = 1e-6  # relative change of the latency between two rounds
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class LoadedMemory:
    """Memory that serves loads, and the latency to its first word."""

    name: str
    latency_s: float


@dataclass(frozen=True, slots=True)
class LatencyLevel:
    """A level that serves ``share`` of the loads, each after ``latency_s``."""

    name: str
    share: float
    latency_s: float
    is_memory: bool = False


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


def memory_place(part: CpuPart, extra_s: float = 0.0, name: str = "memory") -> LoadedMemory | None:
    """Return the memory of the socket, *extra_s* farther away; None where the part has no memory latency."""
    return None if part.memory_latency is None else LoadedMemory(name, part.memory_latency + extra_s)


def chase(
    part: CpuPart,
    working_set_bytes: float,
    memory: LoadedMemory | None,
    page_bytes: float = 4096.0,
    pages: float | None = None,
    *,
    is_cyclic: bool = False,
) -> Chase:
    """Return the latency of loads by one core that access *working_set_bytes* in random order.

    *is_cyclic*: each line is used once before the first is used again.  *pages* is the number of pages over which the
    set is spread, by default as many as it fills.  Raises InputError where the set exceeds the caches and *memory* is
    None.
    """
    stages = _stages(part, working_set_bytes, memory, page_bytes if is_cyclic else 0.0)
    pages = max(1.0, working_set_bytes / page_bytes if pages is None else pages)
    translation_s, walked = _translation(part, working_set_bytes, memory, pages, is_large=page_bytes >= _LARGE_PAGE)
    return Chase(stages, translation_s, walked)


def _stages(
    part: CpuPart, working_set_bytes: float, memory: LoadedMemory | None, page_bytes: float
) -> tuple[LatencyLevel, ...]:
    """Return the levels that serve the loads, beside neighbours that evict lines from shared caches.

    The longer a load takes, the less of a cache the loads keep, which makes them slower still: iterate until the
    latency settles.
    """
    found = _held_stages(part, working_set_bytes, memory, page_bytes, 0.0)
    if not any(level.neighbours for level in part.caches.values()):
        return found
    latency_s = 0.0
    for _ in range(_ROUNDS):
        next_s = sum(stage.share * stage.latency_s for stage in found)
        if abs(next_s - latency_s) <= _SETTLED * next_s:
            break
        latency_s = next_s
        found = _held_stages(part, working_set_bytes, memory, page_bytes, latency_s)
    return found


def _held_stages(
    part: CpuPart, working_set_bytes: float, memory: LoadedMemory | None, page_bytes: float, latency_s: float
) -> tuple[LatencyLevel, ...]:
    """Return the levels that serve loads of *latency_s* each; with 0, as if there were no neighbours.

    *page_bytes* is the page size for a cyclic walk, and 0 for any other.
    """
    found: list[LatencyLevel] = []
    held, names = 0.0, list(part.caches)
    for name, level in part.caches.items():
        kept = own_share(level.neighbours, LINE_BYTES / latency_s) if level.neighbours and latency_s else 1.0
        if page_bytes and name != names[-1]:
            # The first level is indexed by virtual addresses, which are contiguous.
            contiguous = math.inf if name == names[0] else page_bytes
            reach = cyclic_share(level.size, level.ways, working_set_bytes, contiguous)
        else:
            reach = min(1.0, kept * level.size / working_set_bytes)
        if reach > held:
            found.append(LatencyLevel(name, reach - held, level.latency))
            held = reach
    if held < 1.0:
        memory = stated(memory, "the part has no memory_latency")
        found.append(LatencyLevel(memory.name, 1.0 - held, memory.latency_s, is_memory=True))
    return tuple(found)


def _translation(
    part: CpuPart, working_set_bytes: float, memory: LoadedMemory | None, pages: float, *, is_large: bool
) -> tuple[float, float]:
    """Return the mean seconds of a translation, and the share of translations read from the page table."""
    seconds = known = 0.0
    for level in part.tlb.values():
        entries = level.large_entries if is_large and level.large_entries is not None else level.entries
        reach = min(1.0, entries / pages)
        if reach > known:
            seconds += (reach - known) * level.latency
            known = reach
    if not part.tlb or known >= 1.0:
        return seconds, 0.0
    walk_s = _walk_s(part, working_set_bytes, pages, memory)
    if part.nested_page:
        walk_s += _walk_s(part, working_set_bytes, max(1.0, working_set_bytes / part.nested_page), memory)
    return seconds + (1.0 - known) * walk_s, 1.0 - known


def _walk_s(part: CpuPart, working_set_bytes: float, pages: float, memory: LoadedMemory | None) -> float:
    """Return the seconds to read the last entry in a table of *pages*; those above it are taken to be cached."""
    data, table = working_set_bytes / LINE_BYTES, max(1.0, pages * _ENTRY_BYTES / LINE_BYTES)
    seconds = held = 0.0
    for level in part.caches.values():
        reach = max(held, kept_share(level.size / LINE_BYTES, table, (table, data)))
        seconds += (reach - held) * level.latency
        held = reach
    if held < 1.0 and memory is not None:
        seconds += (1.0 - held) * memory.latency_s
    return seconds


def kept_share(lines: float, mine: float, others: Sequence[float]) -> float:
    """Return the share of *mine* that a cache of *lines* lines holds (*mine* is also among *others*).

    Each number is a set of lines; the sets are used in turn, one random line at a time.  A line stays for as long as it
    takes to fill the cache, t uses; the cache thus holds sum n (1 - exp(-t / n)) lines, which determines t.
    """
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
    others = max(0, math.ceil(working_set_bytes / page_bytes) - 1)
    return _at_most(ways - 1, others, 1.0 / colours)


def _at_most(most: int, trials: int, chance: float) -> float:
    """Return the probability of at most *most* successes in *trials* trials of probability *chance* each."""
    total = 0.0
    for count in range(min(most, trials) + 1):
        ordered = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        total += math.exp(ordered + count * math.log(chance) + (trials - count) * math.log1p(-chance))
    return min(1.0, total)


# -- which memory ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory as a core reaches it, at most ``bandwidth_Bps`` (None: the socket's figures); ``why``: its distance."""

    place: LoadedMemory | None
    bandwidth_Bps: float | None = None
    why: tuple[str, ...] = ()


def memory_of(machine: Machine, part: CpuPart, node: str, *, writes: bool = False) -> Memory:
    """Return the memory that *node* names, as reached from a core of the machine's first CPU, of *part*.

    *node* is ``local``, ``remote`` (the next socket's memory) or a device of the machine: a CPU, or storage that is
    read like memory.  *writes*: the access writes.  Raises InputError where there is no such memory, no link to it, or
    no latency of it.
    """
    if node == "local":
        return Memory(memory_place(part))
    cpus = (n for n in machine.nodes if isinstance(n.part, CpuPart) and n.host == 0)
    own = stated(next(cpus, None), "the machine has no CPU")
    if node == "remote":
        missing = f"node=remote: {machine.name} has no second socket, or no link to it"
        return _across(part, stated(_hop(machine, own, None), missing))
    found = machine.find(node)
    if found is None:
        known = ["local", "remote", *(n.name for n in machine.nodes if _is_memory(n))]
        raise InputError(f"node={node}: {machine.name} has no such memory; {nearest(node, known)}")
    if found.index == own.index:
        return Memory(memory_place(part))
    if isinstance(found.part, CpuPart):
        return _across(part, stated(_hop(machine, own, found), f"node={node}: no link joins {own.name} and {node}"))
    if not _is_memory(found):
        raise InputError(f"node={node}: {node} is not read like memory; a storage part with of: dimm is")
    assert isinstance(found.part, StoragePart)
    does = "write" if writes else "read"
    latency_s: float = stated(getattr(found.part, f"{does}_latency"), f"node={node}: the part has no {does}_latency")
    rate_Bps = found.part.write_bandwidth if writes else found.part.read_bandwidth
    said = f"{node} answers a {does} after {format_duration(latency_s, 3)}"
    return Memory(LoadedMemory(node, latency_s), rate_Bps, (said,))


def _is_memory(node: Node) -> bool:
    return isinstance(node.part, CpuPart) or (isinstance(node.part, StoragePart) and node.part.of == "dimm")


def _hop(machine: Machine, own: Node, other: Node | None) -> Link | None:
    """Return the link from one socket to *other*, or to any other socket; None where there is none."""
    return next(
        (
            link
            for link in machine.outgoing[own.index]
            if isinstance(machine.nodes[link.dst].part, CpuPart) and (other is None or link.dst == other.index)
        ),
        None,
    )


def _across(part: CpuPart, link: Link) -> Memory:
    name = f"memory beyond {link.kind} link"
    said = f"the other socket's memory is one hop of {format_duration(link.latency_s, 3)} further away"
    return Memory(memory_place(part, link.latency_s, name), link.nominal_Bps, (said,))
