"""GPUs as the cost models see them: figures, traits, a calibration, libraries' age (docs/decisions/kernels.md)."""

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal

from simulator.constants import DEFAULT, Constants
from simulator.errors import InputError, mention, stated
from simulator.questions.calibration import Calibration
from simulator.questions.where import Month
from simulator.records import dataclass, field, own_data, replace
from simulator.topology.parts import GpuPart
from simulator.workload.precision import Precision


def library_factor(known: Constants, since: Month | None, libraries: Month | None) -> float:
    """Return the time of library kernels relative to mature ones, for *libraries* of that month.

    *since*: the month of the first boards that run kernels of this design; libraries from before count as of that
    month.  1 where either is None: mature libraries, or a design of which nothing is known.
    """
    if since is None or libraries is None:
        return 1.0
    costs = known["libraries"]
    years = libraries[0] - since[0] + (libraries[1] - since[1]) / 12.0
    return 1.0 + costs.young * math.exp(-max(0.0, years) / costs.settles_years)


@dataclass(frozen=True, eq=False)
class Gpu:
    """A GPU.  Devices compare by identity, so that costs can be cached by device."""

    name: str
    vendor: str
    generation: str  # architecture and chip, in lower case; ``generations.yaml`` has the known ones
    sm_count: int
    boost_clock_Hz: float
    peak_flops_per_s: Mapping[str, float]  # by precision: the data sheet's dense rates at ``boost_clock_Hz``
    memory_bandwidth_Bps: float
    memory_bytes: float
    l2_bytes: float
    board_power_W: float
    base_clock_Hz: float = 0.0  # guaranteed under any load; 0: not published
    max_clock_Hz: float = 0.0  # where power allows; 0: not published
    inline_ecc: bool = False  # the check bits are stored in the memory itself
    above_boost: bool = False  # runs above the boost clock where power allows
    is_hot: bool = False  # after minutes of load
    calibration: Calibration = field(default_factory=Calibration)
    constants: Constants = DEFAULT
    burst_s: float = math.inf  # share of one call in the time for which a run exceeds the board's power; 0: a long run
    drawn: float = 1.0  # power of products in a long run, relative to the board's
    is_rested: bool = False  # priced as in the first milliseconds after rest, in steps too
    is_cold: bool = False  # caches hold none of a kernel's data when it starts
    libraries: Month | None = None  # month of the kernel libraries and the compiler; None: mature ones
    library_factor: float = 1.0  # time of library kernels relative to mature ones
    any_shape_on_tensor_cores: bool = True  # else neither dilated convolutions nor products of unaligned rows

    @cached_property
    def lanes_per_sm(self) -> float:
        """The fp32 lanes of one SM, from its peak rate at two FLOPs per lane and clock; 64 where that is unknown."""
        peak = self.peak_flops_per_s.get("fp32")
        return peak / (2.0 * self.sm_count * self.boost_clock_Hz) if peak else 64.0

    @property
    def light_clock_Hz(self) -> float:  # noqa: N802  units keep their case
        """The clock of kernels that mostly wait for memory and so do not reach the board's power limit."""
        return self.boost_clock_Hz * self.calibration.compute

    @property
    def burst(self) -> float:
        """Power that products draw until the limiter acts, relative to its limit: measured, or of its generation."""
        return self.calibration.clocks.get("burst", self.traits.burst)

    @cached_property
    def traits(self) -> "Traits":
        """The traits of its generation; infinite FLOPs on tensor cores where the data sheet has no figure."""
        peak = self.peak_flops_per_s.get("fp16", self.peak_flops_per_s.get("bf16", math.inf))
        tensor_flops_per_sm = peak / (self.sm_count * self.boost_clock_Hz)
        return traits_of(self.vendor, self.generation, self.lanes_per_sm, tensor_flops_per_sm)

    def peak(self, precision: Precision) -> float:
        """Return the peak rate in FLOP/s; raises InputError where the data sheet has none for *precision*."""
        known = ", ".join(self.peak_flops_per_s) or "none"
        lacks = f"{self.name}: no peak rate for {precision}; the part has {known} (add it under peak:)"
        return stated(self.peak_flops_per_s.get(precision), lacks)


def gpu_from_part(
    name: str,
    part: GpuPart,
    calibration: Calibration | None = None,
    constants: Constants = DEFAULT,
    libraries: Month | None = None,
    clock_Hz: float = 0.0,
) -> Gpu:
    """Return the GPU of *part*, which its driver holds to *clock_Hz* (0: to none), with *libraries* (None: mature).

    Raises InputError with all figures that the part lacks, for an unknown vendor, and beyond its highest clock.
    """
    sms, boost_Hz, memory_Bps, memory_bytes = part.sm_count, part.boost_clock, part.memory_bandwidth, part.memory_size
    if sms is None or boost_Hz is None or memory_Bps is None or memory_bytes is None:
        needed = ("sm_count", "boost_clock", "memory_bandwidth", "memory_size")
        missing = ", ".join(key for key in needed if getattr(part, key) is None)
        raise InputError(f"{name}: the part has no {missing}; what compute costs needs them")
    gpu = Gpu(
        name=name,
        vendor=part.vendor,
        generation=part.architecture.lower(),
        sm_count=sms,
        boost_clock_Hz=boost_Hz,
        peak_flops_per_s=dict(part.peak),
        memory_bandwidth_Bps=memory_Bps,
        memory_bytes=memory_bytes,
        l2_bytes=part.l2_size or 0.0,
        board_power_W=part.board_power or 0.0,
        base_clock_Hz=part.base_clock or 0.0,
        max_clock_Hz=part.max_clock or 0.0,
        inline_ecc=part.inline_ecc,
        above_boost=part.above_boost,
        calibration=calibration or Calibration(),
        constants=constants,
        libraries=libraries,
    )
    try:
        traits = gpu.traits
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    gpu = _held_to(gpu, clock_Hz) if clock_Hz else gpu
    return replace(
        gpu,
        library_factor=library_factor(constants, traits.kernels_since, libraries),
        any_shape_on_tensor_cores=not (libraries and traits.any_shape_since and libraries < traits.any_shape_since),
    )


def _held_to(gpu: Gpu, clock_Hz: float) -> Gpu:
    fastest_Hz = max(gpu.boost_clock_Hz, gpu.max_clock_Hz)
    if clock_Hz > fastest_Hz:
        said = mention("gpu_clock_Hz", f"{clock_Hz / 1e6:g}MHz")
        raise InputError(f"{said}: {gpu.name} runs at {fastest_Hz / 1e6:g} MHz at most")
    slower = clock_Hz / gpu.boost_clock_Hz
    return replace(
        gpu,
        boost_clock_Hz=clock_Hz,
        max_clock_Hz=0.0,
        above_boost=False,
        base_clock_Hz=min(gpu.base_clock_Hz, clock_Hz),
        peak_flops_per_s={precision: slower * rate for precision, rate in gpu.peak_flops_per_s.items()},
    )


# -- generations ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """A manufacturing process; ``generations.yaml`` says what its figures are relative to."""

    energy: float
    full_voltage_Hz: float
    lowest_voltage: float


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits on which costs depend, as ``generations.yaml`` explains them; the defaults are those of GPUs today."""

    process: Process
    operands: Literal["none", "registers", "copies", "warps"]
    tensor_energy: float = 1.0
    fed_lanes: float = 0.0
    burst: float = 1.0
    turned_32_bit: bool = True
    tensor_flops: float = 0.0
    tensor_memory: bool = False
    exponentials: float = 1.0
    integers: Literal["shared", "own", "other"] = "other"
    small_sms: bool = False
    unfed_lanes: bool = False
    threads_per_sm: int = 2048
    fp16_as_fp32: bool = False
    int8_dot_products: bool = False
    int8_in_tiles: bool = False
    controllers: Literal["early", "late", "amd"] = "late"
    split_l2: bool = False
    large_l2: bool = False
    translations: Literal["few", "many", "unseen"] = "unseen"
    kernels: Literal["maxwell", "volta", "ampere", "amd"] = "ampere"
    wide_batches: bool = False
    whole_filter_tiles: bool = False
    kernels_since: Month | None = None
    any_shape_since: Month | None = None
    cudnn: int = 8
    fused_winograd: bool = True


_WRITTEN = own_data("simulator.devices.gpu", "generations.yaml")
TILES: Mapping[str, Any] = own_data("simulator.devices.gpu", "tiles.yaml")
MAKERS = frozenset(_WRITTEN["generations"])
_SMALL_SM_LANES = 96.0  # between 64 and 128
_PLAIN_TENSOR_FLOPS = 4000.0  # per SM and clock, in 16 bit: GB202 does 1,024 (sparse twice that), B200 8,192


def _traits(maker: str, generation: str, **changes: Any) -> Traits:
    """Return the traits that the file gives *generation*, with *changes*."""
    said: dict[str, Any] = {**_WRITTEN["generations"][maker][generation], **changes}
    like = said.pop("like", None)
    if like is not None:
        return _traits(maker, like, **said)
    said = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    return Traits(**{**said, "process": Process(*_WRITTEN["processes"][said["process"]])})


@lru_cache(maxsize=1024)
def traits_of(maker: str, generation: str, lanes_per_sm: float, tensor_flops_per_sm: float = math.inf) -> Traits:
    """Return the traits of *generation* (chips after it) by an SM's fp32 lanes, and FLOPs a clock in 16 bit.

    Raises InputError where there is no model of GPUs of *maker*.
    """
    if maker not in MAKERS:
        known = "; ".join(f"{name} ({', '.join(_WRITTEN['generations'][name])})" for name in sorted(MAKERS))
        raise InputError(f"no model of GPUs of maker '{maker}'; there are models of {known}")
    generations = list(_WRITTEN["generations"][maker])
    words = generation.split()
    named = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    generation = next((name for name in named if name in generations), words[0] if words else "")
    if generation not in generations:
        line = generation.rstrip("0123456789")
        of_line = [name for name in generations if line and name.startswith(line)]
        generation = (of_line or generations)[-1]
    if generation in _WRITTEN["small_sms"] and lanes_per_sm < _SMALL_SM_LANES:
        return _traits(maker, generation, **_WRITTEN["small_sms"][generation])
    if tensor_flops_per_sm < _PLAIN_TENSOR_FLOPS:
        generation = _WRITTEN["plain_tensor"].get(generation, generation)
    return _traits(maker, generation)
