"""The latency of a load on a CPU: the cache or memory that serves it, and the translation of its address.

Loads access the working set in random order, so each level holds a share of the set in proportion to its size.  Where
loads repeat the same order, the inner levels, which evict the least recently used line, keep less
(:mod:`simulator.host.cyclic`).  Last-level caches evict more cleverly: 46 ns for 64 MB on a cache of 35 MB (Eshelman's
table) means that it holds half of the set.  The same holds for translations: a TLB of *n* entries knows *n* pages.  A
translation that no TLB knows is read from the page table, whose 8-byte entries are in caches and memory like other data
(Drepper, What Every Programmer Should Know About Memory, sections 3.3.2 and 4.3).  Entries of the table and lines of
the set compete for a cache, which holds each according to how often it is used (Che, Tung, Wang: Hierarchical Web
Caching Systems, 2002).

In a guest, the entry holds an address of the guest's memory, which a second table, the host's, translates (Bhargava et
al., Accelerating Two-Dimensional Page Walks for Virtualized Systems, 2008).  Its last entry is read as well; the
entries above it, and those for the guest's own table, are cached nearby.  Beside neighbours that read through the same
cache, the set's share of it is in proportion to the rate at which its own loads fetch lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.devices.cpu.cpu import LINE_BYTES
from simulator.devices.cpu.memory import own_share
from simulator.errors import InputError
from simulator.host.cyclic import cyclic_share
from simulator.topology.parts import CpuPart

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
        if memory is None:
            raise InputError("the part has no memory_latency")
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
