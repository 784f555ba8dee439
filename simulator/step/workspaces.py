"""The workspaces of matrix products, which PyTorch takes from its allocator and keeps."""

from __future__ import annotations

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions

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
    each = _LARGE_ON.get(device.generation, _LARGE if device.vendor == "amd" else _USUAL)
    return float(each * (2 if options.mode in ("train", "backward") else 1))
