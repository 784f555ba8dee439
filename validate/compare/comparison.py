"""The comparison of a folder with its predictions, from which texts, documents and reports are made."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.api import load_machine
from simulator.api.calibrations import read_calibration
from simulator.errors import InputError, one_line
from simulator.records import dataclass, field, inner, replace
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import CpuPart, GpuPart
from validate.compare import calibrating
from validate.compare import classes as by_class
from validate.compare.folder import TOPOLOGY, Drift, Folder, compare_runs, key_of, load_notes, row_name
from validate.constants.calibrate import FittedCalibration
from validate.kinds.kind import Kind, MeasuredRow, MemoryFigure, Rows
from validate.machine.describe.driver import Card, driver_part
from validate.machine.describe.similar import gpus_of, machines_of
from validate.machine.measure.duration import duration_s
from validate.machine.measure.host import slug
from validate.score.scoring import CALIBRATED_ON, Scoring, ScoringOptions
from validate.tables.cells import figure
from validate.tables.names import MAKERS, DeviceNames, builtin_names
from validate.tables.table import Table, filled_columns

MEASURED_ONLY = "measured only: no scorer predicts this table"


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """The options of a comparison as the user wrote them; ``trust`` holds the grades that count."""

    topology: str | None = None
    devices: tuple[str, ...] = ()
    calibration: str | None = None
    calibrate: str | None = None
    trust: tuple[str, ...] = ("A", "B")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A folder compared with its predictions; ``worst`` are the rows with the largest errors, and likely causes."""

    folder: Folder
    places: "ScoringPlaces"
    method: str
    trust: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]
    classes: tuple[by_class.ClassErrors, ...]
    outliers: tuple[MeasuredRow, ...]
    worst: tuple[tuple[MeasuredRow, list[by_class.ErrorCause]], ...]
    judged: tuple[calibrating.CalibrationErrors, ...] = ()
    judged_notes: tuple[str, ...] = ()
    drift: Drift | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def held(self) -> list[tuple[MeasuredRow, MemoryFigure]]:
        """The figures of memory that were both measured and predicted, each with its row."""
        return [(row, each) for row in self.rows for each in row.memory if each.error is not None]

    @property
    def own(self) -> tuple[MeasuredRow, ...]:
        """The steps measured by ``validate run --workload``."""
        return tuple(row for row in self.rows if row.labels.get("network"))

    @property
    def own_code(self) -> tuple[tuple[MeasuredRow, float], ...]:
        """Steps run with a module's own code, each with its time relative to the module rebuilt from its operators."""
        asked = {id(row): tuple(pair for pair in row.key if pair[0] != "modules") for row in self.own}
        built = {asked[id(row)]: row.measured_s for row in self.own if row.labels.get("modules") != "own"}
        pairs = [(row, built.get(asked[id(row)])) for row in self.own if row.labels.get("modules") == "own"]
        return tuple((row, row.measured_s / other_s) for row, other_s in pairs if row.measured_s and other_s)


def table_kind(table: Table, kinds: Sequence[Kind]) -> Kind | None:
    """Return the kind whose needed columns *table* has, of several the one that needs most; None if there is none."""
    fitting = [kind for kind in kinds if all(column in table.position for column in kind.needed)]
    return max(fitting, key=lambda kind: len(kind.needed), default=None)


def compare_folder(folder: Folder, scoring: Scoring, trust: Collection[str] = ("A", "B")) -> list[MeasuredRow]:
    """Return every row of *folder* with its prediction and its name, in the order of tables and lines."""
    rows: list[MeasuredRow] = []
    for name, table in folder.tables.items():
        kind = table_kind(table, scoring.kinds)
        if kind is not None:
            known = replace(table, kind=kind.name, conventions=filled_columns(kind.name))
            mine = list(scoring.score(known, kind, tuple(trust)))
        else:
            columns = table.position
            every = (({name: text for name in columns if (text := table.written(r, name))}, r) for r in table.rows)
            mine = [
                MeasuredRow(None, math.nan, cells, record=record, labels=cells, skipped=MEASURED_ONLY)
                for cells, record in every
            ]
        for row in mine:
            row.table, row.name, row.key = name, row_name(table, row.record), key_of(table, row.record)
            interval = figure(table.cell(row.record, "interval"))
            row.interval = interval if interval is not None and interval >= 0 else None
            row.skipped = one_line(row.skipped, 200)
        rows += mine
    return rows


def scoring_at(places: "ScoringPlaces", calibration: str | None = None) -> Scoring:
    """Return what scores rows measured at *places*, with the file *calibration*."""
    return Scoring(ScoringOptions(topology=places.topology, devices=places.devices, calibration=calibration))


def compared(
    folder: Folder, asked: ComparisonOptions, again: Folder | None = None, short: Folder | None = None
) -> Comparison:
    """Compare *folder* with predictions, with *again* of the same machine, and on *short*'s calibration."""
    places = find_places(folder, asked.topology, asked.devices)
    scoring = scoring_at(places, asked.calibration)
    rows = compare_folder(folder, scoring, asked.trust)
    method = "data sheet and shared constants"
    if asked.calibration is not None:
        read = read_calibration(asked.calibration).devices
        seen = frozenset(key for device in read.values() for key in device.points.asked)
        # The scorer leaves out operators that a calibration was fitted to, not steps.
        fitted = [row.counts and row.kind == "training" and row.digest in seen for row in rows]
        rows = [replace(row, skipped=CALIBRATED_ON) if used else row for row, used in zip(rows, fitted, strict=True)]
        method = f"calibration of {', '.join(sorted(scoring.names.session.calibrations))}"
    judged: list[calibrating.CalibrationErrors] = []
    judged_notes: list[str] = []
    if short is not None:
        bench = calibrating.FolderDevice(places.part, scoring.names)
        judged, judged_notes = _by_another(bench, folder, short, rows, asked)
    elif asked.calibrate is not None:
        bench = calibrating.FolderDevice(places.part, scoring.names)
        count = sum(row.counts and row.kind == "operators" for row in rows)
        judged = calibrating.judge_within(bench, folder, rows, _share_of(asked.calibrate, folder, count))
        if not judged:
            judged_notes.append(f"too few operators ({count}) to calibrate on some and judge on the others")
    worst = tuple(
        (row, by_class.explain(row, by_class.account_of(row, scoring.names.session)))
        for row in by_class.worst_rows(rows)
    )
    found = tuple(rows), tuple(by_class.classes_of(rows)), tuple(by_class.find_outliers(rows)), worst
    drift = compare_runs(folder, again) if again is not None else None
    said = tuple(judged), tuple(judged_notes), drift, tuple(_notes(folder, places))
    return Comparison(folder, places, method, asked.trust, *found, *said)


def _by_another(
    device: calibrating.FolderDevice, folder: Folder, short: Folder, rows: Rows, asked: ComparisonOptions
) -> tuple[list[calibrating.CalibrationErrors], list[str]]:
    fitted, fitted_rows = fit_folder(device, short, asked)
    notes = []
    seconds = short.record.get("seconds")
    if isinstance(seconds, int | float):
        notes.append(f"{one_line(short.path, 60)} was measured in {seconds:.0f} s")
    if short.device != folder.device:
        notes.append(f"the two are of different devices: {short.device or 'not said'}, {folder.device or 'not said'}")
    asked_too = set(map(calibrating.question, fitted_rows))
    left = sum(row.counts and calibrating.question(row) in asked_too for row in rows)
    notes.append(f"{left} rows ask what it asked too and are not judged")
    return calibrating.judge_by(device, fitted, fitted_rows, rows), notes


def fit_folder(
    bench: calibrating.FolderDevice, folder: Folder, asked: ComparisonOptions
) -> tuple[FittedCalibration, list[MeasuredRow]]:
    """Return a fit to all rows of *folder*, and these rows; raises as :func:`find_places` and :meth:`Bench.fit` do."""
    rows = compare_folder(folder, scoring_at(find_places(folder, asked.topology, asked.devices)), asked.trust)
    operators, steps = ([row for row in rows if row.kind == kind] for kind in ("operators", "training"))
    return bench.fit(operators, folder, steps), rows


def _share_of(text: str, folder: Folder, count: int) -> float:
    """Return the share of *count* operators, at most 0.5, that *text* asks for: ``50``, or ``120s`` of measuring."""
    plain = text.strip()
    if re.fullmatch(r"0*[1-9][0-9]{0,5}", plain, re.ASCII):
        return min(0.5, int(plain) / count) if count else 0.5
    try:
        wanted_s = duration_s(plain)
    except ValueError:
        shown = one_line(text, 60)
        raise InputError(f"--calibrate: a number of rows such as 50, or a time such as 120s; got '{shown}'") from None
    took_s = folder.record.get("seconds")
    if not isinstance(took_s, int | float) or took_s <= 0:
        raise InputError("--calibrate: run.json does not say how long this took; name a number of rows such as 50")
    return min(0.5, wanted_s / took_s)


def _notes(folder: Folder, places: "ScoringPlaces") -> Sequence[str]:
    record = folder.record
    said = [] if record else ["no run.json: where and how this was measured is not known"]
    if record.get("finished") is False:
        said.append(f"the run did not finish: {record.get('end') or 'no reason is on record'}")
    said += load_notes(record)
    if not places.part and places.topology is None and places.how != SEVERAL:
        said.append("the device is none that is built in; --topology FILE or --device NAME=PART says what it is")
    if places.is_assumed and places.topology and (note := another_host(places.topology, folder.environment)):
        said.append(note)
    said += [f"{name}: not read: {reason}" for name, reason in folder.faults.items()]
    return said


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
    """Return the part and topology of *folder*: the user's, else from its topology, names and record, if they agree."""
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
        count = inner(facts, "gpu").get("count")
        chosen = topology_with(part, count if isinstance(count, int) and count > 0 else 1)
    return ScoringPlaces(chosen, tuple(given), part, how, is_assumed and chosen is not None)


def another_host(topology: str, environment: Mapping[str, Any]) -> str:
    """Return how the host of *topology* differs from the one that *environment* records; empty if nothing shows it."""
    measured = inner(environment, "cpu").get("logical_cores")
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
    """Return the GPU part that the device *name* must be, by its model, multiprocessors and memory; empty if unclear.

    An H100 with 132 multiprocessors is the SXM5, one with 114 the PCIe card.
    """
    facts, fitting = inner(environment, "gpu"), []
    count, memory = facts.get("sm_count"), facts.get("memory_bytes")
    known = driver_part(Card(name)) or ""
    if isinstance(part := load_part(known), GpuPart):
        return "" if _other_count(part, count) else known
    for candidate in part_names("gpu") if facts else ():
        part = load_part(candidate)
        if isinstance(part, GpuPart) and _model(candidate) in slug(name).split("-") and not _other_count(part, count):
            off = part.memory_size / memory - 1 if isinstance(memory, int) and part.memory_size else 0.0
            fitting += [candidate] if abs(off) <= _MEMORY_TOLERANCE else []
    return fitting[0] if len(fitting) == 1 else ""


def _other_count(part: GpuPart, count: object) -> bool:
    return isinstance(count, int) and part.sm_count is not None and part.sm_count != count


def unlike_part(parts: Mapping[str, object], environment: Mapping[str, Any]) -> str:
    """Return why none of *parts* (by name) can be the device of *environment*; empty if one can or nothing is said.

    A measured CPU contradicts GPU parts with figures (one without stands for a process that exchanges, as in linux-
    host); a measured GPU machines without GPUs; GPUs differ by multiprocessors or the model in their names.
    """
    if not environment.get("device"):
        return ""
    gpus = {name: part for name, part in parts.items() if isinstance(part, GpuPart) and part.vendor in MAKERS}
    facts = inner(environment, "gpu")
    measured = one_line(facts.get("name") or environment["device"], 80)
    if not facts:
        models = [name for name, part in gpus.items() if part.peak or part.memory_bandwidth or part.sm_count]
        return f"{', '.join(models)} is a GPU, and the CPU {measured} is what is measured" if models else ""
    reasons = [_unlike(name, part, measured, environment) for name, part in gpus.items()]
    return "" if "" in reasons else next(iter(reasons), f"has no GPU, and the GPU {measured} is what is measured")


def _unlike(name: str, part: GpuPart, measured: str, environment: Mapping[str, Any]) -> str:
    count = inner(environment, "gpu").get("sm_count")
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


def _model(part: str) -> str:
    return part.split("-", maxsplit=1)[0]
