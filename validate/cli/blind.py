"""The commands ``validate blind add``, ``show`` and ``score``: predictions made before measurements are looked at."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from simulator.cli.table import table_of
from simulator.console import Progress, Style, fold
from simulator.console.files import write_output
from simulator.errors import InputError, one_line
from simulator.records import asdict
from simulator.user_files import read_user_file
from validate.blind import record as recording
from validate.blind.record import PREDICTIONS, PROJECT, RECORD, BlindErrors, BlindEvent, digest_of
from validate.cli.command import Given, incomplete
from validate.kinds import KINDS
from validate.kinds.kind import read_measurements
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.cells import MAX_BYTES, read_records
from validate.tables.statistics import percent_text
from validate.tables.table import STDIN, read_bytes, shown_as, tabulate

_MOST_BYTES = 64_000_000
_SCHEMA_VERSION = 1


def blind_add(given: Given) -> None:
    """Predict a table before its measurements are looked at, and record the predictions."""
    file = given.file
    if file is None or file == STDIN:
        raise InputError("a table in a file is needed, for example: validate blind add TABLE.csv --name mine ...")
    said = _needed(given, "name source commit date out")
    folder, grades = Path(given.record) if given.record is not None else PROJECT, given.grades()
    events = recording.read_record(folder)
    recording.check_new(said["--name"], events)
    scoring = Scoring(ScoringOptions(given.topology, given.machine, None, given.device))
    raw = read_bytes(file)
    table, kind = read_measurements(file, scoring.kinds, raw=raw)
    scoring.check([(table, kind)])
    for option, place in (("--out", Path(said["--out"])), ("--record", folder)):
        _make_folder(option, place)
    questions, seal = recording.questions_of(table, kind), recording.sealed(raw)
    with Progress(len(table.rows), "predicting", quiet=given.quiet) as progress:
        predictions = recording.predict_blind(questions, kind, scoring, grades, given.processes(), progress.advance)
    written = recording.written_predictions(predictions)
    rows, predicted, refused = recording.outcomes_of(predictions)
    event = BlindEvent(
        what="predicted", name=said["--name"], date=said["--date"], commit=said["--commit"], kind=kind.name,
        source=one_line(said["--source"], 1000), rows=rows, predicted=predicted, refused=refused,
        sources=len({each.dataset for each in predictions if not each.is_context}),
        predictions=digest_of(written), table=digest_of(raw),
    )  # fmt: skip
    for ending, content in ((".questions.csv", questions), (".sealed", seal)):
        write_output("--out", Path(said["--out"]) / f"{event.name}{ending}", content)
    _append(folder, events, event, {f"{PREDICTIONS}/{event.name}.csv": written})  # last: without a seal none is scored
    given.remark([*incomplete([table]), f"{event.name}: {predicted} of {rows} rows predicted; none compared"])


def blind_score(given: Given) -> None:
    """Open a sealed table, and record the errors of the predictions that were made before: once."""
    file = given.file
    if given.name is None or file is None:
        raise InputError("a name and a sealed table are needed, for example: validate blind score mine mine.sealed ...")
    said = _needed(given, "commit date")
    folder, events = _read_there(given.record)
    entry = recording.predicted_entry(events, given.name)
    if said["--date"] < entry.date:
        raise InputError(f"--date: '{entry.name}' was predicted on {entry.date}, after {said['--date']}")
    path = folder / PREDICTIONS / f"{entry.name}.csv"
    predictions = read_user_file(path, _MOST_BYTES, needed="a table of predictions")
    raw = recording.opened_seal(file)
    for digest, content, what in ((entry.predictions, predictions, str(path)), (entry.table, raw, file)):
        if digest_of(content) != digest:
            raise InputError(f"{one_line(what)}: is not what was recorded of '{entry.name}' on {entry.date}")
    scoring = Scoring(ScoringOptions())
    kind = next(kind for kind in KINDS if kind.name == entry.kind)
    table = tabulate(read_records(raw, shown_as(file)), shown_as(file), (), kind.columns, kind.name)
    errors = recording.errors_of(recording.read_predictions(predictions, str(path)), table, kind, scoring.names)
    day, made_by = said["--date"], said["--commit"]
    event = BlindEvent(what="scored", name=entry.name, date=day, commit=made_by, kind=entry.kind, errors=errors)
    _append(folder, events, event, {})
    given.answer(_document([event]), partial(_by_data_set, event))


def blind_show(given: Given) -> None:
    """Show the blind record: each table by kind and date, and how good its predictions were."""
    name = given.name
    _, events = _read_there(given.record)
    if name is None:
        given.answer(_document(events), partial(_overview, events))
        return
    by_name = {event.name: event for event in events}
    event = by_name[name] if name in by_name else recording.predicted_entry(events, name)  # refuses it
    given.answer(_document([event]), partial(_by_data_set, event))


def _needed(given: Given, options: str) -> dict[str, str]:
    said: dict[str, str] = {f"--{name}": getattr(given, name) for name in options.split()}
    missing = [option for option, text in said.items() if not text]
    if missing:
        raise InputError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed")
    for option in ("--name", "--commit", "--date"):
        if option in said:
            recording.checked(option, said[option])
    return said


def _append(folder: Path, events: Sequence[BlindEvent], event: BlindEvent, files: dict[str, bytes]) -> None:
    record = folder / RECORD
    before = read_user_file(record, MAX_BYTES, needed="a record") if record.exists() else b""
    line = recording.line_of(event, events, before)
    for name, content in files.items():
        _make_folder("--record", (folder / name).parent)
        write_output("--record", folder / name, content)
    write_output("--record", record, before + line)


def _make_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{option} {one_line(str(folder))}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{option} {one_line(str(folder))}: cannot be written: Permission denied")


def _read_there(record: str | None) -> tuple[Path, list[BlindEvent]]:
    folder = Path(record) if record is not None else PROJECT
    if not (folder / RECORD).is_file():
        raise InputError(f"--record {one_line(str(folder))}: there is no {RECORD}, which validate blind add begins")
    return folder, recording.read_record(folder)


def _document(events: Sequence[BlindEvent]) -> dict[str, object]:
    return {"schema_version": _SCHEMA_VERSION, "events": [asdict(event) for event in events]}


def _shares(errors: BlindErrors | None) -> list[str]:
    if errors is None:
        return ["-"] * 4
    figures = (errors.median, ""), (errors.p90, ""), (errors.bias, "+")
    inside = "-" if errors.inside is None else f"{errors.inside * 100:.0f} %"
    return [*(percent_text(error, sign) for error, sign in figures), inside]


_HEADS = ["scored", "median", "p90", "bias", "in 80 % band"]


def _overview(events: Sequence[BlindEvent], style: Style) -> str:
    scored = {event.name: event for event in events if event.what == "scored"}
    entries = [event for event in events if event.what != "scored"]
    rows = [["kind", "predicted on", "by commit", "entry", "sources", "rows", *_HEADS]]
    for event in sorted(entries, key=lambda each: (each.kind, each.date)):
        errors = scored[event.name].whole if event.name in scored else event.whole
        counts = ["-" if n is None else f"{n:,}" for n in (event.sources, event.rows)]
        number = "not yet" if errors is None else f"{errors.scored:,}"
        rows.append([event.kind, event.date, event.commit[:8], event.name, *counts, number, *_shares(errors)])
    lines = table_of(rows, [False] * 4 + [True] * 7, style)
    told = [f"{event.name}: {event.source}" + (f"; {event.note}" if event.note else "") for event in entries]
    folded = (line for text in told for line in (fold(text, style.width, 2) if style.width else [text]))
    return "".join(f"{line}\n" for line in (*lines, "", *folded))


def _by_data_set(event: BlindEvent, style: Style) -> str:
    rows = [["data set", *_HEADS]]
    rows += [[each.of or "all", f"{each.scored:,}", *_shares(each)] for each in event.errors]
    return "".join(f"{line}\n" for line in table_of(rows, [False] + [True] * 5, style))
