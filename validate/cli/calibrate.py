"""The command ``validate calibrate``: a device from a table of operators; from a folder, its host too."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from os.path import exists, isdir
from pathlib import Path

from simulator.console import choose_style
from simulator.errors import Fault, InputError, one_line
from simulator.records import inner, lists_by_key, replace
from simulator.topology.catalogue import load_part
from simulator.user_files import read_user_file
from validate.cli.command import Given, give
from validate.compare.calibrating import CLOCKS, FolderDevice
from validate.compare.comparison import ComparisonOptions, find_places, fit_folder, scoring_at, unlike_part
from validate.compare.folder import RECORD, read_folder
from validate.constants.calibrate import FittedCalibration, calibration_yaml, fit_calibration
from validate.constants.families import calibrating_rows, countable, device_rows
from validate.importing.formats import OPERATORS as OPERATOR_COLUMNS
from validate.importing.formats import csv_of
from validate.importing.other_operators import traced_rows
from validate.kinds import OPERATORS
from validate.kinds.kind import MeasuredRow
from validate.tables.cells import MAX_BYTES, NotScored
from validate.tables.names import DeviceNames, RowNames, part_called
from validate.tables.statistics import by_frequency, line_ranges, skipped_table, summarise
from validate.tables.table import STDIN, read_bytes, read_table, same_file, shown_as


def _calibrate_folder(given: Given) -> None:
    name, device, out = given.measurements, given.device, given.out
    folder = read_folder(name)
    asked = ComparisonOptions(given.topology, (device,) if device else (), trust=given.grades(folder))
    with given.opened("out") as output:
        places = find_places(folder, asked.topology, asked.devices)
        bench = FolderDevice(places.part, scoring_at(places).names)
        fitted, rows = fit_folder(bench, folder, asked)
        give(folder_yaml(places.part, Path(name).resolve().name, bench, fitted), output)
    where = "" if out is None else f"; wrote {one_line(out)}"
    whole = {CLOCKS} if fitted.clocks else set()  # tables that were fitted to, and have no prediction of their own
    skipped = Counter(row.skipped for row in rows if row.skipped and row.table not in whole).most_common()
    unused = (f"not used: {count} rows: {reason}" for reason, count in skipped)
    given.remark([f"{places.part}: {_folder_summary(bench, fitted)}{where}", *unused])


def folder_yaml(part: str, table: str, bench: FolderDevice, fitted: FittedCalibration) -> str:
    """Return the calibration file of the device *part* as YAML: *fitted*, and the rows of the folder *table* used."""
    again = bench.again([*fitted.rows, *fitted.steps], fitted.calibration)
    left = tuple(row.error for row in again if row.error is not None)
    return calibration_yaml(part, table, replace(fitted, errors=left or (0.0,)))


def _folder_summary(bench: FolderDevice, fitted: FittedCalibration) -> str:
    words = []
    for name, rows in (("operators", fitted.rows), ("steps", fitted.steps)):
        if rows:
            left = summarise([row.error for row in bench.again(rows, fitted.calibration) if row.error is not None])
            words.append(f"{len(rows)} {name}, median error left {100 * (left.median_ape or 0.0):.1f} %")
    if fitted.launches:
        words.append(f"{fitted.launches} constants of its host from launches")
    if fitted.clocks:
        power = fitted.calibration.clocks["power"]
        words.append(f"its board holds {power:.3g} times the power for products in long runs")
    if fitted.host_scale is not None:
        words.append(f"its host takes {fitted.host_scale:.3g} times as long as they say in steps")
    return "; ".join(words)


_REASONS = 8  # most reasons in one message


def calibrate_command(given: Given) -> None:
    """Fit the constants of one device to measurements of it."""
    trace, device, out = given.trace, given.device, given.out
    file = given.measurements
    if trace is None and (given.topology is not None or (file not in (None, STDIN) and isdir(file or ""))):
        _calibrate_folder(given)
        return
    if trace is None and file not in (None, STDIN) and not exists(file or ""):
        read_folder(file or "")  # which says what is beside it
    if not device:
        raise InputError("--device is needed: the GPU part that was measured (simulate parts)")
    part = part_called(device)
    grades = set(given.grades())
    source = file or trace or ""
    if out is not None and same_file(source, out):
        raise InputError(f"--out {one_line(out)}: is the table; name another file")
    left: Mapping[str, int] = {}
    if trace is not None:
        traced, left = traced_rows(trace, device)
        if not traced:
            raise InputError(Fault("holds no operator that tables hold", one_line(trace, 1000)))
        raw = csv_of(OPERATOR_COLUMNS, traced)
    else:
        _check_measured(source, part)
        raw = read_bytes(source)
    with given.opened("out") as output:
        names = RowNames()
        found, skipped = _rows(raw, shown_as(source), part, grades, names)
        rows = calibrating_rows(found, {row.digest for row in found})
        fitted = fit_calibration(names.session, part, rows)
        give(calibration_yaml(part, Path(source).name if source != STDIN else "standard input", fitted), output)
    where = "" if out is None else f"; wrote {one_line(out)}"
    ops = ", ".join(f"{n} {op}" for op, n in sorted(Counter(row.op for row in rows).items()))
    absolute = sorted(abs(error) for error in fitted.errors)
    told = f"{len(absolute)} points ({ops}); median error left {100 * absolute[len(absolute) // 2]:.1f} %"
    unused = [f"not used: {count} x {reason}" for reason, count in sorted(left.items())]
    given.remark([f"{part}: {told}{where}", *skipped_table("not used", skipped, choose_style(sys.stderr)), *unused])


def _check_measured(file: str, part: str) -> None:
    beside = Path(file).parent / RECORD
    if file == STDIN or not beside.is_file():
        return
    try:
        record = json.loads(read_user_file(beside, MAX_BYTES))
    except (InputError, ValueError, RecursionError):
        return  # a table needs no record
    said = unlike_part({part: load_part(part)}, inner(record, "environment"))
    if said:
        raise InputError(f"--device: {said if part in said else f'{part} {said}'}")


def _rows(
    raw: bytes, shown: str, part: str, grades: set[str], names: RowNames
) -> tuple[list[MeasuredRow], dict[str, list[int]]]:
    """Return *part*'s rows in *raw* (all, where no device is told), and those skipped by reason, with unknown ones."""
    needed = tuple(column for column in OPERATORS.needed if column != "device")
    table = read_table(raw, shown, needed, OPERATORS.columns, "operators")
    if "device" not in table.position:
        names = replace(names, devices=DeviceNames([part]))
    try:
        names.device(part)
    except NotScored as reason:
        raise InputError(f"--device: {reason}") from None
    by_part = device_rows(table, names)
    mine, unknown = by_part.pop(part, []), by_part.pop("", [])
    rows = countable(mine, names.session, grades)
    lines = sorted((row.line, row.skipped) for row in (*mine, *unknown) if row.skipped)
    skipped = by_frequency(lists_by_key((reason, line) for line, reason in lines))
    if rows:
        return rows, skipped
    first = list(skipped.items())[:_REASONS]
    reasons = [f"{reason} (line{'s' if len(found) > 1 else ''} {line_ranges(found)})" for reason, found in first]
    if others := sorted(other for other, rows in by_part.items() if not all(row.skipped for row in rows)):
        reasons.append(f"other rows are of {one_line(', '.join(others), 200)}")
    text = f"no row of {part} that can be predicted and has a grade of {', '.join(sorted(grades))}"
    raise InputError(Fault(f"{text}; {'; '.join(reasons) or 'there are no rows'}", shown))
