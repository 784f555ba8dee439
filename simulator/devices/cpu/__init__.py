"""CPUs as the cost models see them: figures, threads, and what these are worth (docs/decisions/kernels.md)."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from simulator.constants import DEFAULT, Constants, Values
from simulator.errors import InputError, stated
from simulator.questions.calibration import Calibration
from simulator.questions.where import CPU_LIBRARIES, CpuLibrary
from simulator.records import dataclass, field, own_data
from simulator.topology.parts import CacheLevel, CpuPart
from simulator.workload.precision import ELEMENT_BYTES, Precision

LINE_BYTES = 64


class Library(NamedTuple):
    """How a library works; ``libraries.yaml`` says what each means."""

    convolves: Literal["direct", "image", "images", "batch"]
    vectors: bool
    threads: bool
    bits: int = 0
    reads: bool = True
    jumps: bool = False
    composes: bool = False


LIBRARIES: dict[CpuLibrary, Library] = {
    name: Library(**written) for name, written in own_data("simulator.devices.cpu", "libraries.yaml").items()
}


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache level: the size of one cache, and the cores that share it; 0 is no limit, or the level's default."""

    size_bytes: float
    shared_by_cores: int
    bandwidth_Bps: float = 0.0  # of one cache
    bytes_per_cycle: float = 0.0  # of one core
    memory_Bps: float = 0.0  # between the cache and memory
    neighbours_Bps: float = 0.0  # what cores outside this device read through it


@dataclass(frozen=True, slots=True, eq=False)
class Cpu:
    """All sockets of a machine as one device of ``threads`` threads; compared by identity, as costs are cached."""

    name: str
    vendor: str
    generation: str
    cores_per_socket: int
    threads_per_core: int
    sockets: int
    threads: int
    clock_Hz: float  # of vector code with all cores busy
    turbo_clock_Hz: float  # of one core alone
    vector_bits: int
    flop_per_cycle: Mapping[str, int]  # per core and precision; one that is missing is not supported
    memory_bandwidth_Bps: float  # per socket
    core_bandwidth_Bps: float
    memory_bytes: float  # of all; infinite where the part does not say
    caches: tuple[Cache, ...] = ()
    library: CpuLibrary = "onednn"  # of kernels (``libraries.yaml``)
    calibration: Calibration = field(default_factory=Calibration)
    constants: Constants = DEFAULT
    scalar_turbo_clock_Hz: float = 0.0  # of one core without vector instructions; 0: as with
    memory_latency_s: float = 100e-9  # to the first word
    is_cold: bool = False  # caches hold none of a kernel's data when it starts

    @property
    def core_count(self) -> int:
        """Physical cores of all sockets."""
        return self.sockets * self.cores_per_socket

    @property
    def peak_flops_per_s(self) -> Mapping[str, float]:
        """Peak rate in FLOP/s by precision, of as many cores as there are threads."""
        cores = min(self.threads, self.core_count)
        return {p: flop * cores * self.core_clock(cores) for p, flop in self.flop_per_cycle.items()}

    def core_clock(self, cores: int, *, vectors: bool = True) -> float:
        """Return the clock in Hz with *cores* of a socket busy, linear between one and all; not *vectors*: scalar."""
        most = self.cores_per_socket
        busy = min(cores, most)
        idle_share = (most - busy) / (most - 1) if most > 1 else 0.0
        turbo_Hz = self.turbo_clock_Hz if vectors else max(self.turbo_clock_Hz, self.scalar_turbo_clock_Hz)
        return (self.clock_Hz + (turbo_Hz - self.clock_Hz) * idle_share) * self.calibration.compute

    @property
    def cycles(self) -> Values:
        """What its library takes for each element; not for oneDNN."""
        return self.constants[f"cpu_libraries.{self.library}"]

    def core_flop_per_cycle(self, precision: Precision) -> int:
        """Return one core's FLOPs per cycle; raises InputError where the part does not support *precision*."""
        known = f"{', '.join(self.flop_per_cycle)} (what it has besides goes under flop_per_cycle:)"
        lacks = f"{self.name}: this CPU does not compute in {precision}; the part has {known}"
        return stated(self.flop_per_cycle.get(precision), lacks)

    def peak(self, precision: Precision) -> float:
        """Return the peak rate in FLOP/s of as many cores as there are threads; raises as core_flop_per_cycle does."""
        cores = min(self.threads, self.core_count)
        return self.core_flop_per_cycle(precision) * cores * self.core_clock(cores)


def cpu_from_part(
    name: str,
    part: CpuPart,
    sockets: int = 1,
    threads: int | None = None,
    *,
    library: CpuLibrary = "onednn",
    calibration: Calibration | None = None,
    constants: Constants = DEFAULT,
) -> Cpu:
    """Return the device of *sockets* processors, a thread a core by default; or InputError, with all the part lacks."""
    cores, base_Hz, memory_Bps = part.core_count, part.clock, part.memory_bandwidth
    if not (cores and base_Hz and memory_Bps and part.flop_per_cycle):
        needed = ("core_count", "clock", "flop_per_cycle", "memory_bandwidth")
        missing = ", ".join(key for key in needed if not getattr(part, key))
        raise InputError(f"{name}: the part has no {missing}; what compute costs needs them")
    if sockets < 1:
        raise InputError(f"{name}: at least one socket computes; got {sockets}")
    if threads is not None and threads < 1:
        raise InputError(f"{name}: at least one thread computes; got {threads}")
    if library not in CPU_LIBRARIES:
        raise InputError(f"{name}: no such library of CPU kernels: {library}; there are {', '.join(CPU_LIBRARIES)}")
    costs = constants["cpu_cores"]
    clock_Hz = part.vector_clock or base_Hz
    latency_s = part.memory_latency or costs.default_latency_s
    vector_bits, flop_per_cycle = part.vector_bits or 128, dict[str, int](part.flop_per_cycle)
    if 0 < LIBRARIES[library].bits < vector_bits:  # one addition and one multiplication a cycle, not fused
        vector_bits = LIBRARIES[library].bits
        for precision, element_bytes in ELEMENT_BYTES.items():
            if precision in flop_per_cycle:
                most = 2 * vector_bits // (8 * max(4, element_bytes))
                flop_per_cycle[precision] = min(flop_per_cycle[precision], most)
    lowers = part.vendor == "intel" and flop_per_cycle.get("fp32", 0) >= 32
    core_Bps = part.core_bandwidth or (part.lines_in_flight or costs.lines_in_flight) * LINE_BYTES / latency_s
    return Cpu(
        name=name,
        vendor=part.vendor,
        generation=part.architecture.lower(),
        cores_per_socket=cores,
        threads_per_core=max(1, (part.thread_count or cores) // cores),
        sockets=sockets,
        threads=threads or sockets * cores,
        clock_Hz=clock_Hz,
        turbo_clock_Hz=max((part.turbo_clock or clock_Hz) * (costs.vector_turbo if lowers else 1.0), clock_Hz),
        scalar_turbo_clock_Hz=part.turbo_clock or clock_Hz,
        vector_bits=vector_bits,
        flop_per_cycle=flop_per_cycle,
        memory_bandwidth_Bps=memory_Bps,
        core_bandwidth_Bps=min(core_Bps, memory_Bps),
        memory_latency_s=latency_s,
        memory_bytes=part.memory_size * sockets if part.memory_size else math.inf,
        caches=tuple(_cache(level, cores) for level in part.caches.values()),
        library=library,
        calibration=calibration or Calibration(),
        constants=constants,
    )


def _cache(level: CacheLevel, cores: int) -> Cache:
    figures = level.bandwidth, level.bytes_per_cycle, level.memory_bandwidth, level.neighbours
    return Cache(level.size, min(level.shared_by_cores, cores), *(figure or 0.0 for figure in figures))


def effective_cores(cpu: Cpu, threads: int) -> float:
    """Return the cores' work that *threads* threads do; beyond the cores, all wait for the core with most threads."""
    cores = cpu.core_count
    if threads <= cores:
        return threads
    return threads / math.ceil(threads / cores) * cpu.constants["cpu_threads"].shared_core


def region_time(cpu: Cpu, threads: int) -> float:
    """Return the seconds that a parallel region of *threads* threads adds: fork, barrier and preempted threads."""
    if threads <= 1:
        return 0.0
    costs = cpu.constants["cpu_threads"]
    time_s = costs.region_cycles * math.log2(threads) / cpu.core_clock(min(threads, cpu.core_count))
    # Frameworks of 2016 read their data in one more thread beside the computing ones.
    others = 1 if LIBRARIES[cpu.library].reads else 0
    late = (threads + others) / (cpu.core_count * cpu.threads_per_core) - 1.0
    return time_s + max(0.0, late) * costs.slice_s


def peak_rate(cpu: Cpu, precision: Precision, threads: int) -> float:
    """Return the peak rate of *threads* threads in FLOP/s; raises InputError where the part lacks *precision*."""
    clock_Hz = cpu.core_clock(min(threads, cpu.core_count))
    return cpu.core_flop_per_cycle(precision) * clock_Hz * effective_cores(cpu, threads)


def vector_rate(cpu: Cpu, threads: int) -> float:
    """Return the cycles per second of *threads*, in those of a core with 32 FLOPs a cycle (two 256-bit units)."""
    width = cpu.flop_per_cycle.get("fp32", 32) / 32
    return width * cpu.core_clock(min(threads, cpu.core_count)) * effective_cores(cpu, threads)


def scalar_rate(cpu: Cpu, threads: int, *, alone: bool = False) -> float:
    """Return the cycles per second of *threads* threads together, for loops without vector instructions.

    Between vectorised products a core keeps the vector clock for two milliseconds (Intel's return from frequency
    license 1 to 0; Downs, Gathering Intel on Intel AVX-512 Transitions); loops that run *alone* have the scalar clock.
    """
    clock_Hz = cpu.core_clock(min(threads, cpu.core_count), vectors=not alone)
    return clock_Hz * effective_cores(cpu, threads)
