"""Generations of GPUs: what their chips have in common, as far as costs differ by it.

This is the one place that knows generations by name: to add one, add its traits here.  Models ask a device
for a trait (``gpu.traits``), never for a generation.  A generation that is not listed has the traits of the
newest of its line (``rdna3``: of RDNA), or else of the newest of its maker, as new ones resemble those more
than any before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from simulator.errors import InputError

__all__ = ["MAKERS", "Process", "Traits", "traits_of"]


@dataclass(frozen=True, slots=True)
class Process:
    """How a chip is manufactured.

    ``energy`` is that of the same work against 16 nm: from the makers' announcements (TSMC: 16 nm takes 60 %
    less than 28 nm, 10 nm 40 % less again, 5 nm 30 % less than 7 nm), halved in the steps after 16 nm, as boards
    show: RTX 3090 and 4090 hold their clocks in fp32 at 350 and 450 W, A100 at 400 W holds its own in fp16.
    ``full_voltage_Hz`` is the clock at which a chip needs its full voltage: where the fastest boards of the
    process end (general knowledge, to 10 %).  ``lowest_voltage`` is what it needs at any clock, of that: what monitors
    show of idle boards, 0.62 V of 1.05 V on GeForce GTX 10 and RTX 20, 0.7 V of 1.08 V on RTX 30, 0.88 V of 0.97 V at
    that clock on RTX 40 (general knowledge).
    """

    energy: float
    full_voltage_Hz: float
    lowest_voltage: float


# By feature size, from the makers' announcements.  TSMC's 12 nm is a variant of its 16 nm with the same wires, and
# counted as that; "4N" counts as 5 nm.
_28_NM = Process(2.5, 1.15e9, 0.7)
_16_NM = Process(1.0, 1.75e9, 0.6)
_14_NM = Process(1.0, 1.6e9, 0.6)
_8_NM = Process(0.6, 1.85e9, 0.65)
_7_NM = Process(0.5, 1.6e9, 0.65)
_6_NM = Process(0.45, 1.7e9, 0.65)
_5_NM = Process(0.35, 2.3e9, 0.9)
_3_NM = Process(0.27, 2.4e9, 0.9)


@dataclass(frozen=True, slots=True)
class Traits:
    """What costs differ by.  A trait left out is as in what is sold now."""

    process: Process

    # How tensor (matrix) cores get their operands: there are none; through registers; copied past registers into
    # shared memory, asynchronously (cp.async); or fetched there by a warp of its own, and read from there (wgmma).
    operands: Literal["none", "registers", "copies", "warps"]
    # Energy of a product on tensor cores, against those of NVIDIA whose operands come likewise (by warps: against
    # Hopper's).  STAS MAMF: B200, 1,745 TFLOP/s in bf16 at 1,000 W; MI300X and MI325X, 668 at 750 and 785 at 1,000 W.
    tensor_energy: float = 1.0
    # Operands of 32 bits are turned on their way to tensor cores, which take them along k alone: wgmma and mma.sync do,
    # tcgen05 does not (NVIDIA, "PTX ISA", matrix multiply-accumulate, majorness of operands).
    turned_32_bit: bool = True
    # Products gather in a memory of their own, not in registers, so that a block may hold twice the rows (NVIDIA,
    # "CUDA C++ programming guide", tcgen05).
    tensor_memory: bool = False

    # What computes integers (addresses, bounds, Philox): the fp32 lanes; as many lanes of their own (NVIDIA, "Volta
    # architecture", 2017); or others besides: half of the lanes take both, and AMD's scalar unit what threads share.
    integers: Literal["shared", "own", "other"] = "other"
    small_sms: bool = False  # with half of the lanes that the generation's other chips have in one
    unfed_lanes: bool = False  # more lanes than schedulers feed: 128 of 192 in a clock
    threads_per_sm: int = 2048
    fp16_as_fp32: bool = False  # libraries compute fp16 in fp32, where its own rate is less
    int8_dot_products: bool = False  # lanes multiply four int8 at once (dp4a)
    # Matrix units take int8 in a layout of their own (CUBLASLT_ORDER_COL32), so that a plain product goes by dp4a.
    int8_in_tiles: bool = False

    # Share of the bus that long streams fill; see MemoryCosts.
    controllers: Literal["early", "late", "amd"] = "late"
    large_l2: bool = False  # a last-level cache of so many slices that an SM gets less from it in a clock
    # Pages whose translations SMs hold: few, many; or none is known to be missed, as no product of rows that far apart
    # was measured.
    translations: Literal["few", "many", "unseen"] = "unseen"

    # Whose kernels libraries run, by the names that profilers show: maxwell_sgemm, volta_sgemm, ampere_sgemm and
    # likewise scudnn; of AMD, its own.
    kernels: Literal["maxwell", "volta", "ampere", "amd"] = "ampere"
    wide_batches: bool = False  # a batch in fp32 runs in tiles of 128 x 128 however small its matrices are
    cudnn: int = 8  # the version that its convolutions and recurrent layers are taken to be from; 0: not cuDNN
    fused_winograd: bool = True  # there is a kernel of it

    @property
    def has_tensor_cores(self) -> bool:
        """Whether there are tensor (matrix) cores."""
        return self.operands != "none"


_MAXWELL = Traits(
    _28_NM,
    "none",
    integers="shared",
    fp16_as_fp32=True,
    controllers="early",
    translations="few",
    kernels="maxwell",
    wide_batches=True,
    cudnn=5,
)
_PASCAL = replace(_MAXWELL, process=_16_NM, int8_dot_products=True, cudnn=6)
_VOLTA = Traits(
    _16_NM, "registers", integers="own", translations="many", kernels="volta", cudnn=7, int8_dot_products=True
)
_AMPERE = Traits(_8_NM, "copies", threads_per_sm=1536, translations="many", wide_batches=True)
_HOPPER = Traits(_5_NM, "warps")
_VEGA = Traits(_14_NM, "none", controllers="amd", large_l2=True, kernels="amd", wide_batches=True, cudnn=0)
_CDNA = replace(_VEGA, operands="registers", tensor_energy=1.65)

# The oldest first; of AMD, CDNA after the others, as the last of a maker is taken for what is not known.
_GENERATIONS: dict[str, dict[str, Traits]] = {
    "nvidia": {
        "kepler": replace(_MAXWELL, unfed_lanes=True, fused_winograd=False),
        "maxwell": _MAXWELL,
        "pascal": _PASCAL,
        "volta": _VOLTA,
        "turing": replace(_VOLTA, threads_per_sm=1024, int8_in_tiles=True),
        "ampere": _AMPERE,
        "ada": replace(_AMPERE, process=_5_NM, large_l2=True),
        "hopper": _HOPPER,
        "blackwell": replace(_HOPPER, tensor_energy=0.65, turned_32_bit=False, tensor_memory=True),
    },
    "amd": {
        "gcn": replace(_VEGA, process=_28_NM),
        "vega": _VEGA,
        "rdna2": replace(_VEGA, process=_7_NM),
        "cdna1": replace(_CDNA, process=_7_NM),
        "cdna2": replace(_CDNA, process=_6_NM),
        "cdna3": replace(_CDNA, process=_5_NM),
        "cdna4": replace(_CDNA, process=_3_NM),
    },
}
# Generations whose chip for data centres (GP100, GA100) has SMs of half as many lanes as the others have.
_SMALL_SMS = {
    "pascal": replace(_PASCAL, small_sms=True, int8_dot_products=False),
    "ampere": replace(_AMPERE, small_sms=True, process=_7_NM, integers="own", threads_per_sm=2048),
}
_SMALL_SM_LANES = 96.0  # between 64 and 128
# Generations whose chips for workstations and desks (GB202, GB10) keep the tensor cores and SMs of the generation
# before: their instructions (mma.sync) read registers, and an SM holds 1,536 threads.
_PLAIN_TENSOR = {"blackwell": _GENERATIONS["nvidia"]["ada"]}
_PLAIN_TENSOR_FLOPS = 4000.0  # of an SM in a clock, in 16 bit: 1,024 there (sparse twice that), 8,192 on B200
MAKERS = frozenset(_GENERATIONS)


@lru_cache(maxsize=1024)
def traits_of(maker: str, generation: str, lanes_per_sm: float, tensor_flops_per_sm: float = math.inf) -> Traits:
    """Return the traits of chips of *generation* whose SMs have so many fp32 lanes.

    *tensor_flops_per_sm*: of a clock, on tensor cores in 16 bit.

    Raises InputError where nothing is known of GPUs of *maker*.
    """
    if maker not in _GENERATIONS:
        known = "; ".join(f"{name} ({', '.join(_GENERATIONS[name])})" for name in sorted(MAKERS))
        raise InputError(f"no model of GPUs of maker '{maker}'; there are models of {known}")
    generations = _GENERATIONS[maker]
    if generation not in generations:
        line = generation.rstrip("0123456789")
        of_line = [name for name in generations if line and name.startswith(line)]
        generation = (of_line or list(generations))[-1]
    if generation in _SMALL_SMS and lanes_per_sm < _SMALL_SM_LANES:
        return _SMALL_SMS[generation]
    if generation in _PLAIN_TENSOR and tensor_flops_per_sm < _PLAIN_TENSOR_FLOPS:
        return _PLAIN_TENSOR[generation]
    return generations[generation]
