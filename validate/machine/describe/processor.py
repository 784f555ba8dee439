"""Read the processor, its memory and the first disk as the system reports them: model, cores, clocks, caches."""

import json
import math
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from simulator.records import dataclass, field, replace
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import CacheLevel, CpuPart
from simulator.units import format_binary
from validate.machine.describe.driver import GENERATIONS
from validate.machine.measure.host import cpu_facts, slug, text_of

VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
_IN_NAME = re.compile(r"@\s*([0-9.]+)\s*GHz", re.IGNORECASE | re.ASCII)
_SCALES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def designs(vendor: str, family: int, model: int) -> tuple[str, ...]:
    """Return the designs of server processors with these numbers of the *vendor*; two where they share a number."""
    known = ((name, each["numbers"]) for name, each in GENERATIONS["processors"].items() if each["vendor"] == vendor)
    return tuple(name for name, all_of in known if any(family == of and a <= model <= b for of, a, b in all_of))


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """One level of data cache: the size of one cache, the usable cores that share it, its ways (0: unknown)."""

    level: int
    size_bytes: int
    shared_by_cores: int
    ways: int = 0


@dataclass(frozen=True, slots=True)
class Processor:
    """What the system reports of the processor; None, 0 or empty where it reports nothing.

    ``cores`` and ``threads`` are one socket's that this process may use; ``socket_of`` maps each logical processor to
    its socket.  ``model_number`` and ``stepping`` are -1 where unknown.  ``guess`` says why the model is a guess.
    """

    model: str
    vendor: str
    family: int = 0
    flags: frozenset[str] = frozenset()
    sockets: int = 1
    cores: int = 1
    threads: int = 1
    clock_Hz: float | None = None
    turbo_Hz: float | None = None
    caches: tuple[CacheFacts, ...] = ()
    memory_bytes: int | None = None
    socket_of: Mapping[int, int] = field(default_factory=dict)
    model_number: int = -1
    stepping: int = -1
    is_guest: bool = False
    guess: str = ""


def read_processor(root: Path = Path("/"), usable: Collection[int] | None = None) -> Processor:
    """Return the processor by the files under *root*; *usable* logical ones count, all if None."""
    blocks = {int(each["processor"]): each for each in cpu_facts(root) if each.get("processor", "").isdecimal()}
    first = next(iter(blocks.values()), {})
    said = {number: _place(root, number, block) for number, block in blocks.items()}
    packages = sorted({package for package, _ in said.values()})
    mine = {number: said[number] for number in said if usable is None or number in usable} or said
    cores = {package: {core for p, core in mine.values() if p == package} for package, _ in mine.values()}
    sockets = max(1, len(cores))
    n_cores = max((len(found) for found in cores.values()), default=os.cpu_count() or 1)
    quota = _quota(root)
    if quota is not None and quota < n_cores * sockets:
        sockets, n_cores = 1, quota
    threads_per_core = max(1, len(mine) // max(1, sum(len(found) for found in cores.values()))) if mine else 1
    model = first.get("model name") or first.get("Model name") or ""
    family = first.get("cpu family", "")
    vendor = VENDORS.get(first.get("vendor_id", ""), "arm" if "CPU implementer" in first else "other")
    flags = frozenset((first.get("flags") or first.get("Features") or "").split())
    found = Processor(model, vendor, int(family) if family.isdecimal() else 0, flags, sockets, n_cores)
    clock_Hz, turbo_Hz = _clocks(root, model, first)
    found = replace(found, threads=n_cores * threads_per_core, clock_Hz=clock_Hz, turbo_Hz=turbo_Hz)
    number, stepping = (_integer(first.get(name, ""), -1) for name in ("model", "stepping"))
    socket_of = {number: packages.index(package) for number, (package, _) in said.items()}
    caches = _caches(root, set(mine), threads_per_core, n_cores)
    found = replace(found, caches=caches, memory_bytes=_memory(root), socket_of=socket_of)
    return replace(found, is_guest="hypervisor" in flags, model_number=number, stepping=stepping)


def _place(root: Path, number: int, block: Mapping[str, str]) -> tuple[int, int]:
    folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
    package = text_of(folder / "physical_package_id") or block.get("physical id", "0")
    core = text_of(folder / "core_id") or block.get("core id", str(number))
    return _integer(package, 0), _integer(core, number)


def _integer(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else default


def _quota(root: Path) -> int | None:
    words = text_of(root / "sys/fs/cgroup/cpu.max").split()
    if len(words) != 2 or not all(re.fullmatch(r"[1-9]\d{0,12}", word, re.ASCII) for word in words):
        return None
    return max(1, int(words[0]) // int(words[1]))


def _clocks(root: Path, model: str, first: Mapping[str, str]) -> tuple[float | None, float | None]:
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    base_kHz, most_kHz = (_integer(text_of(folder / name), 0) for name in ("base_frequency", "cpuinfo_max_freq"))
    named = _IN_NAME.search(model)
    now = re.fullmatch(r"\d{2,5}(?:\.\d+)?", first.get("cpu MHz", ""), re.ASCII)
    clock_Hz = base_kHz * 1e3 or (float(named[1]) * 1e9 if named else 0.0) or (float(now[0]) * 1e6 if now else 0.0)
    turbo_Hz = most_kHz * 1e3
    return clock_Hz or turbo_Hz or None, turbo_Hz if turbo_Hz > clock_Hz > 0 else None


def _caches(root: Path, usable: set[int], threads_per_core: int, n_cores: int) -> tuple[CacheFacts, ...]:
    found: dict[int, CacheFacts] = {}
    for folder in sorted((root / f"sys/devices/system/cpu/cpu{min(usable, default=0)}/cache").glob("index*")):
        level = _integer(text_of(folder / "level"), 0)
        size = re.fullmatch(r"(\d{1,9})([KMG]?)", text_of(folder / "size"), re.ASCII)
        if not level or size is None or not int(size[1]) or text_of(folder / "type") == "Instruction":
            continue
        runs = re.findall(r"(\d{1,5})(?:-(\d{1,5}))?", text_of(folder / "shared_cpu_list"), re.ASCII)
        sharing = usable & {n for low, high in runs for n in range(int(low), int(high or low) + 1)}
        cores = max(1, min(n_cores, len(sharing) // threads_per_core))
        ways = _integer(text_of(folder / "ways_of_associativity"), 0)
        found[level] = CacheFacts(level, int(size[1]) * _SCALES.get(size[2], 1), cores, ways)
    return tuple(found[level] for level in sorted(found))


def _memory(root: Path) -> int | None:
    total = re.search(r"^MemTotal:\s+(\d{1,15}) kB", text_of(root / "proc/meminfo"), re.MULTILINE | re.ASCII)
    sizes = [int(total[1]) * 1024] if total else []
    limit = text_of(root / "sys/fs/cgroup/memory.max")
    if re.fullmatch(r"[1-9]\d{0,17}", limit, re.ASCII):
        sizes.append(int(limit))
    return min(sizes, default=None)


_DISKS: Mapping[str, tuple[str, str]] = GENERATIONS["disks"]


def disk_part(root: Path = Path("/")) -> tuple[str, str] | None:
    """Return the names of part and link of the first disk under *root*, or None; no RAM, loop or optical drives."""
    for folder in sorted((root / "sys/block").glob("*")):
        parts = next((parts for begin, parts in _DISKS.items() if folder.name.startswith(begin)), None)
        if parts is None or not text_of(folder / "size").strip("0"):
            continue
        model, part, link = text_of(folder / "device/model").lower(), *parts
        if any(words in model for words in GENERATIONS["disks_over_a_network"]):
            return "ebs-gp2", "pcie3-x4"
        return ("hdd-7200" if part == "sata-ssd" and text_of(folder / "queue/rotational").strip("0") else part), link
    return None


_CASCADE_LAKE = 5  # first stepping of Skylake-SP's model number that is Cascade Lake
_ZEN_5 = 26  # first AMD family that executes 512-bit vectors whole
_DESKTOP, _SERVER = "generic-desktop-cpu", "generic-server-cpu"
_NO_PATTERN = frozenset((_DESKTOP, _SERVER, "knl-7250-cpu"))  # not real products, or no host processor
_MANY_CORES = 10  # an unknown processor with fewer cores is taken for a desktop's


def vector_bits(flags: Collection[str]) -> int | None:
    """Return the width of a vector register in bits, by *flags*; None where they name no vector extension."""
    return next((bits for flag, bits in GENERATIONS["vector_bits"].items() if flag in flags), None)


def flop_per_cycle(vendor: str, family: int, flags: Collection[str]) -> dict[str, int]:
    """Return a core's FLOPs per cycle by precision, with two vector units; before Zen 5, AMD splits 512-bit vectors."""
    bits = vector_bits(flags)
    if bits is None:
        return {}
    if "asimd" in flags:
        fp32 = 32 if "sve" in flags else 16
        found = {"fp64": fp32 // 2, "fp32": fp32}
        return found | ({"bf16": 2 * fp32} if "bf16" in flags else {})
    if bits == 512 and vendor == "amd" and family < _ZEN_5:
        bits = 256
    fp32 = 2 * bits // 32 * (2 if "fma" in flags else 1)
    found = {"fp64": fp32 // 2, "fp32": fp32}
    for flag, form, times in GENERATIONS["wider_formats"]:
        if flag in flags:
            found.setdefault(form, times * fp32)
    return found


def architecture(processor: Processor) -> str:
    """Return the design of a server's *processor*, by vendor, family, model and stepping; empty where unknown."""
    found = designs(processor.vendor, processor.family, processor.model_number)
    return found[-1 if processor.stepping >= _CASCADE_LAKE else 0] if found else ""


def nearest_cpu(processor: Processor) -> str:
    """Return the built-in CPU part nearest to *processor*; a guest's is the largest of its design."""
    words = slug(processor.model).split("-")
    if not set(words).isdisjoint(GENERATIONS["desktops"]) or (processor.vendor == "intel" and "core" in words):
        return _DESKTOP
    wide, design = vector_bits(processor.flags), architecture(processor)
    families = {name: design["numbers"][0][0] for name, design in GENERATIONS["processors"].items()}
    found = []
    for name in part_names("cpu"):
        part = load_part(name)
        assert isinstance(part, CpuPart)
        cores = part.core_count or 1
        ratio = -float(cores) if processor.is_guest and design else abs(math.log(cores / processor.cores))
        another = bool(design) and part.architecture != design
        of_family = families.get(part.architecture, processor.family) == processor.family
        if part.vendor == processor.vendor and name not in _NO_PATTERN:
            found.append((another, part.vector_bits != wide, not of_family, round(ratio, 6), name))
    if found and processor.vendor != "other":
        return min(found)[-1]
    return _SERVER if processor.cores * processor.sockets >= _MANY_CORES else _DESKTOP


def quoted(text: str) -> str:
    """Return *text* as a quoted YAML string; unprintable characters become question marks."""
    return json.dumps("".join(c if c.isprintable() else "?" for c in text), ensure_ascii=False)


_SYSTEM = "the system: /proc/cpuinfo and /sys/devices/system/cpu"
# In 95 % of cases a server of a fleet uses at most this fraction of its memory bandwidth (Kanev et al., Profiling a
# Warehouse-Scale Computer, ISCA 2015).  Neighbours are assumed to use as much of their share.
_NEIGHBOURS_USE = 0.31
_MOST_WAYS = 1024
_SAME = 0.1  # tolerated relative difference between the size of a guest's cache and that of the design


def own_cpu(name: str, processor: Processor, like: str, part: CpuPart) -> list[str]:
    """Return the YAML lines of a part called *name*; *like* names the nearest built-in *part*, which fills the gaps."""
    flop = flop_per_cycle(processor.vendor, processor.family, processor.flags) or dict(part.flop_per_cycle)
    bits = vector_bits(processor.flags)
    clock_Hz, design = processor.clock_Hz or part.clock or 0.0, architecture(processor)
    said: dict[str, str] = {}
    figures = {
        "kind": "cpu",
        "description": quoted((processor.model or "a processor that gives no name")[:100]),
        "vendor": processor.vendor,
        "architecture": f'"{design}"' if design else "",
        "core_count": processor.cores,
        "thread_count": processor.threads,
        "clock": f"{clock_Hz / 1e9:.4g} GHz",
        **_boosts(processor, like, part, clock_Hz, said),
        "vector_bits": bits,
        "flop_per_cycle": f"{{{', '.join(f'{key}: {value}' for key, value in flop.items())}}}",
        "memory_bandwidth": f"{(part.memory_bandwidth or 0.0) / 1e9:.4g} GB/s",
        "memory_latency": f"{part.memory_latency * 1e9:g} ns" if part.memory_latency else "",
        "lines_in_flight": part.lines_in_flight,
    }
    said["flop_per_cycle"] = "two units for vectors of the width that the flags name"
    said["memory_bandwidth"] = f"as {like}, which is most like it; better: channels x MT/s x 8 B x 0.85"
    said |= {name: f"as {like}" for name in ("memory_latency", "lines_in_flight") if figures[name]}
    lines = [f"  {quoted(name)}:", *(f"    {key}: {value}" for key, value in figures.items() if value)]
    lines += _cache_lines(processor, like, part, said)
    lines += _tlb(processor, like, part, said)
    lines += [f'    source: "{_SYSTEM}"', "    sources:"]
    return lines + [f'      {key}: "UNVERIFIED: {text}"' for key, text in said.items()]


def _boosts(processor: Processor, like: str, part: CpuPart, clock_Hz: float, said: dict[str, str]) -> dict[str, str]:
    turbo_Hz = processor.turbo_Hz or (part.turbo_clock if architecture(processor) == part.architecture else None)
    clocks = {"turbo_clock": f"{turbo_Hz / 1e9:.4g} GHz"} if turbo_Hz else {}
    if processor.turbo_Hz:
        return clocks
    if not processor.clock_Hz:
        said["clock"] = f"as {like}; fill in the base clock"
        return {}
    if not turbo_Hz or turbo_Hz <= clock_Hz:
        said["clock"] = "what the system shows, which gives no turbo_clock; all cores may run faster"
        return {}
    said["turbo_clock"] = f"as {like}, of the same design; the system gives none"
    if processor.is_guest and processor.vendor == "amd":  # the model of Intel CPUs has vector clocks of its own
        clocks["vector_clock"] = clocks["turbo_clock"]
        said["vector_clock"] = "a guest's cores are few of the chip's, and AMD's keep most of their boost with all busy"
    return clocks


def _cache_lines(processor: Processor, like: str, part: CpuPart, said: dict[str, str]) -> list[str]:
    lines = ["    caches:"] if processor.caches else []
    notes = [f"sizes of the system, all else as {like}, or typical"]
    for cache in processor.caches:
        similar = part.caches.get(f"l{cache.level}")
        latency_ns = 1e9 * similar.latency if similar else GENERATIONS["cache_ns"][min(cache.level, 4)]
        words = [f"size: {format_binary(cache.size_bytes, 5)}", f"latency: {latency_ns:g} ns"]
        words += [f"shared_by_cores: {cache.shared_by_cores}"] if cache.shared_by_cores > 1 else []
        if 0 < cache.ways <= _MOST_WAYS and cache.ways != CacheLevel.model_fields["ways"].default:
            words.append(f"ways: {cache.ways}")
        if similar and similar.bytes_per_cycle:
            words.append(f"bytes_per_cycle: {similar.bytes_per_cycle:g}")
        if similar and similar.memory_bandwidth:
            words.append(f"memory_bandwidth: {similar.memory_bandwidth / 1e9:.4g} GB/s")
        if others := _neighbours(processor, cache, part):
            use_Bps = others * _NEIGHBOURS_USE * (part.memory_bandwidth or 0.0) / (part.core_count or 1)
            words.append(f"neighbours: {use_Bps / 1e9:.4g} GB/s")
            shared = f"{others} cores of others share l{cache.level} with a guest's {cache.shared_by_cores}"
            share = f"{_NEIGHBOURS_USE:.0%} of their share of the memory's bandwidth"
            notes.append(f"{shared}, and are taken to read {share} through it")
        lines.append(f"      l{cache.level}: {{{', '.join(words)}}}")
    if lines:
        said["caches"] = "; ".join(notes)
    return lines


def _neighbours(processor: Processor, cache: CacheFacts, part: CpuPart) -> int:
    """Return how many of the neighbours' cores share *cache* with a guest: those of the design less the guest's own."""
    level = part.caches.get(f"l{cache.level}")
    if not processor.is_guest or level is None or architecture(processor) != part.architecture:
        return 0
    same = abs(cache.size_bytes / level.size - 1.0) <= _SAME
    return max(0, level.shared_by_cores - cache.shared_by_cores) if same else 0


def _tlb(processor: Processor, like: str, part: CpuPart, said: dict[str, str]) -> list[str]:
    if not part.tlb:
        return []
    lines = ["    tlb:"]
    for name, level in part.tlb.items():
        large = f", large_entries: {level.large_entries}" if level.large_entries is not None else ""
        after = f", latency: {level.latency * 1e9:.3g} ns" if level.latency else ""
        lines.append(f"      {name}: {{entries: {level.entries}{large}{after}}}")
    said["tlb"] = f"as {like}"
    if processor.is_guest:
        lines.append("    nested_page: 2 MiB")
        said["nested_page"] = "a guest; hosts map its memory in large pages where they can"
    return lines
