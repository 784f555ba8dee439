"""Devices for tests: built-in parts, with changed constants where needed."""

from __future__ import annotations

from dataclasses import replace

from simulator.constants import Constants
from simulator.devices.gpu import Gpu, gpu_from_part
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from validate.tables.names import names_of


def find_gpu(name: str, **changed: float) -> Gpu:
    """Return the GPU called *name*; *changed* overrides constants by file and name: ``gemm__fetch=9``."""
    part_name = names_of("gpu")[name]
    part = load_part(part_name)
    assert isinstance(part, GpuPart)
    return with_constants(gpu_from_part(part_name, part), **changed)


def with_constants(gpu: Gpu, **changed: float) -> Gpu:
    """Return *gpu* with only these constants, written as in :func:`find_gpu`."""
    if not changed:
        return gpu
    return replace(gpu, constants=Constants({name.replace("__", "."): value for name, value in changed.items()}))
