"""What commands read and print: values of options; results to standard output or a file, remarks to standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from simulator.console.files import OutputFile
from simulator.console.style import printable
from simulator.errors import InputError, nearest, one_line
from validate.machine.measure.host import usable_threads
from validate.tables.table import PUBLISHED, is_incomplete, read_conventions

if TYPE_CHECKING:
    from validate.compare.folder import Folder
    from validate.tables.table import Table

TRUSTED = "A,B"


def words_in(option: str, text: str, example: str) -> list[str]:
    """Return the distinct words in *text*, the value of *option*, in lower case; raises InputError if one is empty."""
    words = [word.strip().lower() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option}: {example} are needed, with commas between; got '{one_line(text, 60)}'")
    return list(dict.fromkeys(words))


def grades_in(text: str, folder: Folder | None = None) -> tuple[str, ...]:
    """Return *text*'s grades; raises InputError if one is empty or none of A, B, C and those of *folder*'s rows."""
    grades = tuple(grade.upper() for grade in words_in("--trust", text, "grades such as A,B"))
    if folder is not None:
        rows = ((table, record) for table in folder.tables.values() for record in table.rows)
        known = {"A", "B", "C", *(table.cell(record, "trust").upper() for table, record in rows)} - {""}
        for grade in grades:
            if grade not in known:
                raise InputError(f"--trust: no grade '{one_line(grade, 20)}'; {nearest(grade, known)}")
    return grades


def jobs_in(text: str | None) -> int:
    """Return the processes in *text*, the value of ``--jobs``; one for each core for None.  Raises InputError."""
    told = "a number of processes such as 2 is needed"
    return usable_threads() if text is None else number_in("--jobs", text, r"0*[1-9][0-9]?", told)


def number_in(option: str, text: str, pattern: str, needed: str, most: int = 60) -> int:
    """Return the whole number *text*, of *pattern*; raises InputError with *needed* and *most* letters of the text."""
    if not re.fullmatch(pattern, text.strip(), re.ASCII):
        raise InputError(f"{option}: {needed}; got '{one_line(text, most)}'")
    return int(text)


def share_in(text: str | None) -> float:
    """Return the value of ``--rows`` as a fraction; raises InputError."""
    try:
        share = 1.0 if text is None else float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise InputError(f"--rows: a share above 0 and at most 1 is needed, such as 0.2; got '{one_line(text, 60)}'")
    return share


def opened(path: str | None, option: str = "--out") -> AbstractContextManager[OutputFile | None]:
    """Return a context with the file *path* of *option*, or with None; raises InputError if it cannot be written."""
    return nullcontext() if path is None else OutputFile(option, path)


def give(text: str, output: OutputFile | None) -> None:
    """Write *text* to the file *output*, else to standard output."""
    if output is None:
        sys.stdout.write(text)
    else:
        output.write(text.encode())


def print_result(text: str) -> None:
    """Print a result; characters that standard output cannot encode are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(printable(text, sys.stdout).encode(encoding, "backslashreplace").decode(encoding))


def incomplete(tables: Iterable[Table], *, fits: bool = False) -> list[str]:
    """Return a remark on each of *tables* without what published conventions say; *fits*: without weights, too."""
    told = f"is read without what its authors say elsewhere; validate table complete --conventions {PUBLISHED} adds it"
    rules = read_conventions(PUBLISHED)
    return [f"{table.file}: {told}" for table in tables if is_incomplete(table, rules, () if fits else ("fit_weight",))]
