"""Number formats: in which one computes, and how many bytes an element takes in memory."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["ELEMENT_BYTES", "PACKED", "PRECISIONS", "Precision"]

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# tf32 is a way to multiply numbers that are stored as fp32.
# Of int4, which products alone read, two lie in a byte (PACKED); what they write has a byte each.
ELEMENT_BYTES: dict[Precision, int] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
    "int4": 1,
}
PACKED = 2
