"""The clock that a device holds under load, against its power limit.

Power grows with what switches in a clock and with the square of the voltage, and voltage falls with the
clock: P = P_0 + E n f v(f)^2.  ``n`` counts lanes, and for each SM what keeps lanes busy (schedulers and
a register file of one size in every generation since Maxwell), which is why a card of 40 small SMs burns
more than one of 20 large ones with as many lanes.  E is the energy of a lane's multiplication and
addition, by manufacturing process.  A card of 70 W so computes at about half its boost clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simulator.constants import constants
from simulator.devices.gpu.gpu import Gpu
from simulator.workload.precision import Precision

__all__ = ["PowerCosts", "computes_on_tensor_cores", "energy_time", "sustained_clock"]


@constants("power")
@dataclass(frozen=True, slots=True, eq=False)
class PowerCosts:
    """Constants of power, the same for all GPUs."""

    multiply_add_J: float
    sm_lanes: float
    headroom: float
    idle_share: float
    idle_W: float
    lowest_voltage: float
    busy_share: float
    tensor_32_bit: float
    tensor_16_bit: float
    tensor_8_bit: float
    packed: float
    async_32_bit_J: float
    async_16_bit_J: float
    async_8_bit_J: float


def computes_on_tensor_cores(gpu: Gpu, precision: Precision) -> bool:
    """Return whether products of matrices in *precision* run on tensor (matrix) cores."""
    if precision in ("fp32", "fp64"):
        return False
    return gpu.traits.has_tensor_cores and precision in gpu.peak_flops_per_s


@lru_cache(maxsize=1024)
def sustained_clock(gpu: Gpu, precision: Precision, energy: float = 1.0) -> float:
    """Return the clock, in Hz, at which *gpu* multiplies matrices in *precision* for a long time.

    The clock at which power meets the board's limit, at least the base clock, at most the boost clock or what the
    board is known to run at above it.  *energy* is that of a clock, against a large product's.
    """
    costs = gpu.constants(PowerCosts)
    highest_Hz = gpu.boost_clock_Hz
    # Shown for arithmetic in fp32; products on tensor cores are held to the peak of the data sheet.
    if gpu.above_boost and not computes_on_tensor_cores(gpu, precision):
        highest_Hz *= costs.headroom
    clock_Hz = highest_Hz
    if gpu.board_power_W > 0.0:
        clock_Hz = min(highest_Hz, _clock_of_power(gpu, precision, _available_W(gpu, costs), energy))
    return max(clock_Hz, gpu.base_clock_Hz) * gpu.calibration.compute


def energy_time(gpu: Gpu, precision: Precision, flop: float) -> float:
    """Return the seconds in which the board may spend the energy of *flop* on tensor cores; 0 before Hopper.

    A small product leaves most of the chip idle and so runs at the highest clock; a large one is held to what
    the board's power gives in its time.
    """
    by_warps = gpu.traits.operands == "warps" and computes_on_tensor_cores(gpu, precision)
    if not by_warps or gpu.board_power_W <= 0.0:
        return 0.0
    costs = gpu.constants(PowerCosts)
    if precision == "tf32":
        joule = costs.async_32_bit_J
    else:
        joule = costs.async_16_bit_J if precision in ("fp16", "bf16") else costs.async_8_bit_J
    return flop * joule * gpu.traits.tensor_energy / max(_available_W(gpu, costs), 1.0) / gpu.calibration.compute


def _available_W(gpu: Gpu, costs: PowerCosts) -> float:  # noqa: N802  units keep their case
    """Return what the board's limit leaves for switching."""
    return gpu.board_power_W * (1.0 - costs.idle_share) - costs.idle_W


def _clock_of_power(gpu: Gpu, precision: Precision, available_W: float, energy: float) -> float:
    """Solve n E f v(f)^2 = available_W for f, with v falling linearly with f, by Newton's method."""
    costs, process = gpu.constants(PowerCosts), gpu.traits.process
    peak = gpu.peak_flops_per_s.get(precision, gpu.peak_flops_per_s.get("fp32", 0.0))
    lanes = peak / (2.0 * gpu.boost_clock_Hz) * costs.busy_share * _relative_energy(gpu, precision, costs)
    lanes += costs.sm_lanes * gpu.sm_count
    joule_per_clock = lanes * (energy * costs.multiply_add_J) * process.energy
    low = costs.lowest_voltage
    slope = (1.0 - low) / process.full_voltage_Hz
    clock_Hz = gpu.boost_clock_Hz
    for _ in range(20):
        volt = low + slope * clock_Hz
        excess_W = joule_per_clock * clock_Hz * volt * volt - max(available_W, 1.0)
        clock_Hz -= excess_W / (joule_per_clock * (volt * volt + 2.0 * clock_Hz * volt * slope))
    return clock_Hz


def _relative_energy(gpu: Gpu, precision: Precision, costs: PowerCosts) -> float:
    if precision not in gpu.peak_flops_per_s or precision in ("fp32", "fp64"):
        return 1.0
    if not computes_on_tensor_cores(gpu, precision):
        return costs.packed
    if precision == "tf32":
        return costs.tensor_32_bit
    return costs.tensor_16_bit if precision in ("fp16", "bf16") else costs.tensor_8_bit
