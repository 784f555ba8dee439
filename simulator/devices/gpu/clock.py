"""The clock that a device holds under load, against its power limit.

Power grows with what switches in a clock and with the square of the voltage, and voltage falls with the
clock: P = P_0 + E n f v(f)^2.  ``n`` counts lanes, and for each SM what keeps lanes busy (schedulers and
a register file of one size in every generation since Maxwell), which is why a card of 40 small SMs burns
more than one of 20 large ones with as many lanes.  What matrix units need of that up to Turing is in their own
energy: one instruction of theirs is hundreds of multiplications.  E is the energy of a lane's multiplication and
addition, by manufacturing process.  A card of 70 W so computes at about half its boost clock.

Since Ampere SMs feed matrix units from copies under way, which costs an SM as much as hundreds of lanes whatever its
units do in a clock.  With numbers as networks have them an A100 of 400 W multiplies at 257 of its 312 TFLOP/s, and at
295 with zeros (thonking.ai, "Strangely, matrix multiplications on GPUs run faster when given predictable data"); an
L40S of 350 W, with half as many products an SM and clock, at 160 to 190 of 362.  What a kernel leaves unused in its
time it need not spend: small or starved ones run at the boost clock (:func:`energy_time`).

Voltage falls with the clock only as far as the transistors switch at all.  The smaller they are, the nearer that
is to the full voltage, and the less a board saves that is held far below its boost clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simulator.constants import constants
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.units import computes_in_fp32, computes_on_tensor_cores, multiplies_bytes
from simulator.workload.precision import Precision

__all__ = ["PowerCosts", "energy_time", "sustained_clock", "working_clock"]


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
    tensor_sm_lanes: float
    packed: float
    async_32_bit_J: float
    async_16_bit_J: float
    async_8_bit_J: float


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


def working_clock(gpu: Gpu, precision: Precision) -> float:
    """Return the clock, in Hz, of kernels that multiply in *precision*, but for what their energy takes.

    That is :func:`sustained_clock` where :func:`energy_time` says nothing, else the boost clock.
    """
    if _spends(gpu, precision):
        return gpu.boost_clock_Hz * gpu.calibration.compute
    return sustained_clock(gpu, precision)


def energy_time(gpu: Gpu, precision: Precision, flop: float) -> float:
    """Return the seconds in which the board may spend the energy of *flop* on tensor cores; 0 before Ampere.

    A small product leaves most of the chip idle and so runs at the highest clock; a large one is held to what
    the board's power gives in its time.
    """
    if not _spends(gpu, precision):
        return 0.0
    if gpu.traits.operands == "copies":
        return flop * gpu.boost_clock_Hz / (gpu.peak(precision) * sustained_clock(gpu, precision))
    costs = gpu.constants(PowerCosts)
    if precision == "tf32":
        joule = costs.async_32_bit_J
    else:
        joule = costs.async_16_bit_J if precision in ("fp16", "bf16") else costs.async_8_bit_J
    return flop * joule * gpu.traits.tensor_energy / max(_available_W(gpu, costs), 1.0) / gpu.calibration.compute


def _spends(gpu: Gpu, precision: Precision) -> bool:
    """Return whether products in *precision* are held by the energy that each takes, and not to one clock."""
    is_late = gpu.traits.operands in ("copies", "warps") and gpu.board_power_W > 0.0
    return is_late and computes_on_tensor_cores(gpu, precision)


def _available_W(gpu: Gpu, costs: PowerCosts) -> float:  # noqa: N802  units keep their case
    """Return what the board's limit leaves for switching."""
    return gpu.board_power_W * (1.0 - costs.idle_share) - costs.idle_W


def _clock_of_power(gpu: Gpu, precision: Precision, available_W: float, energy: float) -> float:
    """Solve n E f v(f)^2 = available_W for f, with v falling linearly with f down to the lowest of the process."""
    costs, process = gpu.constants(PowerCosts), gpu.traits.process
    joule_per_clock = _busy_lanes(gpu, precision, costs) * (energy * costs.multiply_add_J) * process.energy
    available_W = max(available_W, 1.0)
    low = costs.lowest_voltage
    slope = (1.0 - low) / process.full_voltage_Hz
    lowest_Hz = (process.lowest_voltage - low) / slope  # below this clock the voltage stays
    clock_Hz = available_W / (joule_per_clock * process.lowest_voltage**2)
    if clock_Hz <= lowest_Hz:
        return clock_Hz
    clock_Hz = gpu.boost_clock_Hz
    for _ in range(20):  # Newton's method
        volt = low + slope * clock_Hz
        excess_W = joule_per_clock * clock_Hz * volt * volt - available_W
        clock_Hz -= excess_W / (joule_per_clock * (volt * volt + 2.0 * clock_Hz * volt * slope))
    return clock_Hz


def _busy_lanes(gpu: Gpu, precision: Precision, costs: PowerCosts) -> float:
    """Return what switches in a clock, in lanes that multiply in fp32: matrix units, or lanes and SMs besides."""
    peak = gpu.peak_flops_per_s
    of_clock = costs.busy_share / (2.0 * gpu.boost_clock_Hz)
    if computes_on_tensor_cores(gpu, precision):
        if precision == "tf32":
            energy = costs.tensor_32_bit
        else:
            energy = costs.tensor_16_bit if precision in ("fp16", "bf16") else costs.tensor_8_bit
        around = costs.tensor_sm_lanes * gpu.sm_count if gpu.traits.operands == "copies" else 0.0
        return peak[precision] * of_clock * energy * gpu.traits.tensor_energy + around
    is_packed = multiplies_bytes(gpu, precision) or (precision == "fp16" and not computes_in_fp32(gpu, precision))
    flops_per_s = peak.get("fp64" if precision == "fp64" and precision in peak else "fp32", 0.0)
    return (flops_per_s * of_clock + costs.sm_lanes * gpu.sm_count) * (costs.packed if is_packed else 1.0)
