"""Read the processor, its memory and the first disk as the system reports them: model, cores, clocks, caches."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from simulator.records import dataclass, field
from validate.machine.measure.host import text_of

VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
_IN_NAME = re.compile(r"@\s*([0-9.]+)\s*GHz", re.IGNORECASE | re.ASCII)
_SCALES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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

    ``cores`` and ``threads`` count those of one socket that this process may use.  ``socket_of`` maps each logical
    processor, usable or not, to its socket, from 0.  ``model_number`` and ``stepping`` are the vendor's numbers of the
    design, -1 where unknown.  ``is_guest``: a hypervisor runs the system.  ``guess`` says why the model is a guess.
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
    blocks = _cpuinfo(root)
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
    clock_Hz, turbo_Hz = _clocks(root, model, first)
    flags = frozenset((first.get("flags") or first.get("Features") or "").split())
    return Processor(
        model=model,
        vendor=VENDORS.get(first.get("vendor_id", ""), "arm" if "CPU implementer" in first else "other"),
        family=int(family) if family.isdecimal() else 0,
        flags=flags,
        sockets=sockets,
        cores=n_cores,
        threads=n_cores * threads_per_core,
        clock_Hz=clock_Hz,
        turbo_Hz=turbo_Hz,
        caches=_caches(root, set(mine), threads_per_core, n_cores),
        memory_bytes=_memory(root),
        socket_of={number: packages.index(package) for number, (package, _) in said.items()},
        model_number=_integer(first.get("model", ""), -1),
        stepping=_integer(first.get("stepping", ""), -1),
        is_guest="hypervisor" in flags,
    )


def _cpuinfo(root: Path) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for block in text_of(root / "proc/cpuinfo").split("\n\n"):
        pairs = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        number = pairs.get("processor", "")
        if number.isdecimal():
            found[int(number)] = pairs
    return found


def _place(root: Path, number: int, block: Mapping[str, str]) -> tuple[int, int]:
    """Return the package and the core of a logical processor; without data, package 0 and a core of its own."""
    folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
    package = text_of(folder / "physical_package_id") or block.get("physical id", "0")
    core = text_of(folder / "core_id") or block.get("core id", str(number))
    return _integer(package, 0), _integer(core, number)


def _integer(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else default


def _quota(root: Path) -> int | None:
    """Return a container's CPU time limit in whole processors, at least one; None where it has none."""
    words = text_of(root / "sys/fs/cgroup/cpu.max").split()
    if len(words) != 2 or not all(re.fullmatch(r"[1-9]\d{0,12}", word, re.ASCII) for word in words):
        return None
    return max(1, int(words[0]) // int(words[1]))


def _clocks(root: Path, model: str, first: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Return the base clock, from the driver, the model name or the current clock, and the highest one, in Hz."""
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    base_kHz, most_kHz = (_integer(text_of(folder / name), 0) for name in ("base_frequency", "cpuinfo_max_freq"))
    named = _IN_NAME.search(model)
    now = re.fullmatch(r"\d{2,5}(?:\.\d+)?", first.get("cpu MHz", ""), re.ASCII)
    clock_Hz = base_kHz * 1e3 or (float(named[1]) * 1e9 if named else 0.0) or (float(now[0]) * 1e6 if now else 0.0)
    turbo_Hz = most_kHz * 1e3
    return clock_Hz or turbo_Hz or None, turbo_Hz if turbo_Hz > clock_Hz > 0 else None


def _caches(root: Path, usable: set[int], threads_per_core: int, n_cores: int) -> tuple[CacheFacts, ...]:
    found: dict[int, CacheFacts] = {}
    first = min(usable, default=0)
    for folder in sorted((root / f"sys/devices/system/cpu/cpu{first}/cache").glob("index*")):
        level = _integer(text_of(folder / "level"), 0)
        size = re.fullmatch(r"(\d{1,9})([KMG]?)", text_of(folder / "size"), re.ASCII)
        if not level or size is None or not int(size[1]) or text_of(folder / "type") == "Instruction":
            continue
        sharing = _numbers(text_of(folder / "shared_cpu_list")) & usable
        cores = max(1, min(n_cores, len(sharing) // threads_per_core))
        ways = _integer(text_of(folder / "ways_of_associativity"), 0)
        found[level] = CacheFacts(level, int(size[1]) * _SCALES.get(size[2], 1), cores, ways)
    return tuple(found[level] for level in sorted(found))


def _numbers(text: str) -> set[int]:
    found: set[int] = set()
    for low, high in re.findall(r"(\d{1,5})(?:-(\d{1,5}))?", text, re.ASCII):
        found.update(range(int(low), int(high or low) + 1))
    return found


def _memory(root: Path) -> int | None:
    """Return the memory in bytes, or a container's limit if that is lower; None where neither is known."""
    total = re.search(r"^MemTotal:\s+(\d{1,15}) kB", text_of(root / "proc/meminfo"), re.MULTILINE | re.ASCII)
    sizes = [int(total[1]) * 1024] if total else []
    limit = text_of(root / "sys/fs/cgroup/memory.max")
    if re.fullmatch(r"[1-9]\d{0,17}", limit, re.ASCII):
        sizes.append(int(limit))
    return min(sizes, default=None)


_OVER_A_NETWORK = ("elastic block store", "persistentdisk", "virtual disk")  # as Amazon, Google and Microsoft call them


def disk_part(root: Path = Path("/")) -> tuple[str, str] | None:
    """Return the names of part and link of the first disk under *root*, or None; no RAM, loop or optical drives."""
    for folder in sorted((root / "sys/block").glob("*")):
        name = folder.name
        if not name.startswith(("nvme", "sd", "vd", "xvd", "mmcblk", "hd")) or not text_of(folder / "size").strip("0"):
            continue
        model = text_of(folder / "device/model").lower()
        if any(words in model for words in _OVER_A_NETWORK):
            return "ebs-gp2", "pcie3-x4"
        if name.startswith("nvme"):
            return "nvme-gen3", "pcie3-x4"
        if name.startswith(("vd", "xvd")):
            return "virtio-disk", "pcie3-x4"  # a virtual disk, nowadays usually backed by flash
        return ("hdd-7200" if text_of(folder / "queue/rotational").strip("0") else "sata-ssd"), "sata-600"
    return None
