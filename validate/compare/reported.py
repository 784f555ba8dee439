"""Identifying a device from what its machine reports: the part it must be, and the parts it cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simulator.errors import one_line
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from validate.tables.names import MAKERS, gpu_names

_MAKERS = ("nvidia-", "amd-", "tesla-", "quadro-", "geforce-", "instinct-")
_MEMORY_TOLERANCE = 0.12  # covers memory reserved by the driver, and GB against GiB


def part_by_facts(name: str, environment: Mapping[str, Any]) -> str:
    """Return the GPU part that the device *name* must be; empty if no part or more than one fits.

    A part fits if its model is a word of the name, and its number of streaming multiprocessors and memory size are
    those that the device reports: an H100 with 132 multiprocessors is the SXM5, one with 114 the PCIe card.
    """
    plain = _slug(name)
    for maker in _MAKERS:
        plain = plain.removeprefix(maker)
    by_slug = {_slug(known): part for known, part in gpu_names().items()}
    if plain in by_slug:
        return by_slug[plain]
    words = set(plain.split("-"))
    facts = _gpu(environment)
    count, memory = facts.get("sm_count"), facts.get("memory_bytes")
    fitting = []
    for candidate in part_names("gpu"):
        part = load_part(candidate)
        if not isinstance(part, GpuPart) or _model(candidate) not in words:
            continue
        if isinstance(count, int) and part.sm_count is not None and part.sm_count != count:
            continue
        if isinstance(memory, int) and part.memory_size and abs(part.memory_size / memory - 1) > _MEMORY_TOLERANCE:
            continue
        fitting.append(candidate)
    return fitting[0] if len(fitting) == 1 and facts else ""


def unlike_part(parts: Mapping[str, object], environment: Mapping[str, Any]) -> str:
    """Return why none of *parts* (by name) can be the device described by *environment*.

    Empty if one of them can be, or if nothing is reported.  A measured CPU contradicts every GPU part with figures (a
    part without any stands for a process that exchanges, as in linux-host); a measured GPU contradicts machines without
    GPUs; two GPUs differ by their number of multiprocessors or the model in their names.
    """
    if not environment.get("device"):
        return ""
    gpus = {name: part for name, part in parts.items() if isinstance(part, GpuPart) and part.vendor in MAKERS}
    facts = _gpu(environment)
    measured = one_line(facts.get("name") or environment["device"], 80)
    if not facts:
        models = [name for name, part in gpus.items() if part.peak or part.memory_bandwidth or part.sm_count]
        return f"{', '.join(models)} is a GPU, and the CPU {measured} is what is measured" if models else ""
    if not gpus:
        return f"has no GPU, and the GPU {measured} is what is measured"
    reasons = [_unlike(name, part, measured, environment) for name, part in gpus.items()]
    return "" if "" in reasons else reasons[0]


def _unlike(name: str, part: GpuPart, measured: str, environment: Mapping[str, Any]) -> str:
    """Return why the GPU *part* cannot be the device called *measured*; empty if it can be."""
    count = _gpu(environment).get("sm_count")
    if isinstance(count, int) and part.sm_count is not None and part.sm_count != count:
        return f"{name} has {part.sm_count} multiprocessors, and the {measured} that is measured has {count}"
    builtin = part_names("gpu")
    if name not in builtin:
        return ""  # the user's own part may have any name
    must_be = part_by_facts(measured, environment)
    models = {_model(known) for known in builtin} & set(_slug(measured).split("-"))
    if (must_be and must_be != name) or (not must_be and models and _model(name) not in models):
        return f"{name} is another GPU than the {measured} that is measured{f', {must_be}' if must_be else ''}"
    return ""


def _gpu(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = environment.get("gpu")
    return facts if isinstance(facts, dict) else {}


def _model(part: str) -> str:
    return part.split("-", maxsplit=1)[0]


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9.]+", name.lower()))
