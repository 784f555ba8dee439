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
