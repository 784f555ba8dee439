"""Devices as the cost models see them: the figures of a data sheet, and what a calibration adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.constants import DEFAULT, Constants
from simulator.devices.gpu.generation import Traits, traits_of
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.topology.parts import GpuPart
from simulator.workload.precision import Precision

__all__ = ["Gpu", "gpu_from_part"]


@dataclass(frozen=True, slots=True, eq=False)
class Gpu:
    """A GPU.  ``peak_flops_per_s`` by precision are the data sheet's, dense, at ``boost_clock_Hz``.

    ``generation`` is the maker's word for the architecture in lower case
    (:mod:`simulator.devices.gpu.generation` has those that are known).
    Two devices are the same only where they are one object, so that costs can be remembered.
    """

    name: str
    vendor: str
    generation: str
    sm_count: int
    boost_clock_Hz: float
    peak_flops_per_s: Mapping[str, float]
    memory_bandwidth_Bps: float
    memory_bytes: float
    l2_bytes: float
    shared_memory_per_sm_bytes: float
    board_power_W: float
    base_clock_Hz: float = 0.0  # guaranteed under any load; 0: not published
    max_clock_Hz: float = 0.0  # where power allows; 0: not published
    inline_ecc: bool = False  # check bits of the memory are kept in it
    above_boost: bool = False  # runs above the boost clock as far as power allows
    calibration: Calibration = field(default_factory=Calibration)
    constants: Constants = DEFAULT
    is_cold: bool = False  # no cache holds anything of what a kernel reads or writes when it starts

    @property
    def lanes_per_sm(self) -> float:
        """The fp32 lanes of one SM: its peak rate counts two FLOPs a lane and clock; 64 where that is not known."""
        peak = self.peak_flops_per_s.get("fp32")
        return peak / (2.0 * self.sm_count * self.boost_clock_Hz) if peak else 64.0

    @property
    def light_clock_Hz(self) -> float:  # noqa: N802  units keep their case
        """The clock of kernels that mostly wait for memory, and so do not meet the board's power limit."""
        return self.boost_clock_Hz * self.calibration.compute

    @property
    def traits(self) -> Traits:
        """What its generation is like."""
        return traits_of(self.vendor, self.generation, self.lanes_per_sm, self._tensor_flops_per_sm)

    @property
    def _tensor_flops_per_sm(self) -> float:
        """FLOPs of an SM in a clock in 16 bit; endless where the data sheet has no figure."""
        peak = self.peak_flops_per_s.get("fp16", self.peak_flops_per_s.get("bf16", math.inf))
        return peak / (self.sm_count * self.boost_clock_Hz)

    def peak(self, precision: Precision) -> float:
        """Return the peak rate in FLOP/s.

        Raises InputError where the data sheet has none for *precision*.
        """
        try:
            return self.peak_flops_per_s[precision]
        except KeyError:
            known = ", ".join(self.peak_flops_per_s)
            raise InputError(
                f"{self.name}: no peak rate for {precision}; the part has {known or 'none'} (add it under peak:)"
            ) from None


def gpu_from_part(
    name: str, part: GpuPart, calibration: Calibration | None = None, constants: Constants = DEFAULT
) -> Gpu:
    """Return the device of a part.

    Raises InputError where the part lacks a figure that costs need; names all of them.  Where there is no model of
    its maker's GPUs.
    """
    needed = ("sm_count", "boost_clock", "memory_bandwidth", "memory_size")
    missing = [key for key in needed if getattr(part, key) is None]
    if missing:
        raise InputError(f"{name}: the part has no {', '.join(missing)}; what compute costs needs them")
    assert part.sm_count is not None
    assert part.boost_clock is not None
    assert part.memory_bandwidth is not None
    assert part.memory_size is not None
    gpu = Gpu(
        name=name,
        vendor=part.vendor,
        generation=part.architecture.split()[0].lower() if part.architecture else "",
        sm_count=part.sm_count,
        boost_clock_Hz=part.boost_clock,
        peak_flops_per_s=dict(part.peak),
        memory_bandwidth_Bps=part.memory_bandwidth,
        memory_bytes=part.memory_size,
        l2_bytes=part.l2_size or 0.0,
        shared_memory_per_sm_bytes=part.shared_memory_per_sm or 0.0,
        board_power_W=part.board_power or 0.0,
        base_clock_Hz=part.base_clock or 0.0,
        max_clock_Hz=part.max_clock or 0.0,
        inline_ecc=part.inline_ecc,
        above_boost=part.above_boost,
        calibration=calibration or Calibration(),
        constants=constants,
    )
    try:
        _ = gpu.traits
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return gpu
