"""The command ``validate design``: which operators to measure, and what choosing them is worth."""

import json
import random
import sys
from collections.abc import Sequence
from hashlib import sha256
from statistics import fmean, median

from simulator.api import Session
from simulator.api.calibrations import kernel_shapes
from simulator.cli.options import parse_count
from simulator.cli.table import table_of
from simulator.console import choose_style
from simulator.errors import InputError, counted
from simulator.questions.checks import From
from simulator.records import own_data, replace
from validate.cli.command import Given, give, print_result
from validate.constants.calibrate import fit_calibration
from validate.constants.design import NETWORKS, MeasurableOperator, candidates_of, chosen
from validate.constants.families import calibrating_rows, countable, read_rows
from validate.kinds.kind import MeasuredRow
from validate.tables.names import RowNames, part_called

_AMOUNT = From(1, 100_000)
_DRAWS, _LAYERS = 3, 8
_LAYER = own_data("validate.constants", "families.yaml")["layer"].split()  # cells that do not grow with a batch
_MOST = 1.0  # an error counts up to this


def design_command(given: Given) -> None:
    """Choose the operators whose measured times narrow predictions most."""
    workload = given.workload
    part = part_called(given.device or "h100-sxm5-80gb")
    usual = "60,200,600" if given.files else "600"
    counts = [parse_count("count", text, _AMOUNT) for text in (given.count or usual).split(",")]
    if given.files:
        print_result("\n".join(_compared(given.files, part, counts, given.grades(usual="A"))) + "\n")
        return
    networks = NETWORKS
    if workload is not None:
        batch = parse_count("batch", given.batch or "1", _AMOUNT)
        networks = tuple((name.strip(), batch) for name in workload.split(","))
    with given.opened("out") as output:
        found = chosen(candidates_of(Session(), part, networks), max(counts))
        lines = ",\n".join(json.dumps(dict(each.key), separators=(", ", ": ")) for each in found)  # type: ignore[call-overload]
        give(f'{{"schema_version": 1, "operators": [\n{lines}\n]}}\n', output)
    given.remark([f"chose {len(found)} operators of {counted(len(networks), 'network')}"])


def _compared(files: Sequence[str], part: str, counts: Sequence[int], trust: Sequence[str]) -> list[str]:
    """Return lines with the errors that calibrations on chosen and on random rows of *part* leave on asked rows.

    Rows are divided into halves by hash: one to choose from, one to judge.  Of the latter, a workload is an eighth of
    the layers: rows that differ in the sizes that grow with a batch alone, chosen by hash, anew in each draw.
    """
    names = RowNames()
    mine = [row for row in read_rows(files, names, ("operators",)) if names.devices.part(row.place) == part]
    usable = countable(mine, names.session, trust)
    rows = calibrating_rows(usable, {row.digest for row in usable})
    judges, pool = ([row for row in rows if _hashed("half", row.digest) % 2 == half] for half in (0, 1))
    if len(pool) < 2 * min(counts):
        raise InputError(f"{part}: {len(pool)} rows to choose from, which are too few for {min(counts)}")
    by_key = {row.digest: row for row in pool}
    measurable = [_operator(row, names.session, 0.0) for row in pool]
    found: dict[tuple[int, str], list[float]] = {}
    for draw in range(_DRAWS):
        asked = [row for row in judges if _hashed(str(draw), _layer(row)) % _LAYERS == 0]
        found.setdefault((0, ""), []).extend(row.asks.time_s(names.session) / row.time_s - 1.0 for row in asked)
        wanted = [replace(_operator(row, names.session, 1.0), measurable=False) for row in asked]
        for number in (count for count in counts if 2 * count <= len(pool)):
            more = random.Random(draw).sample(pool, min(len(pool), 3 * number))
            for name, some in (
                ("chosen", [by_key[str(each.key)] for each in chosen([*measurable, *wanted], number)]),
                ("random", more[:number]),
                ("three times as many", more),
            ):
                session = names.session.calibrated({part: fit_calibration(names.session, part, some).calibration})
                errors = found.setdefault((number, name), [])
                errors += [row.asks.time_s(session) / row.time_s - 1.0 for row in asked]
    bare = found.pop((0, ""))
    head = f"{part}: {len(pool)} rows to choose from, {len(bare)} judge; median, mean error"
    lines = [["operators", "chosen", "random", "three times as many"]]
    for number in dict.fromkeys(number for number, _ in found):
        lines.append([str(number), *(_errors(found[number, name]) for name in lines[0][1:])])
    return [
        f"{head}; uncalibrated {_errors(bare)}",
        *table_of(lines, (True, True, True, True), choose_style(sys.stdout)),
    ]


def _hashed(*words: str) -> int:
    return int.from_bytes(sha256(" ".join(words).encode()).digest()[:8], "big")


def _layer(row: MeasuredRow) -> str:
    """Return the cells of a row but those that grow with a batch."""
    return "|".join(f"{name}={row.cells[name]}" for name in _LAYER if row.cells.get(name))


def _errors(errors: Sequence[float]) -> str:
    sizes = [min(_MOST, abs(error)) for error in errors]
    return f"{100 * median(sizes):.1f} {100 * fmean(sizes):.1f} %"


def _operator(row: MeasuredRow, session: Session, weight: float) -> MeasurableOperator:
    variety, shape, _ = max(kernel_shapes(session, row.asks.question), key=lambda each: each[2])
    return MeasurableOperator(row.digest, variety, shape, weight)
