"""Number formats for arithmetic and storage, and their element sizes in bytes."""

from __future__ import annotations

import re
from typing import Literal, get_args

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
# Other names: of NumPy, torch and JAX (ml_dtypes), of XLA and MLIR (F32, f8E4M3FN), of Transformer Engine
# (kFloat8E4M3), of NCCL and C (half).  All kinds of 8-bit floats multiply equally fast, however they are scaled: by
# the tensor, now or with a delay, by blocks, or by 32 (Transformer Engine's recipes, and NeMo's short names of them).
# The 4-bit floats of NVIDIA and of OCP's microscaling differ in the length of the blocks alone.
_SCALED = ("cs", "sc", "ds", "mx", "hybrid", "delayed", "current", "blockwise", "rowwise", "tensorwise")
_EIGHT = ("", "e4m3", "e4m3fn", "e4m3fnuz", "e4m3b11", "e4m3b11fnuz", "e5m2", "e5m2fnuz", "e3m4")
_NAMES: dict[Precision, tuple[str, ...]] = {
    "fp64": ("float64", "f64", "double"),
    "fp32": ("float32", "f32", "float", "single"),
    "tf32": ("tensorfloat32",),
    "fp16": ("float16", "f16", "half"),
    "bf16": ("bfloat16",),
    "fp8": (
        *(f"{width}{kind}" for width in ("float8", "fp8", "f8") for kind in _EIGHT),
        *filter(None, _EIGHT),
        "mxfp8",
        *(f"fp8{how}" for how in _SCALED),
    ),
    "int8": ("s8", "i8"),
    "int4": ("s4", "i4"),
    "nvfp4": ("fp4", "mxfp4", "float4", "float4e2m1fn", "f4e2m1fn"),
}
_BY_NAME = {name: precision for precision, names in _NAMES.items() for name in (precision, *names)}
PACKED = 2
INDEX_BYTES = 8  # int64, in which PyTorch stores tokens, and the places of largest elements
STATISTIC_BYTES = 4  # of means, deviations and sums of rows: fp32 whatever the precision
NVFP4_BYTES = 1 / PACKED + 1 / 16  # with the scale in 8 bits of each block of 16 (arXiv 2509.25149, section 2)


def precision_named(name: str) -> Precision | None:
    """Return the format that a library calls *name* (``bfloat16``, ``torch.float8_e4m3fn``, ``F32``), or None."""
    plain = re.sub("[_ -]", "", name.strip().rpartition(".")[2].lower())
    return _BY_NAME.get(plain) or _BY_NAME.get(plain.removeprefix("k"))
