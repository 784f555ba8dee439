"""The compute units that serve a precision: tensor cores or fp32 lanes."""

from __future__ import annotations

from simulator.devices.gpu.gpu import Gpu
from simulator.workload.precision import Precision


def computes_on_tensor_cores(gpu: Gpu, precision: Precision) -> bool:
    """Return whether matrix products in *precision* run on tensor (matrix) cores."""
    if precision in ("fp32", "fp64") or multiplies_bytes(gpu, precision) or computes_in_fp32(gpu, precision):
        return False
    return gpu.traits.has_tensor_cores and precision in gpu.peak_flops_per_s


def multiplies_bytes(gpu: Gpu, precision: Precision) -> bool:
    """Return whether fp32 lanes, rather than tensor cores, multiply numbers of *precision*, four at once (dp4a).

    On Turing, tensor cores do, because runtimes of quantised networks lay operands out for them
    (``CUBLASLT_ORDER_COL32``); there, a product of plain matrices uses dp4a
    (:func:`simulator.devices.gpu.gemm.gemm_cost`).
    """
    return precision == "int8" and gpu.traits.int8_dot_products and precision not in gpu.peak_flops_per_s


def computes_in_fp32(gpu: Gpu, precision: Precision) -> bool:
    """Return whether libraries compute in fp32 what is stored in *precision*.

    They do for tf32 where the device has no units for it, or none that are faster than fp32, as on GeForce cards since
    Ampere: a library may use either and takes the faster.  They do for fp16 in the generations before tensor cores,
    where native units are missing or few: one per 64 of fp32 on GP102 and GP104 (NVIDIA, "CUDA C++ programming guide",
    throughput of native arithmetic, 6.1).  cuBLAS does not use those, as PyTorch asks it to accumulate in fp32
    (CUBLAS_COMPUTE_32F).
    """
    peak = gpu.peak_flops_per_s
    if precision == "tf32":
        return peak.get(precision, 0.0) <= peak.get("fp32", 0.0)
    return precision == "fp16" and gpu.traits.fp16_as_fp32 and peak.get("fp16", 0.0) < peak.get("fp32", 0.0)
