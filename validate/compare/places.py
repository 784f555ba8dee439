"""The part and topology that the names in a folder of measurements refer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from simulator.api import load_machine
from simulator.errors import InputError, one_line
from simulator.records import dataclass
from simulator.topology.catalogue import builtin_topologies, load_part
from simulator.topology.parts import CpuPart
from validate.compare.folder import TOPOLOGY, Folder
from validate.compare.reported import part_by_facts, unlike_part
from validate.tables.names import DeviceNames, builtin_names

SEVERAL = "several devices"


@dataclass(frozen=True, slots=True)
class ScoringPlaces:
    """The topology and devices to score with.

    ``topology`` is the file or built-in name for all rows, None if each row's name decides; ``devices`` are
    ``NAME=PART``, as for ``--device``.  ``part`` is the measured device's part, empty if unknown; ``how`` says how it
    was found.
    """

    topology: str | None
    devices: tuple[str, ...]
    part: str
    how: str


def find_places(folder: Folder, topology: str | None, devices: Sequence[str]) -> ScoringPlaces:
    """Return the part and topology of *folder*: the user's, else from the folder's topology, names and record.

    Raises InputError if the topology cannot be read, a part is unknown, or the record contradicts them.
    """
    own = str(Path(folder.path) / TOPOLOGY)
    chosen = topology or (own if Path(own).is_file() else None)
    if chosen is not None:
        check_contradiction("--topology" if topology else "its topology", chosen, folder.environment)
    names = _device_names(folder)
    book = DeviceNames(devices, topology=chosen)
    known = [name for name in names if book.part(name)]
    given = list(devices)
    part, how = "", ""
    mine = [name for name in known if name == folder.device] or known
    if len({book.part(name) for name in mine}) > 1:  # several devices: each row is predicted by its own name
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
    if part and devices and mine[:1] == [folder.device]:
        _check_part("--device", part, chosen, folder.environment)
    if not book.are_needed:
        known = names
    alone = folder.device or (names[0] if len(names) == 1 else "")
    given += [f"{name}={part}" for name in names if part and name not in known and name == alone]
    machines = _named(folder, "machine") or {folder.machine}
    if chosen is None and part and len(machines) == 1 and machines.isdisjoint(builtin_names()):
        chosen = topology_with(part, _gpu_count(folder.environment))
    return ScoringPlaces(chosen, tuple(given), part, how)


def check_contradiction(option: str, topology: str, environment: Mapping[str, Any]) -> None:
    """Raise InputError if *topology*, named by *option*, contradicts what the measured machine reports."""
    machine = load_machine(topology)
    said = unlike_part({machine.nodes[gpu].part_name: machine.nodes[gpu].part for gpu in machine.gpus}, environment)
    if said:
        raise InputError(f"{option} {one_line(topology, 100)}: {said}")


def _check_part(option: str, part: str, topology: str | None, environment: Mapping[str, Any]) -> None:
    found: object = load_part(part)
    if topology is not None:
        found = next((node.part for node in load_machine(topology).nodes if node.part_name == part), found)
    said = unlike_part({part: found}, environment)
    if said:
        raise InputError(f"{option}: {said if part in said else f'{part} {said}'}")


def _device_names(folder: Folder) -> list[str]:
    return sorted((_named(folder, "device") | {folder.device}) - {""})


def _named(folder: Folder, column: str) -> set[str]:
    return {table.cell(row, column) for table in folder.tables.values() for row in table.rows} - {""}


def _gpu_count(environment: Mapping[str, Any]) -> int:
    facts = environment.get("gpu")
    count = facts.get("count") if isinstance(facts, dict) else None
    return count if isinstance(count, int) and count > 0 else 1


def _part_of_topology(topology: str) -> str:
    """Return the part that computes: the first GPU's, else the first CPU's; empty if there is neither."""
    machine = load_machine(topology)
    if machine.gpus:
        return machine.nodes[machine.gpus[0]].part_name
    cpus = [node.part_name for node in machine.nodes if isinstance(node.part, CpuPart) and node.part_name]
    return cpus[0] if cpus else ""


@lru_cache(maxsize=256)
def topology_with(part: str, count: int) -> str | None:
    """Return the built-in topology with *count* GPUs of *part*, else the one with the next larger number of them.

    If none has as many, return the one with the most; None if no topology has such GPUs.
    """
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
