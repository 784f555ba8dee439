"""The arguments of a command: :class:`Arguments`, by name, with what was read of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.launch.shell import Word

__all__ = ["Arguments"]

_MOST = 10**9
_FLAG = re.compile(r"--?[A-Za-z]")


class Arguments:
    """``--name value``, ``--name=value`` and ``--name``; what is given twice counts as said last.

    ``_`` in a name is as ``-``.  Readers tell faults, and all of them are raised by :meth:`finish`.
    """

    def __init__(self, words: Sequence[Word], file: str) -> None:
        self._file = file
        self._values: dict[str, list[str]] = {}
        self._places: dict[str, Word] = {}
        self.faults: list[Fault] = []
        self.read: set[str] = set()
        name = ""
        for word in words:
            if _FLAG.match(word.text):
                said, equals, value = word.text.partition("=")
                name = said.lstrip("-").replace("_", "-")
                self._values[name] = [value] if equals else []
                self._places[name] = word
            elif name:
                self._values[name].append(word.text)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> list[str]:
        """All names, in order."""
        return list(self._values)

    def has(self, *names: str) -> bool:
        """Return whether one of *names* is there."""
        self.read.update(names)
        return any(name in self._values for name in names)

    def value(self, name: str) -> str | None:
        """Return what follows *name*, None where nothing does."""
        return " ".join(self._values.get(name, [])) or None

    def text(self, *names: str) -> str | None:
        """Return the value of the first of *names* that is there."""
        self.read.update(names)
        for name in names:
            if name in self._values:
                values = self._values[name]
                if not values:
                    self.fault(name, "needs a value")
                    return None
                return " ".join(values)
        return None

    def number(self, *names: str, least: int = 1) -> int | None:
        """Return the whole number that the first of *names* says; None where none is there."""
        text = self.text(*names)
        if text is None:
            return None
        if re.fullmatch(r"\d{1,12}", text, re.ASCII) and least <= int(text) <= _MOST:
            return int(text)
        name = next(name for name in names if name in self._values)
        why = (
            "is set nowhere in what is read; write its value" if "$" in text or "`" in text else "is not a whole number"
        )
        self.fault(name, f"{one_line(text, 40)} {why}{'' if '$' in text else f', {least} to {_MOST}'}")
        return None

    def choice(self, allowed: Sequence[str], *names: str) -> str | None:
        """Return which of *allowed* the first of *names* says; None where none is there."""
        text = self.text(*names)
        if text is None or text.lower() in allowed:
            return text if text is None else text.lower()
        name = next(name for name in names if name in self._values)
        self.fault(name, f"'{one_line(text, 40)}' is not known; {nearest(text.lower(), allowed)}")
        return None

    def fault(self, name: str, message: str) -> None:
        """Tell a fault of the argument *name*."""
        word = self._places.get(name)
        place = (word.line, word.column) if word is not None and self._file != "--launch" else (0, 0)
        self.faults.append(Fault(f"--{name}: {message}", self._file, *place))

    def finish(self) -> None:
        """Raise InputError with all faults that were told."""
        if self.faults:
            raise InputError(list(dict.fromkeys(self.faults)))
