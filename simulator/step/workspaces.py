"""What stands in memory besides tensors: the driver's context, and workspaces of matrix products.

PyTorch takes the workspaces from its allocator and keeps them.
"""

from __future__ import annotations

from simulator.constants import constants
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.nccl import Version
from simulator.questions.options import StepOptions
from simulator.questions.where import Month, Software
from simulator.records import dataclass

# aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize): ":4096:2:16:8", 32 MiB on Hopper and Blackwell;
# hipBLAS has 32 MiB, on gfx94x and gfx95x 128.
_USUAL = (2 * 4096 + 8 * 16) * 1024
_LARGE = 32 * 2**20
_LARGE_ON = {"hopper": _LARGE, "blackwell": _LARGE, "cdna3": 4 * _LARGE, "cdna4": 4 * _LARGE}


def workspace_bytes(device: Device, options: StepOptions) -> float:
    """Return the bytes of the workspaces of cuBLAS on *device*; 0 on CPUs, and for frameworks other than PyTorch.

    Each thread has a handle of its own with a workspace, and the backward pass runs in another thread than the forward
    pass.
    """
    if not isinstance(device, Gpu) or options.framework in ("tensorflow", "caffe"):
        return 0.0
    each = _LARGE_ON.get(device.generation.partition(" ")[0], _LARGE if device.vendor == "amd" else _USUAL)
    return float(each * (2 if options.mode in ("train", "backward") else 1))


@constants("residents")
@dataclass(frozen=True, slots=True)
class Residents:
    """Constants of what stands in memory besides tensors."""

    context_bytes: float
    eager_context_bytes: float
    eager_ampere_context_bytes: float

    def of(self, gpu: Gpu, options: StepOptions, software: Software) -> float:
        """Return the bytes of the context of *gpu* with *software*."""
        month = software.libraries
        loads_all = _EAGER[0] <= software.nccl < _EAGER[1] or (month and _EAGER_MONTHS[0] <= month < _EAGER_MONTHS[1])
        if not loads_all or gpu.vendor != "nvidia" or options.framework in ("tensorflow", "caffe"):
            return self.context_bytes
        return self.eager_ampere_context_bytes if gpu.traits.kernels == "ampere" else self.eager_context_bytes


# PyTorch 1.0 (December 2018, with NCCL 2.3) to 1.12 load all kernels of a library at once; 1.13 with CUDA 11.7 (October
# 2022, with NCCL 2.14) does not.
_EAGER: tuple[Version, Version] = (2, 3), (2, 14)
_EAGER_MONTHS: tuple[Month, Month] = (2018, 12), (2022, 10)
