"""What a user gave a command: the values of its options; results on standard output, remarks on standard error."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulator.console import Style, choose_style, printable
from simulator.console.files import OutputFile
from simulator.console.run import say
from simulator.errors import InputError, nearest, one_line, word_of
from validate.machine.measure.host import usable_threads
from validate.tables.table import PUBLISHED, is_incomplete, read_conventions

if TYPE_CHECKING:
    from validate.compare.folder import Folder
    from validate.tables.table import Table

TRUSTED = "A,B"


class Given(SimpleNamespace):
    """The values of a command's options, by name, and the ``others``: words that are no option of it."""

    def answer(self, document: Any, text: Callable[[Style], str]) -> None:
        """Print an answer: *document* as JSON if ``--json`` is given, or else its *text* in standard output's style."""
        whole = json.dumps(document, indent=2, allow_nan=False) + "\n" if self.json else text(choose_style(sys.stdout))
        print_result(whole)

    def remark(self, lines: Iterable[str]) -> None:
        """Print remarks on standard error, one per line, unless ``--quiet`` is given."""
        for line in () if self.quiet else lines:
            say(line)

    def wrote(self, option: str) -> list[str]:
        """Return the remark that the file of *option* is written, if one was asked for."""
        path = getattr(self, option)
        return [] if path is None else [f"wrote {one_line(path)}"]

    def again(self, command: str, *arguments: str, options: str) -> str:
        """Return the shell command that gives *arguments* and those of *options* that are set, each as often as it is.

        *options* are names with spaces between, each ``name=option`` where the command line spells it otherwise.
        """
        words = ["validate", command, *arguments]
        for each in options.split():
            name, _, option = each.partition("=")
            given = getattr(self, name)
            for text in given if isinstance(given, tuple) else (given,):
                words += [word_of(option or name), text] if text is not None else []
        return shlex.join(words)

    def opened(self, option: str) -> AbstractContextManager[OutputFile | None]:
        """Return a context with the file of *option*, or with None; raises InputError if it cannot be written."""
        path = getattr(self, option)
        return nullcontext() if path is None else OutputFile(f"--{option}", path)

    def grades(self, folder: "Folder | None" = None, usual: str = TRUSTED) -> tuple[str, ...]:
        """Return the grades of ``--trust``; raises InputError if one is empty or, with *folder*, none of its rows'."""
        text = usual if self.trust is None else self.trust
        grades = tuple(grade.upper() for grade in words_in("--trust", text, "grades such as A,B"))
        if folder is not None:
            rows = ((table, record) for table in folder.tables.values() for record in table.rows)
            known = {"A", "B", "C", *(table.cell(record, "trust").upper() for table, record in rows)} - {""}
            for grade in grades:
                if grade not in known:
                    raise InputError(f"--trust: no grade '{one_line(grade, 20)}'; {nearest(grade, known)}")
        return grades

    def processes(self) -> int:
        """Return the processes of ``--jobs``, by default one for each core; raises InputError."""
        told = "a number of processes such as 2 is needed"
        return usable_threads() if self.jobs is None else number_in("--jobs", self.jobs, r"0*[1-9][0-9]?", told)


def words_in(option: str, text: str, example: str) -> list[str]:
    """Return the distinct words in *text*, the value of *option*, in lower case; raises InputError if one is empty."""
    words = [word.strip().lower() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option}: {example} are needed, with commas between; got '{one_line(text, 60)}'")
    return list(dict.fromkeys(words))


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


def incomplete(tables: "Iterable[Table]", *, fits: bool = False) -> list[str]:
    """Return a remark on each of *tables* without what published conventions say; *fits*: without weights, too."""
    told = f"is read without what its authors say elsewhere; validate table complete --conventions {PUBLISHED} adds it"
    rules = read_conventions(PUBLISHED)
    return [f"{table.file}: {told}" for table in tables if is_incomplete(table, rules, () if fits else ("fit_weight",))]
