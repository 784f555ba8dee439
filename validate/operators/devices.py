"""The devices that tables of measurements name: built-in GPU parts, by name or alias."""

from __future__ import annotations

from functools import lru_cache

from simulator.devices.device import Gpu, gpu_from_part
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart

__all__ = ["find_gpu", "gpu_names"]


@lru_cache(maxsize=1)
def gpu_names() -> dict[str, str]:
    """Return the name of the part for every name and alias of a built-in GPU."""
    names: dict[str, str] = {}
    for name in part_names("gpu"):
        part = load_part(name)
        assert part is not None
        for known in (*part.aliases, name):
            names[known] = name
    return names


@lru_cache(maxsize=256)
def find_gpu(name: str) -> Gpu | None:
    """Return the device that *name* stands for, uncalibrated, or None."""
    part = load_part(gpu_names().get(name, ""))
    return gpu_from_part(name, part) if isinstance(part, GpuPart) else None
