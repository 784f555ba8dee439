"""Devices as the cost models see them: the figures of a data sheet, and what a calibration adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.devices.calibration import Calibration
from simulator.errors import InputError
from simulator.topology.parts import GpuPart
from simulator.workload.precision import Precision

__all__ = ["Gpu", "gpu_from_part"]


@dataclass(frozen=True, slots=True, eq=False)
class Gpu:
    """A GPU.  ``peak_flops_per_s`` by precision are the data sheet's, dense, at ``boost_clock_Hz``.

    ``generation`` is the maker's word for the architecture in lower case: kepler, maxwell,
    pascal, volta, turing, ampere, ada, hopper, blackwell; gcn, cdna1, cdna2, cdna3, rdna2.
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
    above_boost: bool = False  # runs above the boost clock as far as power allows
    calibration: Calibration = field(default_factory=Calibration)
    is_cold: bool = False  # no cache holds anything of what a kernel reads or writes when it starts

    def peak(self, precision: Precision) -> float:
        """Return the peak rate in FLOP/s.

        Raises
        ------
        InputError
            Where the data sheet has none for *precision*.

        """
        try:
            return self.peak_flops_per_s[precision]
        except KeyError:
            known = ", ".join(self.peak_flops_per_s)
            raise InputError(
                f"{self.name}: no peak rate for {precision}; the part has {known or 'none'} (add it under peak:)"
            ) from None


def gpu_from_part(name: str, part: GpuPart, calibration: Calibration | None = None) -> Gpu:
    """Return the device of a part.

    Raises
    ------
    InputError
        Where the part lacks a figure that costs need; names all of them.

    """
    needed = ("sm_count", "boost_clock", "memory_bandwidth", "memory_size")
    missing = [key for key in needed if getattr(part, key) is None]
    if missing:
        raise InputError(f"{name}: the part has no {', '.join(missing)}; what compute costs needs them")
    assert part.sm_count is not None
    assert part.boost_clock is not None
    assert part.memory_bandwidth is not None
    assert part.memory_size is not None
    return Gpu(
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
        above_boost=part.above_boost,
        calibration=calibration or Calibration(),
    )
