"""What must agree before this machine is measured (it, its topology, the folder that goes on), and what else ran."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.errors import InputError, one_line

__all__ = ["busy", "has_rows", "load_notes", "load_warning", "machine_name", "reported"]

SHARE = 0.25
"""Of the cores: from this many processes on that wanted one in the last minute, a machine is not idle."""


def reported(device: str) -> dict[str, Any]:
    """Return what the *device* that would be measured reports, as a run's record has it; {} where there is none.

    The first GPU where *device* is empty, or the CPU where there is no GPU.
    """
    import torch

    from validate.machine.measure.bench import cpu_facts

    if device.startswith("cuda") or (not device and torch.cuda.device_count()):
        try:
            properties = torch.cuda.get_device_properties("cuda:0" if device in ("", "cuda") else device)
        except (RuntimeError, AssertionError, ValueError):
            return {}  # to be refused for what it is
        gpu = {"name": properties.name, "sm_count": properties.multi_processor_count}
        return {"device": properties.name, "gpu": gpu | {"memory_bytes": properties.total_memory}}
    return {"device": dict(cpu_facts()).get("model name") or "of this machine"} if device in ("", "cpu") else {}


def machine_name(out: Path, asked: str, topology: str, before: str) -> str:
    """Return the name that rows in the folder *out* are to carry: one that has rows goes on under theirs.

    *asked* is the user's ``--machine``, *topology* the name in the topology that the user gives, *before* the one in
    that which the folder holds; empty where there is none.
    Raises InputError where the folder holds rows of another machine, or that were measured with another topology.
    """
    name = asked or topology
    if not has_rows(out):
        return name
    shown = one_line(out, 100)
    if topology and before and topology != before:
        raise InputError(
            f"--topology: {shown} holds rows measured with the topology '{one_line(before, 60)}', and this one is"
            f" '{one_line(topology, 60)}'; name another folder with --out"
        )
    theirs = _recorded(out)
    if name and theirs and name != theirs:
        raise InputError(
            f"--out: {shown} holds rows of the machine '{one_line(theirs, 60)}', and these would be of"
            f" '{one_line(name, 60)}'; name another folder, or go on with --machine {one_line(theirs, 60)}"
        )
    return name or theirs


def load_warning() -> str:
    """Return one line where something else runs on this machine, empty where it is idle or does not say."""
    try:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
    except (AttributeError, OSError):
        return ""
    if not busy(load, cores):
        return ""
    return (
        f"warning: in the last minute {load:.3g} processes wanted one of {cores} cores;"
        " what is measured beside other work may repeat well and yet be wrong"
    )


def has_rows(out: Path) -> bool:
    """Return whether a table in the folder *out* holds a row."""
    from validate.machine.measure.table import COLUMNS

    for name in COLUMNS:
        try:
            with (out / name).open("rb") as file:
                if file.readline() and file.readline():
                    return True
        except OSError:
            continue
    return False


def _recorded(out: Path) -> str:
    try:
        found = json.loads((out / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # to be refused by the run itself, which knows what a record is
    return str(found.get("machine") or "") if isinstance(found, dict) else ""


# -- other work on the machine ---------------------------------------------------------


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
