"""The command ``validate bands``."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files as files_of
from pathlib import Path

from simulator.api.session import Question
from simulator.cli.table import table_of
from simulator.console import Progress, choose_style
from simulator.errors import InputError, one_line
from validate.bands import make
from validate.bands.make import BandRow, measured, thinned
from validate.cli.command import Given, incomplete, print_result
from validate.constants.calibrate import calibrate_devices
from validate.constants.fit import constants_text, write_package_file
from validate.kinds import OPERATORS
from validate.kinds.kind import Kind, read_measurements
from validate.score.report import ADDED
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.table import STDIN, Table

_CALIBRATED_ON = 50  # rows per device


def bands_command(given: Given) -> None:
    """Derive the 80 % bands of answers from errors on measured rows."""
    files = given.files
    if STDIN in files:
        raise InputError("-: a file is needed")
    grades, processes = given.grades(), given.processes()
    scoring = Scoring(ScoringOptions())
    tables = [read_measurements(file, scoring.kinds) for file in files]
    given.remark(incomplete(table for table, _ in tables))
    session = scoring.names.session
    rows: list[BandRow] = []
    after: dict[Question, make.CalibratedRow] = {}
    with Progress(sum(len(table.rows) for table, _ in tables), "scoring", quiet=given.quiet) as progress:
        for table, kind in tables:
            is_scored = all(name in table.position for name in ADDED)  # the table comes from validate score --out
            rows += measured(
                scoring.score(table, kind, grades, as_written=is_scored, jobs=processes, advance=progress.advance),
                session,
            )
            if kind.name == OPERATORS.name and not given.judge:
                after |= _after(scoring, table, kind, grades)
    if not rows:
        raise InputError("no row can be predicted")
    rows = thinned(rows)
    if given.judge:
        _show_coverage({what: make.coverage(rows, by) for what, by in make.LEFT_OUT.items()}, as_json=given.json)
        return
    found = make.make_evidence(rows, calibrated=after, session=session)
    document = make.bands_document(found, [Path(file).name for file in files])
    names = ("low", "middle", "high", "shared", "unseen", "outside", "strange", "calibrated")
    classes = [["class", "rows", "places", *names]]  # whose bands hold 80 % of the ratios measured / predicted
    for entry in document["classes"]:
        classes.append([entry["name"], *(f"{entry[n]:g}" for n in ("rows", "places", *names))])
    print_result(json.dumps(document, indent=2) + "\n" if given.json else _table(classes))
    if given.write:
        path = write_package_file(files_of("simulator.bands") / "bands.json", constants_text(document, "classes"))
        if not given.quiet and sys.stderr is not None:
            sys.stderr.write(f"wrote {one_line(path)}\n")


def _after(scoring: Scoring, table: Table, kind: Kind, grades: Sequence[str]) -> dict[Question, make.CalibratedRow]:
    calibrations, seen = calibrate_devices(table, scoring.names, grades, _CALIBRATED_ON)
    names = scoring.calibrated(calibrations)
    return {
        row.question: (row.error, max(row.composition.parts, key=lambda part: part.share).known)
        for row in measured(scoring.score(table, kind, grades, names=names, seen=seen), names.session)
        if row.composition.parts
    }


def _show_coverage(ways: Mapping[str, Sequence[make.Coverage]], *, as_json: bool) -> None:
    first, *others = ways
    held = {what: {each.group: each.held for each in ways[what]} for what in others}
    if as_json:
        found = [
            {**asdict(each), **{f"held_without_{what}": held[what].get(each.group) for what in others}}
            for each in ways[first]
        ]
        print_result(json.dumps(found, indent=2) + "\n")
        return
    rows = [["left out", "rows", "places", *ways, "half-width"]]
    for each in ways[first]:
        shares = [each.held, *(held[what].get(each.group) for what in others)]
        words = ["-" if share is None else f"{100 * share:.0f} %" for share in shares]
        rows.append([each.group, f"{each.rows:,}", str(each.places), *words, f"{100 * each.half_width:.0f} %"])
    print_result(_table(rows))


def _table(rows: list[list[str]]) -> str:
    lines = table_of(rows, [False, *[True] * (len(rows[0]) - 1)], choose_style(sys.stdout))
    return "".join(f"{line}\n" for line in lines)
