"""Number formats for arithmetic and storage, and their element sizes in bytes."""

import re
from typing import Literal, get_args

from simulator.records import own_data

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "nvfp4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_WRITTEN = own_data("simulator.workload", "precisions.json")
# tf32 is a mode of multiplication; its operands are stored as fp32.
# Two int4 or nvfp4 elements share a byte (PACKED), but only as inputs of products; results are wider.
ELEMENT_BYTES: dict[Precision, int] = {precision: _WRITTEN[precision]["bytes"] for precision in PRECISIONS}
# Other names: of NumPy, torch and JAX (ml_dtypes), of XLA and MLIR (F32, f8E4M3FN), of Transformer Engine
# (kFloat8E4M3), of NCCL and C (half).  All kinds of 8-bit floats multiply equally fast, however they are scaled: by
# the tensor, now or with a delay, by blocks, or by 32 (Transformer Engine's recipes, and NeMo's short names of them).
# The 4-bit floats of NVIDIA and of OCP's microscaling differ in the length of the blocks alone.
_BY_NAME = {name: precision for precision in PRECISIONS for name in (precision, *_WRITTEN[precision]["names"])}
PACKED = 2
INDEX_BYTES = 8  # int64, in which PyTorch stores tokens, and the places of largest elements
STATISTIC_BYTES = 4  # of means, deviations and sums of rows: fp32 whatever the precision
NVFP4_BYTES = 1 / PACKED + 1 / 16  # with the scale in 8 bits of each block of 16 (arXiv 2509.25149, section 2)


def precision_named(name: str) -> Precision | None:
    """Return the format that a library calls *name* (``bfloat16``, ``torch.float8_e4m3fn``, ``F32``), or None."""
    plain = re.sub("[_ -]", "", name.strip().rpartition(".")[2].lower())
    return _BY_NAME.get(plain) or _BY_NAME.get(plain.removeprefix("k"))
