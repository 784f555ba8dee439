"""Which part, and which topology, the names in a folder of measurements stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from simulator.api import load_machine
from simulator.errors import InputError
from simulator.topology.catalogue import builtin_topologies, load_part, part_names
from simulator.topology.parts import CpuPart, GpuPart
from simulator.topology.yaml_source import read_yaml
from validate.compare.folder import Folder
from validate.operators.devices import DeviceBook, gpu_names
from validate.run.command import TOPOLOGY

__all__ = ["SEVERAL", "Places", "find_places", "part_by_facts"]

_MAKERS = ("nvidia-", "amd-", "tesla-", "quadro-", "geforce-", "instinct-")
_MEMORY_TOLERANCE = 0.12  # what a driver keeps for itself, and GB against GiB


SEVERAL = "several devices"


@dataclass(frozen=True, slots=True)
class Places:
    """What the scorers are told.

    ``topology`` is the file or built-in name for all rows, None where names decide; ``devices`` are
    ``NAME=PART``, as ``--device`` takes them.  ``part`` is the device's, empty where it is not known, and
    ``how`` says how it was found.
    """

    topology: str | None
    devices: tuple[str, ...]
    part: str
    how: str


def find_places(folder: Folder, topology: str | None, devices: Sequence[str]) -> Places:
    """Return the part and topology of *folder*: what the user says, else what the folder, names and record say.

    Raises
    ------
    InputError
        Where the topology cannot be read, or a part is not known.

    """
    own = str(Path(folder.path) / TOPOLOGY)
    chosen = topology or (own if Path(own).is_file() else None)
    names = _device_names(folder)
    book = DeviceBook(devices, topology=chosen)
    known = [name for name in names if book.part(name)]
    given = list(devices)
    part, how = "", ""
    mine = [name for name in known if name == folder.device] or known
    if len({book.part(name) for name in mine}) > 1:  # tables of several devices: each row by its own name
        how = SEVERAL
    elif mine:
        part = book.part(mine[0]) or ""
        how = "--device" if devices else "its name"
    elif chosen is not None:
        part, how = _part_of_topology(chosen), "the topology"
    else:
        found = {name: part_by_facts(name, folder.environment) for name in names}
        part = next((found[name] for name in names if found[name]), "")
        how = "what it reports" if part else ""
    if not book.needs_names:
        known = names
    alone = folder.device or (names[0] if len(names) == 1 else "")
    given += [f"{name}={part}" for name in names if part and name not in known and name == alone]
    machines = _named(folder, "machine") or {folder.machine}
    if chosen is None and part and len(machines) == 1 and not machines & _machines():
        chosen = topology_with(part, _gpu_count(folder.environment))
    return Places(chosen, tuple(given), part, how)


def _device_names(folder: Folder) -> list[str]:
    return sorted((_named(folder, "device") | {folder.device}) - {""})


def _named(folder: Folder, column: str) -> set[str]:
    return {table.cell(row, column) for table in folder.tables.values() for row in table.rows} - {""}


def part_by_facts(name: str, environment: Mapping[str, Any]) -> str:
    """Return the GPU part that the device *name* must be; empty where none, or more than one, fits.

    A part fits whose model is a word of the name, and whose multiprocessors and memory are those that
    the device reports: an H100 of 132 multiprocessors is the SXM5, one of 114 the PCIe card.
    """
    plain = _slug(name)
    for maker in _MAKERS:
        plain = plain.removeprefix(maker)
    by_slug = {_slug(known): part for known, part in gpu_names().items()}
    if plain in by_slug:
        return by_slug[plain]
    words = set(plain.split("-"))
    facts = environment.get("gpu")
    facts = facts if isinstance(facts, dict) else {}
    count, memory = facts.get("sm_count"), facts.get("memory_bytes")
    fitting = []
    for candidate in part_names("gpu"):
        part = load_part(candidate)
        if not isinstance(part, GpuPart) or candidate.split("-")[0] not in words:
            continue
        if isinstance(count, int) and part.sm_count is not None and part.sm_count != count:
            continue
        if isinstance(memory, int) and part.memory_size and abs(part.memory_size / memory - 1) > _MEMORY_TOLERANCE:
            continue
        fitting.append(candidate)
    return fitting[0] if len(fitting) == 1 and facts else ""


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9.]+", name.lower()))


def _gpu_count(environment: Mapping[str, Any]) -> int:
    facts = environment.get("gpu")
    count = facts.get("count") if isinstance(facts, dict) else None
    return count if isinstance(count, int) and count > 0 else 1


def _part_of_topology(topology: str) -> str:
    """Return the part that computes: of the first GPU, or of the sockets where there is none."""
    machine = load_machine(topology)
    if machine.gpus:
        return machine.nodes[machine.gpus[0]].part_name
    cpus = [node.part_name for node in machine.nodes if isinstance(node.part, CpuPart) and node.part_name]
    return cpus[0] if cpus else ""


@lru_cache(maxsize=256)
def topology_with(part: str, count: int) -> str | None:
    """Return the built-in topology whose GPUs are of *part*: of as many as *count*, else the nearest number above."""
    found = []
    for name, path in sorted(builtin_topologies().items()):
        if part not in path.read_text(encoding="utf-8"):
            continue
        try:
            machine = load_machine(name)
        except InputError:
            continue
        if machine.gpus and machine.nodes[machine.gpus[0]].part_name == part:
            n = len(machine.gpus)
            found.append((n < count, abs(n - count), name))
    return min(found)[2] if found else None


@lru_cache(maxsize=1)
def _machines() -> frozenset[str]:
    """Return the names and aliases of built-in topologies."""
    names = set(builtin_topologies())
    for path in builtin_topologies().values():
        data = read_yaml(path, path.name).data
        aliases = data.get("aliases") if isinstance(data, dict) else None
        names |= {str(alias) for alias in aliases if isinstance(aliases, list)} if aliases else set()
    return frozenset(names)
