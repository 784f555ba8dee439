"""Number formats for arithmetic and storage, and their element sizes in bytes."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["ELEMENT_BYTES", "NVFP4_BYTES", "PACKED", "PRECISIONS", "Precision"]

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "nvfp4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# tf32 is a mode of multiplication; its operands are stored as fp32.
# Two int4 or nvfp4 elements share a byte (PACKED), but only as inputs of products; results are wider.
ELEMENT_BYTES: dict[Precision, int] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
    "int4": 1,
    "nvfp4": 1,
}
PACKED = 2
NVFP4_BYTES = 1 / PACKED + 1 / 16  # with the scale in 8 bits of each block of 16 (arXiv 2509.25149, section 2)
