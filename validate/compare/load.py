"""Whether something else ran while a machine was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["busy", "load_notes"]

SHARE = 0.25
"""Of the cores: from this many processes on that wanted one in the last minute, a machine is not idle."""


def busy(load: float, cores: int) -> bool:
    """Return whether *load*, processes that wanted a core in the last minute, is more than an idle machine has."""
    return load > SHARE * max(cores, 2)  # of one core, half a process is what starting a program leaves


def load_notes(record: Mapping[str, Any]) -> list[str]:
    """Return what the record of a run says of other work on its machine; nothing where it was idle."""
    environment = record.get("environment")
    environment = environment if isinstance(environment, dict) else {}
    cpu = environment.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    cores = _count(cpu.get("logical_cores"))
    if not cores:
        return []
    gpu = environment.get("gpu")
    # Its own: a thread for each of torch's on a CPU, a process for each GPU.
    own = _count(gpu.get("count")) if isinstance(gpu, dict) else _count(cpu.get("torch_threads"))
    said = []
    for key, when, mine in (("load_at_start", "began", 0), ("load_at_end", "ended", max(1, own))):
        load = record.get(key)
        if not isinstance(load, int | float) or not busy(load - mine, cores):
            continue
        besides = f", {mine} of them its own" if mine else ""
        said.append(
            f"something else ran when this {when}: {load:.3g} processes wanted one of {cores} cores{besides};"
            " such figures may repeat well and yet be wrong"
        )
    return said


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
