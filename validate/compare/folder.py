"""A folder written by ``validate run``: its record, tables and load, and its drift against another run."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass, field, inner, own_data
from simulator.user_files import read_user_file
from validate.kinds.kind import ALL_COLUMNS
from validate.machine.measure.table import asked_note
from validate.tables.cells import MAX_BYTES, CsvRecord, figure, read_records
from validate.tables.statistics import percentile
from validate.tables.table import Table, tabulate

RECORD = "run.json"
TOPOLOGY = "topology.yaml"  # the measured machine

COLUMNS: Mapping[str, Any] = own_data("validate.compare", "columns.yaml")
VALUES: tuple[str, ...] = tuple(COLUMNS["values"])
"""Columns of measured values, in order of preference: times, then rates."""

_NOT_ASKED = frozenset(name.lower() for name in (*VALUES, *COLUMNS["results"], *ALL_COLUMNS))
_MOST = 1e18
_WORST_KNOWN = 0.25  # half-width of the 95 % interval, relative to the time, up to which a row is fitted to


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder's ``record`` (``run.json``, empty if missing), non-empty ``tables`` by file, and ``faults`` of files."""

    path: str
    record: Mapping[str, Any]
    tables: Mapping[str, Table]
    faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, Any]:
        """The machine's description of itself, as recorded in ``run.json``."""
        return inner(self.record, "environment")

    @property
    def device(self) -> str:
        """The name of the measured device in the tables."""
        return one_line(self.environment.get("device") or "", 100)

    @property
    def machine(self) -> str:
        """The name of the machine in the tables."""
        return one_line(self.record.get("machine") or self.device, 100)

    @property
    def left(self) -> list[Mapping[str, str]]:
        """The cases that could not be measured, each with its group and reason."""
        found = self.record.get("left")
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    def known_times(self, name: str) -> Iterator[tuple[Callable[[str], str], float]]:
        """Yield the cells and the seconds of each row of the table *name* that was measured well enough to fit to."""
        table = self.tables.get(name)
        if table is None:
            return
        for record in table.rows:
            cell = partial(table.cell, record)
            interval, time_s = figure(cell("interval") or "0"), figure(cell("time_s"))
            if interval is not None and interval <= _WORST_KNOWN and time_s is not None and time_s > 0.0:
                yield cell, time_s


def read_folder(path: str, option: str = "") -> Folder:
    """Read *path*, which *option* named; raises InputError if it is no folder, is empty, or its record invalid."""
    shown = one_line(path, 1000)
    prefix = f"{option} {shown}" if option else shown
    folder = Path(path)
    tables: dict[str, Table] = {}
    faults: dict[str, str] = {}
    try:
        if not folder.is_dir():
            beside = [p.name for p in folder.parent.iterdir() if p.is_dir()] if folder.parent.is_dir() else []
            hint = nearest(folder.name, beside)
            there = f"is not there{f'; {hint}' if hint.startswith('did') else ''}"
            what = "is a file" if folder.exists() else there
            raise InputError(f"{prefix}: {what}; a folder that validate run wrote is needed")
        files = sorted(p for p in folder.iterdir() if p.suffix == ".csv" and p.is_file())
        record = _record(folder / RECORD, shown)
        for file in files:
            name = f"{shown}/{file.name}"
            try:
                records = read_records(read_user_file(file, MAX_BYTES, name), name)
                table = tabulate(records, name, (), (), "measurements")
            except InputError as error:
                faults[file.name] = one_line(error, 200)
                continue
            if table.rows:
                tables[file.name] = table
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or one_line(error)
        raise InputError(f"{prefix}: cannot be read: {words}") from None
    if not tables:
        found = ", ".join(p.name for p in files) or "no table"
        reason = next(iter(faults.values()), "")
        raise InputError(f"{prefix}: holds no measurement; found {one_line(found)}{reason and f' ({reason})'}")
    return Folder(path, record, tables, faults)


def _record(path: Path, shown: str) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    what, found = "is not a record of a run: an object is needed", None
    try:
        found = _finite(json.loads(read_user_file(path, MAX_BYTES, f"{shown}/{RECORD}").decode("utf-8")))
    except RecursionError:
        what = "is not JSON: nested too deep"
    except ValueError as error:
        what = f"is not JSON: {one_line(error)}"
    if not isinstance(found, dict):
        raise InputError(Fault(what, f"{shown}/{RECORD}"))
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, int | float) and not abs(value) <= _MOST else value


def key_of(table: Table, record: CsvRecord) -> tuple[tuple[str, str], ...]:
    """Return the question that a row asks as sorted (column, text) pairs: all cells except results and provenance."""
    asked = {name: table.cell(record, name) for name in table.position if _is_asked(table, name)}
    if "note" in asked:
        asked["note"] = asked_note(asked["note"])
    return tuple(sorted((name, text) for name, text in asked.items() if text))


def _is_asked(table: Table, name: str) -> bool:
    """Return whether the column *name* is part of what a row asks; notes are, unless operators or models are named."""
    if name == "note":
        return "op" not in table.position and "model" not in table.position
    # for an operator it is a result how it was finally launched
    return "op" not in table.position if name == "issue" else name not in _NOT_ASKED


def row_name(table: Table, record: CsvRecord) -> str:
    """Return a short name of a row, without defaults and cells that all rows share."""
    cells = {name: table.cell(record, name) for name in table.position}
    if cells.get("network"):
        return own_words(cells)
    same, words = COLUMNS["same"], []
    for name, text in cells.items():
        usual = cells.get(same[name]) if name in same else COLUMNS["usual"].get(name)
        if name == "batch" and cells.get("m"):
            usual = "1"
        if not text or text == usual or name in COLUMNS["shared"] or not _is_asked(table, name):
            continue
        if name == "includes_dispatch":
            words.append("with the host's part")
            continue
        words.append(f"{name}={text}" if text.replace(".", "", 1).lstrip("-").isdecimal() else text)
    return one_line(" ".join(words), 160)


def own_words(cells: Mapping[str, str]) -> str:
    """Return a short name of a step measured with ``--workload``: its options, without defaults."""
    said = COLUMNS["own"].items()
    fitting = (words for words, when in said if all(re.fullmatch(p, cells.get(name, "")) for name, p in when.items()))
    known = defaultdict(str, cells)
    return one_line(", ".join(filter(None, (words.format_map(known) for words in fitting))), 160)


BOUND = 0.03
_RATES = ("GBps", "algbw_GBps", "busbw_GBps", "throughput")
_IGNORED = frozenset(("date",))


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A row in both folders; ``ratio`` is the second time over the first."""

    table: str
    name: str
    ratio: float


@dataclass(frozen=True, slots=True)
class DriftClass:
    """Drift of the matched rows of ``table``, or of all tables if it is empty.

    ``median`` and ``p90`` are of abs(ratio - 1), ``ratio`` is the median ratio, ``beyond`` counts rows that changed by
    more than :data:`BOUND`.
    """

    table: str
    matched: int
    median: float
    p90: float
    ratio: float
    beyond: int


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift from one folder to another."""

    path: str
    classes: tuple[DriftClass, ...]
    beyond: tuple[DriftRow, ...]
    only_first: int
    only_second: int
    environment: tuple[tuple[str, str, str], ...]


def compare_runs(first: Folder, second: Folder) -> Drift:
    """Return the drift of the rows of *second* against those of *first* that ask the same."""
    before, after = _values(first), _values(second)
    rows = []
    for key in sorted(set(before) & set(after)):
        (name, column, value), (_, other_column, other) = before[key], after[key]
        if column == other_column:
            rows.append(DriftRow(key[0], name, value / other if column in _RATES else other / value))
    classes = []
    for table in ("", *sorted({row.table for row in rows})) if rows else ():
        mine = [row for row in rows if table in ("", row.table)]
        ratios = sorted(row.ratio for row in mine)
        changes = sorted(abs(ratio - 1) for ratio in ratios)
        figures = percentile(changes, 0.5), percentile(changes, 0.9), percentile(ratios, 0.5)
        classes.append(DriftClass(table, len(mine), *figures, sum(change > BOUND for change in changes)))
    far = (row for row in rows if abs(row.ratio - 1) > BOUND)
    beyond = sorted(far, key=lambda row: (-abs(row.ratio - 1), row.table, row.name))
    only = len(set(before) - set(after)), len(set(after) - set(before))
    environment = tuple(differences(first.environment, second.environment))
    return Drift(second.path, tuple(classes), tuple(beyond), *only, environment)


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, str]]:
    """Return the facts in which two environments differ, each as its name and both values."""
    found = []
    for name in sorted(set(first) | set(second), key=str):
        one, two = first.get(name), second.get(name)
        if one == two or name in _IGNORED:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            found += differences(one, two, f"{prefix}{name}.")
        else:
            before, after = ("not said" if value is None else one_line(value, 100) for value in (one, two))
            found.append((one_line(f"{prefix}{name}", 60), before, after))
    return found


def _values(folder: Folder) -> dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, str, float]]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, str, float]] = {}
    for name, table in folder.tables.items():
        for record in table.rows:
            values = {column: figure(table.cell(record, column.lower())) or 0.0 for column in VALUES}
            measured = next(((column, value) for column, value in values.items() if value > 0.0), None)
            if measured is not None:
                found.setdefault((name, key_of(table, record)), (row_name(table, record), *measured))
    return found


SHARE = 0.25  # share of the cores that may be wanted by other processes, over the last minute, on an idle machine


def busy(load: float, cores: int) -> bool:
    """Return whether *load*, a load average over one minute, is above that of an idle machine with *cores* cores."""
    return load > SHARE * max(cores, 2)  # on one core, starting a program alone leaves a load of one half


def load_notes(record: Mapping[str, Any]) -> list[str]:
    """Return warnings about other work on the machine, from a run's *record*; empty where it was idle."""

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
