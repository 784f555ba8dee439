"""What ``validate score`` does, from its options to its output."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from simulator.console.files import OutputFile
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import Fault, InputError, nearest, one_line
from validate.score.csv_text import MAX_BYTES
from validate.score.document import ScoredTable, document
from validate.score.machines import MachineBook
from validate.score.predict import Predictor
from validate.score.predictions import predictions_csv
from validate.score.report import report
from validate.score.score import COLUMNS_READ, needed_columns, score_table
from validate.score.table import Table, read_table

__all__ = ["score_command"]

_STDIN = "-"
_LABELS = ("machine", "collective", "decade", "size", "fit")


def score_command(
    files: Sequence[str],
    *,
    out: str | None = None,
    as_json: bool = False,
    topology: str | None = None,
    machines: Sequence[str] = (),
    strategy: str = "nccl",
    trust: str = "A,B",
    by: str | None = None,
) -> None:
    """Score the tables *files* and print the result.

    Raises
    ------
    InputError
        Where an option or a table cannot be used.

    """
    grades = [grade.upper() for grade in _words("--trust", trust, "grades such as A,B")]
    axes = _words("--by", by, "names of columns such as machine,collective") if by is not None else []
    if not files:
        raise InputError("a table is needed, for example: validate score collectives.csv")
    if files.count(_STDIN) > 1:
        raise InputError("- (standard input) can be read once; it is named twice")
    book = MachineBook(topology, _named(machines))
    with ExitStack() as stack:
        output = stack.enter_context(OutputFile("--out", out)) if out is not None else None
        for file in files:
            if output is not None and file != _STDIN and _same(file, out or ""):
                raise InputError(f"--out {one_line(out)}: is one of the tables; name another file")
        tables = [_read(file, book) for file in files]
        book.check_used({table.cell(row, "machine") for table in tables for row in table.rows})
        _check_axes(axes, tables)
        predictor = Predictor(book, strategy)
        progress = stack.enter_context(Progress(sum(len(table.rows) for table in tables), "scoring"))
        scored = [
            ScoredTable(table.file, tuple(score_table(table, predictor, grades, progress.advance))) for table in tables
        ]
        if output is not None:
            output.write(predictions_csv(list(zip(tables, scored, strict=True))))
    if as_json:
        text = json.dumps(document(scored, strategy=strategy, trust=grades, by=axes), indent=2, allow_nan=False) + "\n"
    else:
        text = report(scored, strategy=strategy, trust=grades, by=axes, style=choose_style(sys.stdout))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _words(option: str, text: str, example: str) -> list[str]:
    words = [word.strip().lower() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option}: {example} are needed, with commas between; got '{one_line(text, 60)}'")
    return list(dict.fromkeys(words))


def _named(machines: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in machines:
        name, equals, file = (part.strip() for part in text.partition("="))
        if not (name and equals and file):
            raise InputError(f"--machine: NAME=FILE is needed; got '{one_line(text, 60)}'")
        if name in named:
            raise InputError(f"--machine: '{one_line(name, 60)}' is given twice")
        named[name] = file
    return named


def _read(file: str, book: MachineBook) -> Table:
    needed = needed_columns(machine=book.needs_names)
    if file == _STDIN:
        return read_table(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>", needed, COLUMNS_READ)
    try:
        if Path(file).is_dir():
            raise InputError(Fault("is a folder; a CSV table is needed", one_line(file)))
        with Path(file).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or one_line(error)
        raise InputError(Fault(f"cannot be read: {words}", one_line(file))) from None
    return read_table(raw, one_line(file, 1000), needed, COLUMNS_READ)


def _same(file: str, out: str) -> bool:
    """Whether both paths lead to one file, the second perhaps not there yet."""
    try:
        return os.path.samefile(file, out)
    except (OSError, ValueError):
        return os.path.realpath(file) == os.path.realpath(out)


def _check_axes(axes: Sequence[str], tables: Sequence[Table]) -> None:
    known = {*_LABELS, *(name for table in tables for name in table.position if re.fullmatch(r"\w+", name))}
    for axis in axes:
        if axis not in known:
            raise InputError(f"--by: no column is called '{one_line(axis, 60)}'; {nearest(axis, known)}")
