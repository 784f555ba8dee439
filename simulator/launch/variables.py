"""Variables of a launch line that change a step, or would: :func:`read_variables`."""

from __future__ import annotations

from simulator.errors import one_line
from simulator.launch.result import LaunchLine
from simulator.launch.switches import is_off

_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
_ATTENTION = "attention is what the arguments, or their defaults, say"
_FORMATS = "formats are those of the arguments"
# What is simulated instead, by variable.
_NOT_MODELLED = {
    **dict.fromkeys(("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"), _ATTENTION),
    **dict.fromkeys(
        ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "ACCELERATE_MIXED_PRECISION"), _FORMATS
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "the allocator keeps what it has",
    "TORCH_COMPILE_DISABLE": "compiled as the arguments say",
    "TORCHDYNAMO_DISABLE": "compiled as the arguments say",
}
_USUAL = {
    "ACCELERATE_MIXED_PRECISION": "no",
    **dict.fromkeys(("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"), "1"),
}
_DEBUGS = "the checks of each collective are left out"


def read_variables(found: LaunchLine) -> None:
    """Add the options of the variables of *found*, and notes on those that are not simulated, except NCCL's."""
    variables = found.variables
    if any(not is_off(variables.get(name, "0")) for name in _BLOCKING):
        found.options["launch_blocking"] = True
    instead = dict(_NOT_MODELLED)
    if variables.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() == "DETAIL":
        instead["TORCH_DISTRIBUTED_DEBUG"] = _DEBUGS
    for name, why in instead.items():
        value = variables.get(name)
        off = name not in _USUAL and name != "NVIDIA_TF32_OVERRIDE" and value is not None and is_off(value)
        if value is not None and value != _USUAL.get(name) and not off:
            found.notes.append(f"{name}={one_line(value, 40)}: is not modelled; {why}")
