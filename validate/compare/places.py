"""The part and topology that the names in a folder of measurements refer to, and what its machine reports of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.api import load_machine
from simulator.errors import InputError, one_line
from simulator.records import dataclass
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import CpuPart, GpuPart
from validate.compare.folder import TOPOLOGY, Folder
from validate.machine.describe.driver import BRANDS, Card, driver_part
from validate.machine.describe.dumps.like import gpus_of, machines_of
from validate.machine.measure.host import slug
from validate.tables.names import MAKERS, DeviceNames, builtin_names

SEVERAL = "several devices"


@dataclass(frozen=True, slots=True)
class ScoringPlaces:
    """The topology and devices to score with.

    ``topology`` is the file or built-in name for all rows, None if each row's name decides; ``devices`` are
    ``NAME=PART``, as for ``--device``.  ``part`` is the measured device's part, empty if unknown; ``how`` says how it
    was found.  ``is_assumed``: the topology is of the device's name alone.
    """

    topology: str | None
    devices: tuple[str, ...]
    part: str
    how: str
    is_assumed: bool = False


def find_places(folder: Folder, topology: str | None, devices: Sequence[str]) -> ScoringPlaces:
    """Return the part and topology of *folder*: the user's, else from the folder's topology, names and record.

    Raises InputError if the topology cannot be read, a part is unknown, or the record contradicts them.
    """
    own = str(Path(folder.path) / TOPOLOGY)
    chosen = topology or (own if Path(own).is_file() else None)
    facts = folder.environment
    if chosen is not None:
        check_contradiction("--topology" if topology else "its topology", chosen, facts)
    rows = [(table, row) for table in folder.tables.values() for row in table.rows]
    names = sorted({folder.device, *(table.cell(row, "device") for table, row in rows)} - {""})
    book = DeviceNames(devices, topology=chosen)
    known = [name for name in names if book.part(name)]
    part, how = "", ""
    mine = [name for name in known if name == folder.device] or known
    if len({book.part(name) for name in mine}) > 1:  # several devices: each row is predicted by its own name
        how = SEVERAL
    elif mine:
        part = book.part(mine[0]) or ""
        how = "--device" if devices else "its name"
    elif chosen is not None:  # the part that computes: the first GPU's, else the first CPU's
        machine, how = load_machine(chosen), "the topology"
        cpus = [node.part_name for node in machine.nodes if isinstance(node.part, CpuPart) and node.part_name]
        part = machine.nodes[machine.gpus[0]].part_name if machine.gpus else next(iter(cpus), "")
    else:
        part = next(filter(None, (part_by_facts(name, facts) for name in names)), "")
        how = "what it reports" if part else ""
    if part and devices and mine[:1] == [folder.device]:
        found: object = load_part(part)
        if chosen is not None:
            found = next((node.part for node in load_machine(chosen).nodes if node.part_name == part), found)
        said = unlike_part({part: found}, facts)
        if said:
            raise InputError(f"--device: {said if part in said else f'{part} {said}'}")
    known = known if book.are_needed else names
    alone = folder.device or (names[0] if len(names) == 1 else "")
    given = [*devices, *(f"{name}={part}" for name in names if part and name not in known and name == alone)]
    machines = {table.cell(row, "machine") for table, row in rows} - {""} or {folder.machine}
    is_assumed = chosen is None and bool(part) and len(machines) == 1 and machines.isdisjoint(builtin_names())
    if is_assumed:
        count = _gpu(facts).get("count")
        chosen = topology_with(part, count if isinstance(count, int) and count > 0 else 1)
    return ScoringPlaces(chosen, tuple(given), part, how, is_assumed and chosen is not None)


def another_host(topology: str, environment: Mapping[str, Any]) -> str:
    """Return how the host of *topology* differs from the one that *environment* records; empty if nothing shows it."""
    cpu = environment.get("cpu")
    measured = cpu.get("logical_cores") if isinstance(cpu, Mapping) else None
    machine = load_machine(topology)
    parts = [node.part for node in machine.nodes_of(0) if isinstance(node.part, CpuPart)]
    assumed = sum(part.thread_count or part.core_count or 0 for part in parts)
    if not isinstance(measured, int) or not assumed or measured == assumed:
        return ""
    return (
        f"{machine.name} is assumed from the device's name; its host has {assumed} logical cores, this one {measured}: "
        "validate describe, run there, drafts a topology for --topology"
    )


def check_contradiction(option: str, topology: str, environment: Mapping[str, Any]) -> None:
    """Raise InputError if *topology*, named by *option*, contradicts what the measured machine reports."""
    machine = load_machine(topology)
    said = unlike_part({machine.nodes[gpu].part_name: machine.nodes[gpu].part for gpu in machine.gpus}, environment)
    if said:
        raise InputError(f"{option} {one_line(topology, 100)}: {said}")


def topology_with(part: str, count: int) -> str | None:
    """Return the built-in topology with *count* GPUs of *part*, else the next larger, else the largest, or None."""
    counts = [(machine.n_nodes * len(gpus_of(machine)), machine.name) for machine in machines_of(part)]
    return min(((n < count, abs(n - count), name) for n, name in counts), default=(False, 0, None))[2]


_MEMORY_TOLERANCE = 0.12  # covers memory reserved by the driver, and GB against GiB


def part_by_facts(name: str, environment: Mapping[str, Any]) -> str:
    """Return the GPU part that the device *name* must be; empty if no part or more than one fits.

    A part fits if its model is a word of the name, and its number of streaming multiprocessors and memory size are
    those that the device reports: an H100 with 132 multiprocessors is the SXM5, one with 114 the PCIe card.
    """
    plain = slug(name)
    for brand in BRANDS:
        plain = plain.removeprefix(brand)
    known = driver_part(Card(plain))
    if known is not None:
        return known
    words, facts = set(plain.split("-")), _gpu(environment)
    count, memory = facts.get("sm_count"), facts.get("memory_bytes")
    fitting = []
    for candidate in part_names("gpu"):
        part = load_part(candidate)
        if not isinstance(part, GpuPart) or _model(candidate) not in words or _other_count(part, count):
            continue
        if isinstance(memory, int) and part.memory_size and abs(part.memory_size / memory - 1) > _MEMORY_TOLERANCE:
            continue
        fitting.append(candidate)
    return fitting[0] if len(fitting) == 1 and facts else ""


def _other_count(part: GpuPart, count: object) -> bool:
    """Return whether *part* has another number of multiprocessors than *count*, if that is known."""
    return isinstance(count, int) and part.sm_count is not None and part.sm_count != count


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
    reasons = [_unlike(name, part, measured, environment) for name, part in gpus.items()]
    none = f"has no GPU, and the GPU {measured} is what is measured"
    return "" if "" in reasons else next(iter(reasons), none)


def _unlike(name: str, part: GpuPart, measured: str, environment: Mapping[str, Any]) -> str:
    """Return why the GPU *part* cannot be the device called *measured*; empty if it can be."""
    count = _gpu(environment).get("sm_count")
    if _other_count(part, count):
        return f"{name} has {part.sm_count} multiprocessors, and the {measured} that is measured has {count}"
    builtin = part_names("gpu")
    if name not in builtin:
        return ""  # the user's own part may have any name
    must_be = part_by_facts(measured, environment)
    models = {_model(known) for known in builtin} & set(slug(measured).split("-"))
    if (must_be and must_be != name) or (not must_be and models and _model(name) not in models):
        return f"{name} is another GPU than the {measured} that is measured{f', {must_be}' if must_be else ''}"
    return ""


def _gpu(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = environment.get("gpu")
    return facts if isinstance(facts, dict) else {}


def _model(part: str) -> str:
    return part.split("-", maxsplit=1)[0]
