"""What must agree before this machine is measured: it, its topology, and the folder that goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from simulator.errors import InputError, one_line

__all__ = ["has_rows", "load_warning", "machine_name", "reported"]


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

    Parameters
    ----------
    out : Path
        The folder, which need not be there.
    asked : str
        The user's ``--machine``, empty if not said.
    topology : str
        The name in the topology that the user gives, empty if none.
    before : str
        The name in the topology that the folder holds, empty if none.

    Raises
    ------
    InputError
        Where the folder holds rows of another machine, or that were measured with another topology.

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
    from validate.compare.load import busy

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
