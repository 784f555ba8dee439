"""Classes of kernels: by a GPU kernel's name, by a CPU operator's name, or from a predicted trace.

The patterns match kernel names of cuBLAS, cuDNN, CUTLASS, FlashAttention, NCCL, RCCL, rocBLAS, MIOpen and PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simulator.workload.operators import CLASSES as KERNELS

CLASSES = ("product", "convolution", "attention", "elementwise", "optimizer", "copy", "collective", "other")

# TorchInductor names fused kernels after their operators, such as "convolution" or "attention"; only its templates
# (tem) compute products.
_KERNELS = (
    ("elementwise", r"^triton_(?:poi|per|red|spl|for|sca)_"),
    ("product", r"^triton_tem_\w*mm_"),
    (
        "collective",
        (
            r"(?i)nccl(?:Dev)?Kernel|^nccl|rccl|mscclpp|mscclKernel|cross_device_reduce|multimem_"
            r"|(?:one|two)_shot_all_reduce|\bdeep_ep::"
        ),
    ),
    ("copy", r"(?i)^mem(?:cpy|set)\b|Copy(?:Host|Device)To(?:Host|Device)|__amd_rocclr_(?:copy|fill)"),
    ("optimizer", r"(?i)multi_tensor_apply|FusedAdam|FusedSgd|adamw?_|\blamb\b|_sgd_|distributed_adam"),
    ("attention", r"(?i)flash_(?:fwd|bwd|attn)|fmha|attention|sdpa|\bmha_|flash::|attn_fwd|attn_bwd"),
    (
        "convolution",
        (
            r"(?i)conv(?!ert)|_[a-z]cudnn_|winograd|wgrad|dgrad|fprop|igemm_(?:fwd|bwd|wrw)|im2col|col2im|MIOpen"
            r"|miopen(?!.*norm)"
        ),
    ),
    (
        "product",
        r"(?i)gemm|gemv|cutlass|cublas|nvjet|Cijk_|splitK|matmul|xmma|triton_mm|dot_kernel|_bmm_|RNN_|fused_moe",
    ),
)
_OPERATORS = (
    ("collective", r"^(?:c10d|gloo|nccl|record_param_comms)"),
    ("optimizer", r"_foreach_|_fused_(?:adam|sgd)|^Optimizer\."),
    ("attention", r"(?i)attention|flash"),
    ("convolution", r"(?i)conv"),
    ("product", r"aten::(?:addmm|mm|bmm|baddbmm|addmv|mv|linear|matmul|einsum)|mkldnn_linear|_mm\b"),
    ("copy", r"aten::(?:copy_|_to_copy|to|clone|contiguous)$"),
)
_NORMALISES = re.compile(r"norm|bn_(?:fw|bw)", re.IGNORECASE)


def class_of_kernel(name: str) -> str:
    """Return the class of a GPU kernel by its *name*; unmatched names, such as normalisations, count as elementwise."""
    for kind, pattern in _KERNELS:
        if re.search(pattern, name[:400]) and not (kind == "convolution" and _NORMALISES.search(name[:400])):
            return kind
    return "elementwise"


def class_of_operator(name: str) -> str:
    """Return the class of a PyTorch operator on a CPU by its *name*."""
    for kind, pattern in _OPERATORS:
        if re.search(pattern, name[:200]):
            return kind
    return "elementwise"


def class_of_prediction(told: Mapping[str, Any]) -> str:
    """Return the class of a kernel from a trace of ``simulate --trace``, by its arguments; empty for other traces."""
    if "class" in told and "bound by" in told:
        known = KERNELS.get(str(told["class"]))
        return "optimizer" if told.get("part") == "update" else known.traced if known is not None else "other"
    if "task" in told and "waits for" in told:
        return "collective" if "bytes" in told else "other"
    return ""
