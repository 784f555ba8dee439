"""The record of blind predictions: one line of JSON an event, each with the digest of the line before it.

A table that nobody has looked at is split into its questions, which a prediction may see, and the whole, sealed until
it is scored, once (docs/scoring.md).  A changed line breaks the chain of digests, which :func:`read_record` follows.
"""

import base64
import binascii
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from simulator.bands.composition import LEVEL, Band
from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import asdict, dataclass, field, fields
from simulator.user_files import read_user_file
from validate.kinds.kind import Kind, every_row
from validate.score.scoring import Scoring
from validate.tables.cells import MAX_BYTES, csv_bytes, figure, read_records
from validate.tables.names import RowNames
from validate.tables.statistics import relative_error, summarise
from validate.tables.table import Table, general, read_table, shown_as, tabulate

PROJECT = Path(__file__).resolve().parent  # the folder of the project's own record

RECORD, PREDICTIONS = "record.jsonl", "predictions"
_MOST_BYTES = 64_000_000
_WANTED = {
    "--name": ("[a-z0-9][a-z0-9-]{0,39}", "small letters, digits and hyphens are needed, such as mi300x-rings"),
    "--commit": ("[0-9a-f]{7,40}", "7 to 40 digits of a commit are needed, as git rev-parse HEAD prints"),
    "--date": ("20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", "a day such as 2026-11-29 is needed"),
}

What = Literal["reported", "predicted", "scored"]


@dataclass(frozen=True, slots=True)
class BlindErrors:
    """How good the predictions of ``scored`` rows were: fractions of the measured time, None where nobody knows.

    ``inside``: share of the rows with a band that lie within it; ``banded``: how many these are.  ``of``: the data set
    or class of the rows, empty for all rows.
    """

    scored: int
    median: float | None
    p90: float | None = None
    bias: float | None = None
    inside: float | None = None
    banded: int | None = None
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindEvent:
    """A line of the record: what happened to the entry ``name`` on ``date`` with the program of ``commit``.

    ``kind`` and ``source`` are the table's.  ``rows`` are those that count, ``predicted`` those with a prediction;
    ``refused`` counts the others by reason, ``sources`` data sets.  ``predictions``, ``table`` and ``previous`` are
    digests (SHA-256) of the file of predictions, the sealed table and the line before.
    """

    what: What
    name: str
    date: str
    commit: str
    kind: str
    source: str = ""
    rows: int | None = None
    predicted: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    sources: int | None = None
    predictions: str = ""
    table: str = ""
    errors: Sequence[BlindErrors] = ()
    note: str = ""
    previous: str = ""

    @property
    def whole(self) -> BlindErrors | None:
        """The errors over all rows; None if it was not compared."""
        return self.errors[0] if self.errors else None


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of *content*, in hexadecimal digits."""
    return sha256(content).hexdigest()


def checked(option: str, text: str) -> str:
    """Return *text*, the value of *option* (``--name``, ``--commit`` or ``--date``); raises InputError if unfit."""
    pattern, needed = _WANTED[option]
    if not re.fullmatch(pattern, text):
        raise InputError(f"{option}: {needed}; got '{one_line(text, 60)}'")
    return text


def read_record(folder: Path) -> list[BlindEvent]:
    """Return the events of the record in *folder*; raises InputError where one is damaged, changed or left out."""
    file, events, previous = folder / RECORD, [], ""
    raw = read_user_file(file, _MOST_BYTES, needed="a record") if file.exists() else b""
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            found: dict[str, Any] = json.loads(line)
            event = BlindEvent(errors=tuple(BlindErrors(**each) for each in found.pop("errors", ())), **found)
        except (ValueError, TypeError, AttributeError):
            raise InputError(Fault("is no event of a blind record", str(file), number, 1)) from None
        if event.previous != previous:
            told = "the lines before this one are not those that it was added to"
            raise InputError(Fault(told, str(file), number, 1))
        events.append(event)
        previous = digest_of(line)
    return events


def line_of(event: BlindEvent, events: Sequence[BlindEvent], record: bytes) -> bytes:
    """Return the line that adds *event* to *record*; raises InputError for an entry that is there, or scored twice."""
    if event.what != "scored":
        check_new(event.name, events)
    elif event.name in {each.name for each in events if each.what == "scored"}:
        raise InputError(f"{event.name} was scored already; only the first time is blind")
    last = record.splitlines()[-1] if record.strip() else b""
    written = {key: value for key, value in asdict(event).items() if value not in (None, "", (), {}, [])}
    written["previous"] = digest_of(last) if last else ""
    if "errors" in written:
        written["errors"] = [{k: v for k, v in each.items() if v not in (None, "")} for each in written["errors"]]
    order = [each.name for each in fields(BlindEvent)]
    return json.dumps({key: written[key] for key in order if key in written}, ensure_ascii=False).encode() + b"\n"


def check_new(name: str, events: Iterable[BlindEvent]) -> None:
    """Raise InputError where *events* have an entry *name* already."""
    if name in {each.name for each in events}:
        raise InputError(f"--name: '{name}' is in the record already; an entry is predicted once")


def predicted_entry(events: Iterable[BlindEvent], name: str) -> BlindEvent:
    """Return the event that predicted the entry *name*; raises InputError where there is none."""
    found = {each.name: each for each in events if each.what == "predicted"}
    if name not in found:
        raise InputError(f"no table was added as '{one_line(name, 60)}'; {nearest(name, found) or 'none was'}")
    return found[name]


_COLUMNS = ("row", "dataset", "predicted_s", "low_s", "high_s", "refused")
_CONTEXT = "context: trust"
_FEWEST = 5  # rows of a data set that are told apart


@dataclass(frozen=True, slots=True)
class BlindPrediction:
    """The predicted seconds of the ``row``, counted from 1, and their band, or why it is ``refused``."""

    row: int
    dataset: str
    predicted_s: float | None
    band: Band | None
    refused: str

    @property
    def is_context(self) -> bool:
        """Whether its grade, known beforehand, keeps it from counting."""
        return self.refused.startswith(_CONTEXT)


def predict_blind(
    questions: bytes, kind: Kind, scoring: Scoring, trust: Sequence[str], jobs: int, advance: Callable[[], None]
) -> list[BlindPrediction]:
    """Return predictions of *questions*, a table without measured columns, of rows whose grade is in *trust*."""
    needed = [column for column in kind.needed if column not in kind.measured]
    table = tabulate(read_records(questions, "questions"), "questions", needed, kind.columns, kind.name)
    found = []
    for number, row in enumerate(scoring.score(table, kind, trust, jobs=jobs, advance=advance), start=1):
        refused = "" if row.predicted_s is not None else row.skipped or "no prediction"
        if row.grade and row.grade not in trust:
            refused = f"{_CONTEXT} {row.grade}"
        found.append(BlindPrediction(number, row.labels.get("dataset", ""), row.predicted_s, row.band, refused))
    return found


def written_predictions(predictions: Sequence[BlindPrediction]) -> bytes:
    """Return *predictions* as CSV, in the order of the table."""
    rows: list[Sequence[object]] = [_COLUMNS]
    for each in predictions:
        figures = (each.predicted_s, *((each.band.low_s, each.band.high_s) if each.band else (None, None)))
        rows.append([each.row, each.dataset, *("" if s is None else repr(s) for s in figures), each.refused])
    return csv_bytes(rows)


def read_predictions(raw: bytes, name: str) -> list[BlindPrediction]:
    """Return the predictions in *raw*, called *name* in messages; raises InputError where it is no such table."""
    table = read_table(raw, name, _COLUMNS, _COLUMNS, "blind predictions")
    found = []
    for record in table.rows:
        row, dataset, *texts, refused = (table.written(record, column) for column in _COLUMNS)
        predicted_s, low_s, high_s = map(figure, texts)
        if not row.isdecimal() or (predicted_s is None) != (not texts[0]) or (low_s is None) != (high_s is None):
            raise InputError(Fault("is no blind prediction", name, record.line, 1))
        band = None if low_s is None or high_s is None else Band(LEVEL, low_s, high_s)
        found.append(BlindPrediction(int(row), dataset, predicted_s, band, refused))
    return found


def outcomes_of(predictions: Sequence[BlindPrediction]) -> tuple[int, int, dict[str, int]]:
    """Return the numbers of rows that count and of those predicted, and by reason the number of those that are not."""
    count = [each for each in predictions if not each.is_context]
    refused = Counter(each.refused for each in count if each.refused)
    return len(count), len(count) - refused.total(), dict(sorted(refused.items(), key=lambda item: (-item[1], item[0])))


def errors_of(predictions: Sequence[BlindPrediction], table: Table, kind: Kind, names: RowNames) -> list[BlindErrors]:
    """Return the errors of *predictions* on the measured *table*: of all rows, then of each data set with some rows."""
    times_s = {n: row.time_s for n, row in enumerate(every_row(table, kind, names), start=1) if not row.untimed}
    pairs = [(each, times_s[each.row]) for each in predictions if not each.refused and each.row in times_s]
    found = []
    for of in ("", *sorted({each.dataset for each, _ in pairs} - {""})):
        mine = [(each, time_s) for each, time_s in pairs if of in ("", each.dataset)]
        if of and len(mine) < _FEWEST:
            continue
        whole = summarise([relative_error(p.predicted_s, s) for p, s in mine if p.predicted_s is not None])
        inside = [p.band.low_s <= time_s <= p.band.high_s for p, time_s in mine if p.band is not None]
        figures = (whole.median_ape, whole.p90_ape, whole.bias, sum(inside) / len(inside) if inside else None)
        median, p90, bias, held = (None if each is None else round(each, 4) for each in figures)
        found.append(BlindErrors(whole.n, median, p90, bias, held, len(inside), of))
    return found


_HEAD = b"sealed table of measurements; validate blind score opens it\n"
_TOLD = ("row_id", "dataset", "source", "trust")  # whose rows these are
_WIDTH = 120


def questions_of(table: Table, kind: Kind) -> bytes:
    """Return *table* as CSV without what was measured: columns that a prediction, or what an empty cell means, sees."""
    rules = (rule for of_column in general().get(kind.name, {}).values() for rule in of_column)
    seen = {*kind.asked, *({*_TOLD, *(name for rule in rules for name in rule.looks_at())} - {*kind.measured})}
    columns = [name.strip() for name in table.header if name.strip().lower() in seen]
    places = [table.position[name.lower()] for name in columns]
    rows = ([row.fields[at] if at < len(row.fields) else "" for at in places] for row in table.rows)
    return csv_bytes([columns, *rows])


def sealed(raw: bytes) -> bytes:
    """Return the table *raw* as text that nobody reads by accident."""
    text = base64.b64encode(zlib.compress(raw, 9))
    return _HEAD + b"".join(text[i : i + _WIDTH] + b"\n" for i in range(0, len(text), _WIDTH))


def opened_seal(file: str) -> bytes:
    """Return the table that the sealed *file* holds; raises InputError where it holds none."""
    raw = read_user_file(file, MAX_BYTES, needed="a sealed table")
    if not raw.startswith(_HEAD):
        raise InputError(Fault("is no sealed table; validate blind add writes one", shown_as(file), 1, 1))
    opening = zlib.decompressobj()
    with suppress(binascii.Error, zlib.error):
        found = opening.decompress(base64.b64decode(raw[len(_HEAD) :]), MAX_BYTES)
        if opening.eof:
            return found
    raise InputError(Fault("is damaged: it does not hold the whole table", shown_as(file), 2, 1))
