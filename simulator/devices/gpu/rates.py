"""Arithmetic rates: units that serve a precision, and the clock within a power limit (docs/decisions/kernels.md)."""

from functools import lru_cache

from simulator.devices.gpu import Gpu
from simulator.workload.precision import ELEMENT_BYTES, Precision


def computes_on_tensor_cores(gpu: Gpu, precision: Precision) -> bool:
    """Return whether matrix products in *precision* run on tensor (matrix) cores."""
    if precision in ("fp32", "fp64") or multiplies_bytes(gpu, precision) or computes_in_fp32(gpu, precision):
        return False
    return gpu.traits.operands != "none" and precision in gpu.peak_flops_per_s


_WHOLE = 0.75  # tensor_pace of boards that hold nothing back, but for rounded data sheets


def tensor_pace(gpu: Gpu, precision: Precision) -> float:
    """Return the rate of tensor cores in *precision* over what SMs can feed; below 1 where boards hold them back."""
    full = gpu.traits.tensor_flops * 2.0 / ELEMENT_BYTES[precision]
    if not full or precision not in gpu.peak_flops_per_s:
        return 1.0
    return min(1.0, gpu.peak_flops_per_s[precision] / (full * gpu.sm_count * gpu.boost_clock_Hz))


def multiplies_bytes(gpu: Gpu, precision: Precision) -> bool:
    """Return whether fp32 lanes, rather than tensor cores, multiply numbers of *precision*, four at once (dp4a)."""
    return precision == "int8" and gpu.traits.int8_dot_products and precision not in gpu.peak_flops_per_s


def computes_in_fp32(gpu: Gpu, precision: Precision) -> bool:
    """Return whether libraries compute in fp32 what is stored in *precision*: tf32 or fp16 without faster units."""
    peak = gpu.peak_flops_per_s
    if precision == "tf32":
        return peak.get(precision, 0.0) <= peak.get("fp32", 0.0)
    return precision == "fp16" and gpu.traits.fp16_as_fp32 and peak.get("fp16", 0.0) < peak.get("fp32", 0.0)


def highest_clock(gpu: Gpu, precision: Precision) -> float:
    """Return the highest clock, in Hz, of kernels that multiply in *precision*, whatever power they take."""
    exceeds = not gpu.is_hot
    if computes_on_tensor_cores(gpu, precision):
        exceeds = gpu.traits.operands == "copies" and tensor_pace(gpu, precision) < _WHOLE
    return gpu.boost_clock_Hz * (gpu.constants["power"].headroom if gpu.above_boost and exceeds else 1.0)


@lru_cache(maxsize=1024)
def sustained_clock(gpu: Gpu, precision: Precision, energy: float = 1.0) -> float:
    """Return the clock, in Hz, that *gpu* sustains while multiplying matrices in *precision*.

    Power meets the board's limit there: at least the base clock, and at most the boost clock, or the higher one at
    which the board is known to run.  *energy*: that of a clock relative to a large product's.
    """
    clock_Hz = highest_clock(gpu, precision)
    if gpu.board_power_W > 0.0:
        clock_Hz = min(clock_Hz, _clock_of_power(gpu, precision, energy))
    return max(clock_Hz, gpu.base_clock_Hz) * gpu.calibration.compute


def holds_back(gpu: Gpu, other: Gpu, share: float) -> bool:
    """Return whether kernels of *gpu* may take longer than those of *other*, the same board, by more than *share*."""
    if gpu.traits.operands in ("copies", "warps"):
        return True
    # Before Ampere none gains more than the clock of large products, which draw the most power.
    return any(sustained_clock(gpu, each) < sustained_clock(other, each) * (1.0 - share) for each in ELEMENT_BYTES)


def working_clock(gpu: Gpu, precision: Precision) -> float:
    """Return the clock, in Hz, of products in *precision*: the highest if :func:`energy_time` limits them besides."""
    if _spends(gpu, precision):
        return highest_clock(gpu, precision) * gpu.calibration.compute
    return sustained_clock(gpu, precision)


def energy_time(gpu: Gpu, precision: Precision, flop: float, memory_bytes: float = 0.0) -> float:
    """Return the least seconds in which the board can supply the energy of *flop* on tensor cores.

    0 before Ampere and without a known board power.

    *memory_bytes*: what memory delivers besides what a large product reads.
    """
    if not _spends(gpu, precision):
        return 0.0
    costs = gpu.constants["power"]
    if gpu.traits.operands == "copies":
        delivered_s = memory_bytes * costs.memory_byte_J / max(_available_W(gpu), 1.0)
        return flop * gpu.boost_clock_Hz / (gpu.peak(precision) * sustained_clock(gpu, precision)) + delivered_s
    joule, burst = _by_width(precision, costs.async_32_bit_J, costs.async_16_bit_J, costs.async_8_bit_J), gpu.burst
    joules = flop * joule * gpu.traits.tensor_energy + memory_bytes * costs.memory_byte_J
    supplied_s = joules / switching_power(gpu)
    stored_s = (burst - 1.0) * gpu.burst_s if burst > 1.0 else 0.0
    return max(supplied_s / burst, supplied_s / gpu.drawn - stored_s) / gpu.calibration.compute


def _by_width(precision: Precision, wide: float, half: float, narrow: float) -> float:
    """Return what holds for products on tensor cores in 32, 16 and fewer bits."""
    return wide if precision == "tf32" else half if precision in ("fp16", "bf16") else narrow


def switching_power(gpu: Gpu) -> float:
    """Return the power, in W, that a board's limit leaves for work of its chip and memory, since Hopper."""
    costs = gpu.constants["power"]
    idle_W = costs.sm_idle_W * gpu.sm_count + costs.memory_idle_J * gpu.memory_bandwidth_Bps
    return max(gpu.board_power_W - idle_W, 1.0) * gpu.calibration.clocks.get("power", 1.0)


def streaming_share(gpu: Gpu) -> float:
    """Return the power of a kernel at full memory bandwidth over products' in a long run, both less the idle one."""
    streaming_W = gpu.constants["power"].moved_byte_J * gpu.memory_bandwidth_Bps
    return min(gpu.calibration.clocks.get("stream", streaming_W / switching_power(gpu)), 1.0)


def _spends(gpu: Gpu, precision: Precision) -> bool:
    """Return whether energy per product, rather than a sustained clock, limits products in *precision*."""
    is_late = gpu.traits.operands in ("copies", "warps") and gpu.board_power_W > 0.0
    return is_late and computes_on_tensor_cores(gpu, precision)


def _available_W(gpu: Gpu) -> float:  # noqa: N802  units keep their case
    """Return the power, in W, that the board's limit leaves for switching; in a long run, that measured."""
    measured, costs = gpu.calibration.clocks.get("power", 1.0) if gpu.burst_s == 0.0 else 1.0, gpu.constants["power"]
    return (gpu.board_power_W * (1.0 - costs.idle_share) - costs.idle_W) * measured


def _clock_of_power(gpu: Gpu, precision: Precision, energy: float) -> float:
    """Solve n E f v(f)^2 = available_W for f, in Hz; v falls linearly with f down to the process's lowest voltage."""
    costs, process = gpu.constants["power"], gpu.traits.process
    joule_per_clock = _busy_lanes(gpu, precision) * (energy * costs.multiply_add_J) * process.energy
    available_W, low = max(_available_W(gpu), 1.0), costs.lowest_voltage
    slope = (1.0 - low) / process.full_voltage_Hz
    lowest_Hz = (process.lowest_voltage - low) / slope  # below this clock the voltage is constant
    clock_Hz = available_W / (joule_per_clock * process.lowest_voltage**2)
    if clock_Hz <= lowest_Hz:
        return clock_Hz
    clock_Hz = gpu.boost_clock_Hz
    for _ in range(20):  # Newton's method
        volt = low + slope * clock_Hz
        excess_W = joule_per_clock * clock_Hz * volt * volt - available_W
        clock_Hz -= excess_W / (joule_per_clock * (volt * volt + 2.0 * clock_Hz * volt * slope))
    return clock_Hz


def _busy_lanes(gpu: Gpu, precision: Precision) -> float:
    """Return the power-drawing units in fp32 lane equivalents: matrix units, or lanes plus a share for each SM."""
    costs, peak = gpu.constants["power"], gpu.peak_flops_per_s
    of_clock = costs.busy_share / (2.0 * gpu.boost_clock_Hz)
    if computes_on_tensor_cores(gpu, precision):
        energy = _by_width(precision, costs.tensor_32_bit, costs.tensor_16_bit, costs.tensor_8_bit)
        around = _fed_lanes(gpu) * gpu.sm_count * tensor_pace(gpu, precision)
        return peak[precision] * of_clock * energy * gpu.traits.tensor_energy + around
    is_packed = multiplies_bytes(gpu, precision) or (precision == "fp16" and not computes_in_fp32(gpu, precision))
    flops_per_s = peak.get("fp64" if precision == "fp64" and precision in peak else "fp32", 0.0)
    return (flops_per_s * of_clock + costs.sm_lanes * gpu.sm_count) * (costs.packed if is_packed else 1.0)


def _fed_lanes(gpu: Gpu) -> float:
    """Return the lanes that draw as much as what else an SM switches while it feeds its matrix units with numbers."""
    if gpu.traits.operands == "copies":
        return gpu.constants["power"].tensor_sm_lanes
    known = gpu.calibration  # measured on numbers
    is_measured = known.compute != 1.0 or known.by_class or known.neighbours
    return gpu.traits.fed_lanes if gpu.is_hot and not is_measured else 0.0


BYTES_AT_ONCE = 4.0  # int8 multiply-adds of a lane in the time of one in fp32 (dp4a)


def held(gpu: Gpu, peak_flops_per_s: float, precision: Precision, energy: float = 1.0) -> float:
    """Return a peak rate in *precision*, scaled to the sustained clock; *energy* as for :func:`compute_rate`."""
    return peak_flops_per_s * sustained_clock(gpu, precision, energy) / gpu.boost_clock_Hz


def compute_rate(gpu: Gpu, precision: Precision, energy: float = 1.0) -> float:
    """Return the peak rate, in FLOP/s, at the sustained clock; *energy*: per clock, relative to a large product's."""
    return held(gpu, gpu.peak(precision), precision, energy)


def tensor_rate(gpu: Gpu, precision: Precision) -> float:
    """Return the FLOP/s of tensor cores at their working clock, apart from their energy; 0 where none serve."""
    if computes_in_fp32(gpu, precision) or multiplies_bytes(gpu, precision):
        return 0.0
    found = gpu.peak(precision) * working_clock(gpu, precision) / gpu.boost_clock_Hz
    return found if computes_on_tensor_cores(gpu, precision) else 0.0


def arithmetic_rate(gpu: Gpu, precision: Precision) -> float:
    """Return the peak FLOP/s of matrix products at the boost clock; raises InputError where nothing has *precision*."""
    peak = gpu.peak_flops_per_s
    if precision == "fp32" and "fp32_matrix" in peak:
        return peak["fp32_matrix"]
    if "fp32" in peak:
        if multiplies_bytes(gpu, precision):
            return BYTES_AT_ONCE * peak["fp32"]
        if computes_in_fp32(gpu, precision):
            return peak["fp32"]
    return gpu.peak(precision)
