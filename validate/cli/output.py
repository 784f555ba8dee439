"""A command's output: results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from simulator.console.files import OutputFile
from simulator.console.run import say
from simulator.console.style import Style, choose_style, printable


def opened(path: str | None, option: str = "--out") -> AbstractContextManager[OutputFile | None]:
    """Return a context with the output file *path* named by *option*, or with None if *path* is None.

    Raises InputError if the file cannot be written.
    """
    return nullcontext() if path is None else OutputFile(option, path)


def give(text: str, output: OutputFile | None) -> None:
    """Write *text* to the file *output*, else to standard output."""
    if output is not None:
        output.write(text.encode())
    else:
        sys.stdout.write(text)


def print_result(text: str) -> None:
    """Print a result; characters that standard output cannot encode are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(printable(text, sys.stdout).encode(encoding, "backslashreplace").decode(encoding))


def print_answer(document: Any, text: Callable[[Style], str], *, as_json: bool) -> None:
    """Print an answer: *document* as JSON, or else its *text* in the style of standard output."""
    style = choose_style(sys.stdout)
    print_result(json.dumps(document, indent=2, allow_nan=False) + "\n" if as_json else text(style))


def print_remarks(lines: Iterable[str], *, quiet: bool) -> None:
    """Print remarks on standard error, one per line, unless *quiet*."""
    for line in () if quiet else lines:
        say(line)
