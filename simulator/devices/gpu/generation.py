"""Generations of GPUs: the traits of their chips on which costs depend.

Only ``generations.yaml`` names generations: to add one, add its traits there.  Models ask a device for a trait
(``gpu.traits``), never for a generation.  A generation that is not listed has the traits of the newest of its line
(``rdna3``: of RDNA), or else of its vendor's newest, which a new generation resembles most.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

from simulator.errors import InputError
from simulator.package_data import own_data
from simulator.questions.where import Month
from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """A manufacturing process.

    ``energy`` is the energy for the same work relative to 16 nm, from the makers' announcements (TSMC: 16 nm takes
    60 % less than 28 nm, 10 nm 40 % less again, 5 nm 30 % less than 7 nm), halved in the steps after 16 nm, as boards
    show: RTX 3090 and 4090 hold their clocks in fp32 at 350 and 450 W, A100 at 400 W holds its own in fp16.
    ``full_voltage_Hz`` is the clock at which a chip needs its full voltage: that of the fastest boards of the process
    (general knowledge, to 10 %).  ``lowest_voltage`` is the voltage that any clock needs, relative to the full one, as
    monitors show for idle boards: 0.62 V of 1.05 V on GeForce GTX 10 and RTX 20, 0.7 V of 1.08 V on RTX 30, 0.88 V of
    0.97 V at that clock on RTX 40 (general knowledge).
    """

    energy: float
    full_voltage_Hz: float
    lowest_voltage: float


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits on which costs depend.  The default of each is that of GPUs sold today."""

    process: Process

    # How operands reach tensor (matrix) cores: no such cores; through registers; copied asynchronously into shared
    # memory, bypassing registers (cp.async); or fetched there by a dedicated warp and read from there (wgmma).
    operands: Literal["none", "registers", "copies", "warps"]
    # Energy of a product on tensor cores relative to NVIDIA's with the same operand path.  STAS MAMF: MI300X, MI325X,
    # 668 TFLOP/s at 750 W and 785 at 1,000 W.
    tensor_energy: float = 1.0
    # Power that products draw until the board's limiter acts, relative to its limit.  Hopper and Blackwell have the
    # same process and spend the same energy for a product, but short runs of a B200 reach 1,745 TFLOP/s in bf16
    # (STAS MAMF), where its 1,000 W supply 1,070.
    burst: float = 1.0
    # 32-bit operands are transposed on their way to tensor cores that take them along k only: so for wgmma and
    # mma.sync, not for tcgen05 (NVIDIA, "PTX ISA", matrix multiply-accumulate, majorness of operands).
    turned_32_bit: bool = True
    # FLOPs of an SM's tensor cores per clock in 16 bit, where boards are sold that issue them more seldom; 0: none are.
    # GeForce cards and the L40 do half of it where sums are in fp32 (NVIDIA, "Ampere GA102 GPU architecture", table 2;
    # data sheets of L40 and L40S, which are one chip).
    tensor_flops: float = 0.0
    # Products accumulate in tensor memory rather than in registers, so that a block may hold twice the rows (NVIDIA,
    # "CUDA C++ programming guide", tcgen05).
    tensor_memory: bool = False
    # Exponentials of an SM in a clock, relative to other generations' 16 (NVIDIA, "Inside NVIDIA Blackwell Ultra",
    # 2025: twice those of Blackwell, for attention).
    exponentials: float = 1.0

    # Units for integers (addresses, bounds, Philox): the fp32 lanes; as many lanes of their own (NVIDIA, "Volta
    # architecture", 2017); or other: half of the lanes take both, or AMD's scalar unit computes what threads share.
    integers: Literal["shared", "own", "other"] = "other"
    small_sms: bool = False  # SMs have half of the lanes of the generation's other chips
    unfed_lanes: bool = False  # more lanes than the schedulers feed: 128 of 192 per clock
    threads_per_sm: int = 2048
    fp16_as_fp32: bool = False  # libraries compute fp16 in fp32 where the native fp16 rate is lower
    int8_dot_products: bool = False  # lanes multiply four int8 at once (dp4a)
    # Matrix units need int8 operands in CUBLASLT_ORDER_COL32 layout, so that a plain product uses dp4a instead.
    int8_in_tiles: bool = False

    # Generation of the memory controllers: sets the share of the bandwidth that long streams reach; see MemoryCosts.
    controllers: Literal["early", "late", "amd"] = "late"
    # The last-level cache has two halves, each with its own copy of what its SMs read, in NVIDIA's large chips with
    # stacked memory since A100 (NVIDIA, "A100 Tensor Core GPU architecture", 2020).
    split_l2: bool = False
    large_l2: bool = False  # a last-level cache of many slices, which delivers less to each SM per clock
    # Pages whose translations SMs cache: few, many, or "unseen": no misses are known, as no product with rows that far
    # apart was measured.
    translations: Literal["few", "many", "unseen"] = "unseen"

    # The family of kernels that libraries run, by the names that profilers show: maxwell_sgemm, volta_sgemm,
    # ampere_sgemm and likewise scudnn; AMD has its own.
    kernels: Literal["maxwell", "volta", "ampere", "amd"] = "ampere"
    wide_batches: bool = False  # batched products in fp32 use tiles of 128 x 128 however small their matrices are
    # Gradients of filters on tensor cores come in one tile, of 128 channels of one tap by 128 results (T4, cuDNN 7.6:
    # DeepBench's times grow with the channels in steps of 128).
    whole_filter_tiles: bool = False
    # The first boards that run kernels of this design: generations that feed their units alike share them (Turing's are
    # Volta's, Ada's are Ampere's).  None: how libraries for it grew is not known.
    kernels_since: Month | None = None
    # The first libraries that run every shape on its tensor cores, where earlier ones do not.  cuBLAS before 11 takes
    # only matrices whose rows are whole pieces of 16 bytes (cuBLAS documentation of 10.2, "Tensor core usage"; NVIDIA,
    # "Matrix multiplication background", requirements by version).  No algorithm of cuDNN 7 takes dilated convolutions,
    # says NVIDIA's engineer in https://github.com/chainer/chainer/pull/4064 (December 2017).  cuBLAS 11 and cuDNN 8
    # came in July 2020.
    any_shape_since: Month | None = None
    cudnn: int = 8  # assumed cuDNN version of its convolutions and recurrent layers; 0: not cuDNN
    fused_winograd: bool = True  # the library has a fused Winograd kernel


_WRITTEN = own_data("simulator.devices.gpu", "generations.yaml")
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
    """Return the traits of chips of *generation* whose SMs have *lanes_per_sm* fp32 lanes.

    Words after the name of a generation are those of its chips ("blackwell ultra gb100").
    *tensor_flops_per_sm* is the rate of tensor cores in 16 bit, in FLOPs per SM and clock.

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
