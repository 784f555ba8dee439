"""Compile and launch a small kernel with NVRTC and libcuda, which come with torch and the driver.

It uses their C interfaces, which are the same in all versions (CUDA Toolkit Documentation: NVRTC, section 3; CUDA
Driver API, Module Management and Execution Control).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from validate.machine.measure.case import Unavailable


class NvrtcKernel:
    """The kernel *name* of *source*, with C linkage, for torch's current GPU.

    Raises Unavailable where NVRTC is missing or cannot compile for this GPU.
    """

    def __init__(self, source: str, name: str) -> None:
        if torch.version.hip:
            raise Unavailable("compiles kernels for NVIDIA GPUs only")
        torch.cuda.synchronize()  # makes the context current, as the driver calls below require
        major, minor = torch.cuda.get_device_capability()
        binary = compile_binary(find_nvrtc(), source, f"sm_{major}{minor}")
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unavailable(f"no libcuda.so.1: {error}") from None
        self._binary = ctypes.create_string_buffer(binary, len(binary))
        self._module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        _check(self._driver.cuModuleLoadData(ctypes.byref(self._module), self._binary), "cuModuleLoadData")
        _check(
            self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()),
            "cuModuleGetFunction",
        )

    def launch(self, arguments: Sequence[int], *, blocks: int = 1, threads: int = 1) -> None:
        """Launch the kernel on torch's current stream; *arguments* are addresses and integers of 64 bits each.

        Raises Unavailable where the driver refuses.
        """
        values = [ctypes.c_ulonglong(value) for value in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = [ctypes.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1)]
        _check(
            self._driver.cuLaunchKernel(self._function, *grid, ctypes.c_uint(0), stream, places, None), "cuLaunchKernel"
        )


def find_nvrtc() -> ctypes.CDLL:
    """Return NVRTC: one known to the loader, or one among torch's packages; raises Unavailable without any."""
    major = str(torch.version.cuda or "12").split(".", maxsplit=1)[0]
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [Path(torch.__file__).parent, *map(Path, sys.path), Path(sys.prefix), *toolkits, Path("/usr/local/cuda")]
    # The unversioned name comes last: it may belong to a toolkit too old for this GPU.
    for name in (f"libnvrtc.so.{major}", *_packaged(major, folders), "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Unavailable(f"no libnvrtc.so.{major}, neither known to the loader nor in torch's packages")


def _packaged(major: str, folders: Sequence[Path]) -> list[str]:
    """Return the paths of NVRTC below *folders*: wheels of torch and NVIDIA, environments, toolkits."""
    patterns = (f"nvidia/*/lib/libnvrtc.so.{major}*", f"lib/libnvrtc*.so.{major}*", f"lib64/libnvrtc.so.{major}*")
    found = (path for folder in folders if folder.is_dir() for pattern in patterns for path in folder.glob(pattern))
    return list(dict.fromkeys(str(p) for p in found if "builtins" not in p.name and ".alt." not in p.name))


def compile_binary(nvrtc: Any, source: str, architecture: str) -> bytes:
    """Return *source* compiled to a binary for *architecture* (``sm_90``).

    PTX is avoided, since the driver may be older than the compiler.  Raises Unavailable where it does not compile.
    """
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None), "NVRTC")
    try:
        option = f"--gpu-architecture={architecture}".encode()
        if nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option)):
            raise Unavailable(f"NVRTC does not compile for {architecture}: {_log(nvrtc, program)}")
        size = ctypes.c_size_t()
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
        binary = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, binary), "nvrtcGetCUBIN")
        return binary.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _log(nvrtc: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(max(1, size.value))
    nvrtc.nvrtcGetProgramLog(program, text)
    return " ".join(text.value.decode(errors="replace").split())[:120]


def _check(status: int, call: str) -> None:
    if status:
        raise Unavailable(f"{call} returned {status}")
