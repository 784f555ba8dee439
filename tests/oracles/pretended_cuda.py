"""CUDA tensors without data in a build of torch for CPUs alone, so that the dispatcher and autograd do as on a GPU.

Autograd asks a device for its guard and its streams, and autocast and dropout differ by device.  Builds with CUDA have
a guard that does nothing for fake tensors (``torch._C._ensureCUDADeviceGuardSet``); this gives one to other builds, and
lets them call CUDA the accelerator.  It holds for the rest of the process, whose end it may spoil: use a process of its
own, and leave it with ``os._exit``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_CUDA = 1  # c10::DeviceType::CUDA
_DEVICE_TYPES = 21  # c10::COMPILE_TIME_MAX_DEVICE_TYPES
_METHODS = 100  # more than either interface has
# Of at::AcceleratorHooksInterface, after two entries for its destructor.
_IS_BUILT, _HAS_CONTEXT = 2, 4

_no = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
_yes = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
_no_devices = (ctypes.c_void_p * _METHODS)(*[ctypes.cast(_no, ctypes.c_void_p).value] * _METHODS)
_guard = (ctypes.c_void_p * 1)(ctypes.addressof(_no_devices))
_hooks = (ctypes.c_void_p * _METHODS)()
# Operators that have a kernel of CUDA's, and are a formula of others on devices without one.
_ONE_KERNEL = ("silu_backward", "mish_backward", "_fused_rms_norm")
_kernels = torch.library.Library("aten", "IMPL")


def pretend() -> None:
    """Let fake tensors be on ``cuda``; raises RuntimeError if this build of torch cannot be told so."""
    if torch.version.cuda is not None or torch._C._accelerator_getAccelerator() == torch.device("cuda"):
        return
    libraries = Path(torch.__file__).parent / "lib"
    core, cpu = (ctypes.CDLL(str(libraries / f"lib{name}.so")) for name in ("c10", "torch_cpu"))
    guards = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(core, "_ZN3c104impl26device_guard_impl_registryE")
    guards[_CUDA] = ctypes.addressof(_guard)
    torch._C._ensureCUDADeviceGuardSet()  # replaces a guard without devices
    if guards[_CUDA] == ctypes.addressof(_guard):
        raise RuntimeError("torch did not replace the guard of CUDA")
    cpu._ZN2at6detail12getCUDAHooksEv.restype = ctypes.c_void_p
    methods = ctypes.c_void_p.from_address(cpu._ZN2at6detail12getCUDAHooksEv())
    ctypes.memmove(_hooks, methods.value or 0, ctypes.sizeof(_hooks))
    _hooks[_IS_BUILT] = _hooks[_HAS_CONTEXT] = ctypes.cast(_yes, ctypes.c_void_p).value
    methods.value = ctypes.addressof(_hooks)
    if torch._C._accelerator_getAccelerator() != torch.device("cuda"):
        raise RuntimeError("torch does not take CUDA for the accelerator")
    for name in _ONE_KERNEL:
        _kernels.impl(name, _never, "CUDA")


def _never(*inputs: Any) -> None:
    raise AssertionError("fake tensors run no kernels")


@contextmanager
def autocasting() -> Iterator[None]:
    """Compute as under ``torch.autocast("cuda", torch.bfloat16)``, which asks for a GPU."""
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_enabled("cuda", True)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", False)
