"""The record of blind predictions: one line of JSON an event, each with the digest of the line before it.

Events are, in the order of an entry's life:

* ``predicted``: the predictions of a table are in ``predictions/NAME.csv``; its measurements are sealed.
* ``scored``: the seal was opened, and the predictions were compared with the measurements; once an entry.
* ``reported``: the figures of a comparison that was made before this record was kept; its predictions are not here.

Lines are only ever added: a line that is changed or left out breaks the chain of digests, which :func:`read_record`
follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import asdict, dataclass, field, fields
from simulator.user_files import read_user_file

PROJECT = Path(__file__).resolve().parent
"""The folder of the project's own record."""

RECORD, PREDICTIONS = "record.jsonl", "predictions"
_MOST_BYTES = 64_000_000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_DATE = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")

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

    ``kind`` is that of the table, ``source`` where it is from.  ``rows`` are all its rows that count, ``predicted``
    those with a prediction; ``refused`` says how many others have none, by reason.  ``sources`` is the number of data
    sets.  ``predictions`` and ``table`` are digests (SHA-256) of the file of predictions and of the sealed table.
    ``previous`` is that of the line before.
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
    wanted = {
        "--name": (_NAME, "small letters, digits and hyphens are needed, such as mi300x-rings"),
        "--commit": (_COMMIT, "7 to 40 digits of a commit are needed, as git rev-parse HEAD prints"),
        "--date": (_DATE, "a day such as 2026-11-29 is needed"),
    }
    pattern, needed = wanted[option]
    if not pattern.fullmatch(text):
        raise InputError(f"{option}: {needed}; got '{one_line(text, 60)}'")
    return text


def read_record(folder: Path) -> list[BlindEvent]:
    """Return the events of the record in *folder*, in order; none where it has no record yet.

    Raises InputError, with the line, where a line is no event, or where a line before it was changed or left out.
    """
    file = folder / RECORD
    if not file.exists():
        return []
    events, previous = [], ""
    for number, line in enumerate(read_user_file(file, _MOST_BYTES, needed="a record").splitlines(), start=1):
        event = _event(line, str(file), number)
        if event.previous != previous:
            raise InputError(
                Fault("the lines before this one are not those that it was added to", str(file), number, 1)
            )
        events.append(event)
        previous = digest_of(line)
    return events


def _event(line: bytes, file: str, number: int) -> BlindEvent:
    try:
        found: dict[str, Any] = json.loads(line)
        errors = tuple(BlindErrors(**each) for each in found.pop("errors", ()))
        return BlindEvent(errors=errors, **found)
    except (ValueError, TypeError, AttributeError):
        raise InputError(Fault("is no event of a blind record", file, number, 1)) from None


def line_of(event: BlindEvent, events: Sequence[BlindEvent], record: bytes) -> bytes:
    """Return the line that adds *event* to *record*, which holds *events*.

    Raises InputError where the entry is there already, or is scored and was never predicted.
    """
    done = {each.name for each in events if each.what == "scored"}
    if event.what != "scored":
        check_new(event.name, events)
    if event.what == "scored" and event.name in done:
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
