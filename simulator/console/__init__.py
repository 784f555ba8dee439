"""Terminals, their width and colours; progress; late imports (docs/decisions/console.md): :func:`later`."""

import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from math import inf
from typing import Any, TextIO

from simulator.errors import escaped
from simulator.records import dataclass


def later(name: str, *given: Any, **named: Any) -> Callable[..., Any]:
    """Return a function of what is not *given* that calls *name* (module:function), or returns it if it is a value."""

    def called(*more: Any, **others: Any) -> Any:
        module, _, what = name.partition(":")
        found = getattr(import_module(module), what)
        return found(*given, *more, **named, **others) if callable(found) else found

    return called


_MARKS = {"bold": "1", "dim": "2", "red": "31", "green": "32"}
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGT]?B|[mun]?s|x|[kMGT]?FLOP/s|GPUs?)(?![\w]))")
_SHELL_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
_GOES_ON = " \\"
_KEPT = "\u00a0"  # a space without a line break
_MARK = re.compile(r"(\x1b\[(?:0|(?:1|2|31|32)(?:;(?:1|2|31|32))*)m)")


@dataclass(frozen=True, slots=True)
class Style:
    """``width`` in characters, or None for lines of any length; ``colour`` or plain text."""

    width: int | None = None
    colour: bool = False

    def mark(self, text: str, *marks: str) -> str:
        """Return *text* in bold, dim, red or green, if there is colour."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_MARKS[m] for m in marks)}m{text}\x1b[0m"

    def at_most(self, width: int) -> "Style":
        """Return the style for text that is never wider than *width*, not even in a pipe."""
        return Style(min(self.width or width, width), self.colour)

    def wrap(self, text: str, *marks: str, hang: int = 0) -> list[str]:
        """Return *text* as marked lines of at most the width; all but the first are indented by *hang* characters."""
        lines = [] if self.width is None else fold(text, self.width, hang)
        return [self.mark(line, *marks) for line in lines or [text]]

    def wrap_command(self, text: str) -> list[str]:
        """Return the shell command *text* as lines of at most the width, which a shell reads as one command."""
        room = inf if self.width is None else self.width - len(_GOES_ON)
        pieces: list[str] = []
        for word in _SHELL_WORD.findall(text):
            if pieces and not word.startswith("--") and len(f"    {pieces[-1]} {word}") <= room:
                pieces[-1] += f" {word}"
            else:
                pieces.append(word)
        lines: list[str] = []
        for piece in pieces:
            if lines and len(f"{lines[-1]} {piece}") <= room:
                lines[-1] += f" {piece}"
            else:
                lines.append(f"    {piece}" if lines else piece)
        return [line + _GOES_ON for line in lines[:-1]] + lines[-1:]


def fold(text: str, width: int, hang: int = 0) -> list[str]:
    """Return *text* as lines of at most *width*, all but the first indented by *hang*; numbers keep their units."""
    lines = textwrap.wrap(_BEFORE_UNIT.sub(_KEPT, text), width, subsequent_indent=" " * hang, break_on_hyphens=False)
    return [line.replace(_KEPT, " ") for line in lines]


def longest_word(text: str) -> int:
    """Return the characters of the longest piece of *text* that :func:`fold` keeps whole."""
    return max(map(len, _BEFORE_UNIT.sub(_KEPT, text).split(" ")))


PLAIN = Style()


def choose_style(stream: TextIO | None, environment: Mapping[str, str] | None = None) -> Style:
    """Return the style for *stream*: colour on a terminal, unless NO_COLOR is set or TERM is ``dumb``.

    The width is COLUMNS if that is a positive number, else the terminal's; a pipe or a file has none.
    """
    env = os.environ if environment is None else environment
    terminal = stream is not None and not stream.closed and stream.isatty()
    colour = terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    columns = env.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return Style(max(20, int(columns)), colour)
    return Style(max(20, shutil.get_terminal_size().columns) if terminal else None, colour)


def printable(text: str, stream: TextIO | None) -> str:
    """Return *text* with control characters escaped, except our own colour codes on a terminal."""
    if not choose_style(stream).colour:
        return escaped(text)
    return "".join(piece if i % 2 else escaped(piece) for i, piece in enumerate(_MARK.split(text)))


_SILENT_S = 2.0


class Progress:
    """Counts *total* steps, and shows a bar on standard error, if a terminal, once two seconds have passed."""

    def __init__(self, total: int, what: str, *, quiet: bool = False) -> None:
        self.total = total
        self.what = what
        self.done = 0
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._timer: threading.Timer | None = None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(_SILENT_S, self._open)
            self._timer.daemon = True

    def __enter__(self) -> "Progress":
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._bar is not None:
                self._bar.stop()

    def advance(self, done: str = "") -> None:
        """Count one step, called *done*."""
        with self._lock:
            self.done += 1
            if self._bar is not None:
                said = f"{self.what} ({done})" if done else self.what
                self._bar.update(self._task, completed=self.done, description=said)

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        columns: list[Any] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
        if self.total > 1:
            columns += [progress.MofNCompleteColumn(), progress.TimeRemainingColumn()]
        bar = progress.Progress(*columns, progress.TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        with self._lock:
            if self._timer is None:  # already left
                return
            self._task = bar.add_task(self.what, total=self.total if self.total > 1 else None, completed=self.done)
            bar.start()
            self._bar = bar
