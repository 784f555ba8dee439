"""Checks before measuring: that machine, topology and output folder agree, and whether other programs run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from simulator.errors import InputError, one_line
from simulator.user_files import open_user_file, read_user_file
from validate.machine.measure.host import cpu_facts

_MOST_BYTES = 64_000_000  # of a record
SHARE = 0.25  # share of the cores that may be wanted by other processes, over the last minute, on an idle machine


def reported(device: str) -> dict[str, Any]:
    """Return what *device* ("": the first GPU, else the CPU) reports, in a record's form; {} without it."""
    import torch

    if device.startswith("cuda") or (not device and torch.cuda.device_count()):
        try:
            properties = torch.cuda.get_device_properties("cuda:0" if device in ("", "cuda") else device)
        except (RuntimeError, AssertionError, ValueError):
            return {}  # the run itself refuses the device, with the reason
        gpu = {"name": properties.name, "sm_count": properties.multi_processor_count}
        return {"device": properties.name, "gpu": gpu | {"memory_bytes": properties.total_memory}}
    return {"device": cpu_facts().get("model name") or "of this machine"} if device in ("", "cpu") else {}


def rows_machine_name(out: Path, asked: str, topology: str, before: str) -> str:
    """Return the machine name for rows in *out*: *asked*, else theirs, of the same topology; raises InputError."""
    name = asked or topology
    if not has_rows(out):
        return name
    shown, theirs = one_line(out, 100), ""
    if topology and before and topology != before:
        held = f"{shown} holds rows measured with the topology '{one_line(before, 60)}'"
        other = f"this one is '{one_line(topology, 60)}'; name another folder with --out"
        raise InputError(f"--topology: {held}, and {other}")
    if (out / "run.json").exists():
        with suppress(ValueError, RecursionError):  # the run itself validates the record and reports the fault
            found = json.loads(read_user_file(out / "run.json", _MOST_BYTES))
            theirs = str(found.get("machine") or "") if isinstance(found, dict) else ""
    if name and theirs and name != theirs:
        held, other = one_line(theirs, 60), f"and these would be of '{one_line(name, 60)}'; name another folder"
        raise InputError(f"--out: {shown} holds rows of the machine '{held}', {other}, or go on with --machine {held}")
    return name or theirs


def load_warning() -> str:
    """Return a one-line warning where other programs load this machine; empty where it is idle or the load unknown."""
    try:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
    except (AttributeError, OSError):
        return ""
    wanted = f"warning: in the last minute {load:.3g} processes wanted one of {cores} cores"
    return f"{wanted}; what is measured beside other work may repeat well and yet be wrong" if busy(load, cores) else ""


def has_rows(out: Path) -> bool:
    """Return whether any table in the folder *out* holds a row."""
    from validate.machine.measure.table import COLUMNS

    for name in COLUMNS:
        if (out / name).exists():
            with open_user_file(out / name) as file:
                if file.readline() and file.readline():
                    return True
    return False


def busy(load: float, cores: int) -> bool:
    """Return whether *load*, a load average over one minute, is above that of an idle machine with *cores* cores."""
    return load > SHARE * max(cores, 2)  # on one core, starting a program alone leaves a load of one half


def load_notes(record: Mapping[str, Any]) -> list[str]:
    """Return warnings about other work on the machine, from a run's *record*; empty where it was idle."""

    def inner(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        return found if isinstance(found := of.get(key), dict) else {}

    def count(of: Mapping[str, Any], key: str) -> int:
        return found if isinstance(found := of.get(key), int) and found > 0 else 0

    environment = inner(record, "environment")
    cpu, cores = inner(environment, "cpu"), count(inner(environment, "cpu"), "logical_cores")
    # The run's own load: one process per thread of torch on a CPU, one per GPU.
    on_gpu = isinstance(environment.get("gpu"), dict)
    own = count(inner(environment, "gpu"), "count") if on_gpu else count(cpu, "torch_threads")
    said = []
    for key, when, mine in (("load_at_start", "began", 0), ("load_at_end", "ended", max(1, own))):
        load = record.get(key)
        if cores and isinstance(load, int | float) and busy(load - mine, cores):
            wanted = f"{load:.3g} processes wanted one of {cores} cores" + (f", {mine} of them its own" if mine else "")
            said.append(f"something else ran when this {when}: {wanted}; such figures may repeat well and yet be wrong")
    return said
