"""NVIDIA's package aiconfigurator as rows of our tables: matrix products, causal attention, collectives.

Its wheel holds CSV files ``aiconfigurator/systems/data/<device>/<framework>/<version>/<what>_perf.txt``, in ms, whose
columns differ between versions; for collectives the framework is ``nccl``.  How its collectors measure, and what is
left out: docs/published.md and the README of validate/measurements/published-nvidia.
"""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass, lists_by_key, own_data
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from simulator.user_files import open_user_file, read_user_file
from validate.tables.cells import MAX_BYTES, csv_bytes, figure
from validate.tables.statistics import is_sampled
from validate.tables.table import read_table

_FACTS: Mapping[str, Any] = own_data("validate.importing", "formats.yaml")
_READ: Mapping[str, Any] = _FACTS["collectors"]
OPERATORS: Sequence[str] = _FACTS["operators"]
COLLECTIVES: Sequence[str] = _FACTS["collectives"]
Row = Mapping[str, object]
Shape = tuple[int, ...]
Times = dict[Shape, list[float]]  # seconds, one for each measurement of a shape
Graded = tuple[float, str, str]  # median time in seconds, trust grade, note
LeftOut = Counter[str]  # skipped rows by reason

_DATASET = "aiconfigurator"
_APART = 1.5  # a larger ratio means that frameworks did not run the same work
_FLOOR_S = 2e-6  # shorter times are mostly the gap between kernels
_OPERATORS = 6  # operators per graph
_OWN_INPUTS = frozenset(("sglang",))  # frameworks whose operators have separate inputs; in others they share one
_BYTES = 2  # bytes per element
_SINKS = 64  # TensorRT-LLM's collector gives heads of this size a sink each


def csv_of(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    """Return *rows* as CSV, without columns that are empty in all rows."""
    listed = list(rows)
    used = [column for column in columns if any(row.get(column, "") != "" for row in listed)]
    return csv_bytes([used, *([row.get(column, "") for column in used] for row in listed)])


def sorted_out(found: Iterable[Row | str]) -> tuple[list[Row], LeftOut]:
    """Return the rows among *found*, and how often each reason stands in the place of one."""
    listed = list(found)
    left_out = Counter(each for each in listed if isinstance(each, str))
    return [each for each in listed if not isinstance(each, str)], left_out


def latency_s(text: str) -> float | None:
    """Return the time *text*, given in milliseconds, in seconds; None if it is not a positive number."""
    value = figure(text)
    return value * 1e-3 if value is not None and value > 0 else None


def _row(found: Graded, **cells: object) -> Row:
    """Return a row with *cells*; its time has five significant digits, more than the measurement's precision."""
    time_s, trust, note = found
    notes = "; ".join(text for text in (*str(cells.pop("note", "")).split("; "), note) if text)
    return {**cells, "time_s": f"{time_s:.5g}", "trust": trust, "note": notes, "dataset": _DATASET}


def _graded(times: Mapping[str, Times]) -> dict[str, dict[Shape, Graded]]:
    """Return times by framework and shape: A where frameworks agree, B where they differ by over 1.5, C below 2 us."""
    medians = {framework: {shape: median(found) for shape, found in of.items()} for framework, of in times.items()}
    by_shape = lists_by_key(pair for of in medians.values() for pair in of.items())

    def graded(shape: Shape, time_s: float) -> Graded:
        apart = max(by_shape[shape]) / min(by_shape[shape])
        note = f"frameworks differ x{apart:.2g}" if max(by_shape[shape]) > _APART * min(by_shape[shape]) else ""
        return time_s, "C" if time_s < _FLOOR_S else "B" if note else "A", note

    return {framework: {shape: graded(shape, of[shape]) for shape in sorted(of)} for framework, of in medians.items()}


def _newest(source: "Source", what: str, device: str, word: str, left_out: LeftOut) -> "list[SourceTable]":
    tables = source.newest(what, device)
    for table in source.tables(what):
        if table.device == device and table not in tables:
            left_out[f"{word} in a version besides the newest"] += source.count(table)
    return tables


Imported = tuple[list[Row], Sequence["SourceTable"]]  # rows, and the tables that they are from
Products = Mapping["SourceTable", tuple[Times, str, LeftOut]]
"""By table the seconds of shapes (m, n, k), their precision, and skipped rows."""


def read_products(source: "Source") -> Products:
    """Return products of all devices, of whose shapes those of most tables count; raises InputError."""
    found: dict[SourceTable, tuple[Times, str, LeftOut]] = {}
    for table in source.tables("gemm"):
        times, left_out, own = Times(), LeftOut(), "bf16"
        for cell, number in source.rows(table, _READ["columns"]["gemm"]):
            precision = _READ["precisions"].get(cell("gemm_dtype"))
            time_s = latency_s(cell("latency"))
            if precision is None:
                left_out[f"product in {cell('gemm_dtype')}: quantises its input too"] += 1
            elif time_s is None:
                left_out["product without a time"] += 1
            else:
                own = precision if table.framework == "sglang" else own
                times.setdefault((number("m"), number("n"), number("k")), []).append(time_s)
        found[table] = times, own, left_out
    return found


def product_rows(products: Products, device: str, share: int, left_out: LeftOut) -> Imported:
    """Return the rows of *device* and their tables, of each framework the newest with the grid, else the newest."""
    counted = Counter(frozenset(times) for times, _, _ in products.values())
    grid = max(counted, key=lambda shapes: (counted[shapes], len(shapes)), default=frozenset())
    mine = lists_by_key((table.framework, table) for table in products if table.device == device)
    tables = [next((t for t in of if grid <= products[t][0].keys()), of[0]) for of in mine.values()]
    kept: dict[str, Times] = {}
    for table, (times, _, skipped) in products.items():
        if table in tables:
            left_out.update(skipped)
            kept[table.framework] = {shape: found for shape, found in times.items() if shape in grid}
            left_out["product of a shape that few tables have"] += len(times) - len(kept[table.framework])
        elif table.device == device:
            left_out["product in a version besides the newest with the common shapes"] += sum(map(len, times.values()))
    rows, graded = [], _graded(kept)
    for table in tables:
        part = load_part(table.device)
        l2_bytes = (part.l2_size or 0.0) if isinstance(part, GpuPart) else 0.0
        same = {"device": table.device, "op": "linear", "variant": "lm_head", "dtype": products[table][1]}
        same |= {"issue": "graph", "software": f"{table.framework} {table.version}"}
        for shape, found in graded[table.framework].items():
            if is_sampled(shape, share):
                cache = "cold" if is_cold(shape, table.framework, l2_bytes) else "warm"
                rows.append(_row(found, **same, **dict(zip("mnk", shape, strict=True)), cache=cache))
    return rows, tables


def is_cold(shape: Shape, framework: str, l2_bytes: float) -> bool:
    """Return whether a replay touches more than *l2_bytes*, so that the next starts cold: always if 0 (unknown).

    It touches the weights of all operators, their inputs, and one output, whose memory the operators reuse.
    """
    m, n, k = shape
    inputs = _OPERATORS if framework in _OWN_INPUTS else 1
    return _BYTES * (_OPERATORS * n * k + inputs * m * k + m * n) > l2_bytes


def attention_rows(source: "Source", device: str, share: int, left_out: LeftOut) -> Imported:
    """Return the rows of *device* and their tables; *left_out* counts skipped rows by reason; raises InputError."""
    tables = _newest(source, "context_attention", device, "attention", left_out)
    for table in source.newest("generation_attention", device):
        left_out["attention of one query (decode): not modelled"] += source.count(table)
    graded = _graded({table.framework: _attention_times(source, table, left_out) for table in tables})
    rows: list[Row] = []
    for table in tables:
        inside = _READ["inside"].get(table.framework, "writes cache")
        same = {"device": device, "op": "attention", "variant": "causal", "dtype": "bf16", "issue": "graph"}
        same["software"] = f"{table.framework} {table.version}"
        for shape, found in graded[table.framework].items():
            batch, length, heads, kv_heads, head_size = shape
            if is_sampled(shape, share):
                sinks = "; sinks" if table.framework == "trtllm" and head_size == _SINKS else ""
                sizes = {"batch": batch * heads, "m": length, "n": length, "k": head_size}
                rows.append(_row(found, **same, **sizes, heads=heads, kv_heads=kv_heads, note=inside + sinks))
    return rows, tables


def _attention_times(source: "Source", table: "SourceTable", left_out: LeftOut) -> Times:
    times: Times = {}
    for cell, number in source.rows(table, _READ["columns"]["context_attention"]):
        time_s = latency_s(cell("latency"))
        reason = "" if time_s is not None else "attention without a time"
        if not {cell("attn_dtype"), cell("kv_cache_dtype")} <= _READ["precisions"].keys():
            reason = "attention with queries or keys of 8 bits"
        elif cell("window_size") not in ("", "0"):
            reason = "attention in a window: not modelled"
        elif cell("beam_width") != "1":
            reason = "attention with several beams"
        elif number("step") != 0:
            reason = "attention to earlier tokens"
        if reason or time_s is None:
            left_out[reason] += 1
        else:
            times.setdefault(tuple(number(size) for size in _READ["sizes"]), []).append(time_s)
    return times


def collective_rows(source: "Source", device: str, left_out: LeftOut) -> Imported:
    """Return rows of *device*'s machine and their tables; *left_out* counts reasons. Raises InputError."""
    tables = _newest(source, "nccl", device, "collective", left_out)
    machine = MACHINES.get(device)
    if machine is None:
        for table in tables:
            left_out[f"collective on a machine of {device}: no topology of it"] += source.count(table)
        return [], ()
    found: dict[tuple[str, str, str], Times] = {}
    for table in tables:
        for cell, number in source.rows(table, _READ["columns"]["nccl"]):
            collective, element = _READ["collectives"].get(cell("op_name")), _READ["elements"].get(cell("nccl_dtype"))
            time_s = latency_s(cell("latency"))
            if collective is None or element is None or time_s is None:
                left_out[f"collective {'without a time' if time_s is None else 'of another kind'}"] += 1
                continue
            dtype, element_bytes = element
            shape = number("num_gpus"), number("message_size") * element_bytes
            key = collective, dtype, cell("version") or table.version
            found.setdefault(key, {}).setdefault(shape, []).append(time_s)
    rows: list[Row] = []
    for (collective, dtype, version), times in sorted(found.items()):
        same = {"machine": machine, "n_nodes": 1, "collective": collective, "dtype": dtype, "placement": "out"}
        same["software"] = f"nccl-tests -g 1; NCCL {version}"
        for (n_gpus, size_bytes), graded in _graded({"": times})[""].items():
            rows.append(_row(graded, **same, n_gpus=n_gpus, bytes=size_bytes))
    return rows, tables


_DEVICES: Mapping[str, tuple[str, str]] = _FACTS["aiconfigurator"]
MACHINES = {part: machine for part, machine in _DEVICES.values() if machine}
_PATTERN = "*/*/*/*_perf.txt"
_FOLDERS = ("aiconfigurator/systems/data", "systems/data", "data", "")
_MAX_ROWS = 500_000
_STAGES = {"dev": -3, "a": -2, "b": -2, "rc": -1, "post": 1}
_RELEASE = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})*)(?:\.?(dev|a|b|rc|post)(\d{1,9}))?(?:\.?(dev|post)(\d{1,9}))?(?!\d)", re.ASCII
)


def release(version: str) -> tuple[tuple[int, ...], tuple[int, int], tuple[int, int]]:
    """Return a sort key for versions: 1.0 < 1.2rc5 < 1.2 < 1.2.post1; text that is no version comes first."""
    match = _RELEASE.match(version)
    if match is None:
        return (), (0, 0), (0, 0)
    numbers, stage, count, after, more = match.groups()
    pieces = tuple(int(piece) for piece in numbers.split("."))
    return pieces, (_STAGES.get(stage, 0), int(count or 0)), (_STAGES.get(after, 0), int(more or 0))


@dataclass(frozen=True, slots=True)
class SourceTable:
    """One file of measurements, with its device (our part), framework and version."""

    device: str
    framework: str
    version: str
    name: str


Cell = Callable[[str], str]
Number = Callable[[str], int]


class Source:
    """The measurements in the wheel or folder *root*; raises InputError if it is neither or holds none."""

    def __init__(self, root: str) -> None:
        self.shown = one_line(root, 1000)
        needed = "a wheel or an unpacked folder"
        self._zip: zipfile.ZipFile | None = None
        if not Path(root).is_dir():
            try:
                open_user_file(Path(root), self.shown, needed=needed).close()  # refuses what is no file
                self._zip = zipfile.ZipFile(root)
            except zipfile.BadZipFile:
                raise InputError(Fault(f"is not a zip; {needed} is needed", self.shown)) from None
            except (OSError, ValueError, NotImplementedError, OverflowError) as error:
                words = getattr(error, "strerror", None) or one_line(error)
                raise InputError(Fault(f"cannot be read: {words}", self.shown)) from None
        self._paths = next(filter(None, (self._files_in(Path(root), folder) for folder in _FOLDERS)), {})
        if not self._paths:
            raise InputError(Fault(f"holds no file {_PATTERN} of measurements", self.shown))
        self.unknown: Counter[str] = Counter()  # number of tables by folder, for devices without a part
        self._tables: dict[str, list[SourceTable]] = {}
        for name in sorted(self._paths):
            folder, framework, version, file = name.split("/")
            if folder in _DEVICES:
                table = SourceTable(_DEVICES[folder][0], framework, version, name)
                self._tables.setdefault(file.removesuffix("_perf.txt"), []).append(table)
            else:
                self.unknown[folder] += 1

    def _files_in(self, root: Path, folder: str) -> dict[str, str]:
        if self._zip is None:
            return {str(file.relative_to(root / folder)): str(file) for file in (root / folder).glob(_PATTERN)}
        inside = [name for name in self._zip.namelist() if name.startswith(f"{folder}/" if folder else "")]
        found = {str(PurePosixPath(name).relative_to(folder)): name for name in inside if not name.endswith("/")}
        return {short: name for short, name in found.items() if short.count("/") == 3 and short.endswith("_perf.txt")}

    def _read(self, name: str) -> bytes:
        place = f"{self.shown}/{one_line(name)}"
        if self._zip is None:
            return read_user_file(self._paths[name], MAX_BYTES, place)
        try:
            with self._zip.open(self._paths[name]) as member:
                raw = member.read(MAX_BYTES + 1)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            words = getattr(error, "strerror", None) or one_line(error)
            raise InputError(Fault(f"cannot be read: {words}", place)) from None
        if len(raw) > MAX_BYTES:
            raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB", place))
        return raw

    @property
    def devices(self) -> list[str]:
        """The parts with measurements."""
        return sorted({table.device for tables in self._tables.values() for table in tables})

    def chosen(self, text: str | None) -> list[str]:
        """Return the parts named by the option *text*, all if None; raises InputError with the nearest name."""
        wanted = self.devices if text is None else [name.strip() for name in text.split(",")]
        for name in wanted:
            if name not in self.devices:
                found = f"'{one_line(name, 60)}' in {self.shown}"
                raise InputError(f"--device: no measurements of {found}; {nearest(name, self.devices)}")
        return sorted(set(wanted))

    def tables(self, what: str) -> list[SourceTable]:
        """Return the tables of *what*, by device and framework, the newest first."""
        found = sorted(self._tables.get(what, ()), key=lambda table: release(table.version), reverse=True)
        return sorted(found, key=lambda table: (table.device, table.framework))

    def newest(self, what: str, device: str) -> list[SourceTable]:
        """Return the newest table of *what* on *device* for each framework."""
        mine = [table for table in self.tables(what) if table.device == device]
        return list({table.framework: table for table in reversed(mine)}.values())[::-1]

    def count(self, table: SourceTable) -> int:
        """Return the number of rows of *table*; raises InputError if it cannot be read."""
        return max(0, sum(1 for line in self._read(table.name).splitlines() if line.strip()) - 1)

    def rows(self, table: SourceTable, needed: Sequence[str]) -> Iterator[tuple[Cell, Number]]:
        """Yield each row as two functions of a column: for its text, empty if missing, and its whole number."""
        place = f"{self.shown}/{one_line(table.name)}"
        found = read_table(self._read(table.name), place, needed, needed, "measurements", _MAX_ROWS)
        for row in found.rows:
            if len(row.fields) != len(found.header):
                message = f"{len(row.fields)} fields where the header has {len(found.header)}"
                raise InputError(Fault(message, place, row.line, 1))
            cell = partial(found.written, row)

            def number(column: str, line: int = row.line, cell: Cell = cell) -> int:
                text = cell(column)
                if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
                    raise InputError(Fault(f"{column} is not a whole number: '{one_line(text, 30)}'", place, line, 1))
                return int(text)

            yield cell, number
