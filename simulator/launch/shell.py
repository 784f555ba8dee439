"""Find the commands of a shell script without running it: :func:`commands_of`.

Supported are line continuations, comments, quotes, assignments of words and arrays (``TP=8``, ``ARGS=(--bf16)``,
``ARGS+=(...)``), ``$TP``, ``${TP}``, ``${TP:-8}``, ``${ARGS[@]}`` and integer arithmetic (``$((A * B))``).  Expansions
whose value is known only at run time (``$1``, ``$(hostname)``) are left as written.  Commands are taken in the order
of the script, including both branches of an ``if``.
"""

from __future__ import annotations

import ast
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from simulator.errors import Fault, InputError, one_line

__all__ = ["Script", "Word", "commands_of"]

_ENDS = ";&|\n()"
_SET = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SAID = re.compile(
    r"\$\{(?P<name>[A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=](?P<other>[^{}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)"
    r"|\$\(\((?P<sum>(?:(?!\$\(\().)*?)\)\)",
    re.DOTALL,
)
_KEYWORDS = frozenset(
    (
        *(
            "if",
            "then",
            "else",
            "elif",
            "fi",
            "do",
            "done",
            "while",
            "until",
            "for",
            "case",
            "esac",
            "{",
            "}",
            "!",
            "time",
        ),
        *("exec", "export", "local", "declare"),
    )
)
_SUMS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MOST = 10**15
_MAX_WORDS = 100_000
_MAX_EXPANDED = 4_000_000  # characters of all expansions: each may be ten times as long as the last


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, with its line and column, counted from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Script:
    """Commands in order, each as its words; ``twice`` names the variables that were set to several values.

    ``comments`` are whole comments, with their ``#``.
    """

    commands: tuple[tuple[Word, ...], ...]
    twice: tuple[str, ...]
    comments: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class _Raw:
    """A word before expansion: its pieces, each with its quote character (``'``, ``"`` or "")."""

    pieces: tuple[tuple[str, str], ...]
    line: int
    column: int

    @property
    def text(self) -> str:
        return "".join(piece for piece, _ in self.pieces)


def commands_of(text: str, file: str) -> Script:
    """Return the commands of the script *text*; raises InputError for a quote or a bracket without an end."""
    return _Reader(text, file).run()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._file = file
        self._at = 0
        self._known: dict[str, list[str]] = {}
        self._twice: dict[str, None] = {}
        self._comments: list[Word] = []
        self._words = 0
        self._lines = [match.start() for match in re.finditer("\n", self._text)]
        self._expanded_chars = 0
        self._here = (1, 1)

    def run(self) -> Script:
        commands = []
        for raw in self._raw_commands():
            words = self._done(raw)
            if words:
                commands.append(tuple(words))
        return Script(tuple(commands), tuple(self._twice), tuple(self._comments))

    # -- words --------------------------------------------------------------------------

    def _raw_commands(self) -> Iterator[list[_Raw | tuple[_Raw, list[_Raw]]]]:
        """Yield each command as its words; an array assignment is a pair of the name and the array's words."""
        found: list[_Raw | tuple[_Raw, list[_Raw]]] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "(" and found and isinstance(found[-1], _Raw) and found[-1].text.endswith("="):
                self._at += 1
                found[-1] = found[-1], self._array()
            elif char in _ENDS:
                self._at += 1
                if found:
                    yield found
                found = []
            elif char in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._comment()
            else:
                found.append(self._word())
        if found:
            yield found

    def _array(self) -> list[_Raw]:
        start = self._at
        words: list[_Raw] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == ")":
                self._at += 1
                return words
            if char in " \t\n":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._comment()
            elif char in _ENDS:
                raise self._fault(self._at, f"'{char}' cannot stand in an array")
            else:
                words.append(self._word())
        raise self._fault(start - 1, "this bracket does not end")

    def _comment(self) -> None:
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        self._comments.append(Word(self._text[self._at : end], *self._place(self._at)))
        self._at = end

    def _word(self) -> _Raw:
        start = self._at
        self._words += 1
        if self._words > _MAX_WORDS:
            raise self._fault(start, f"a script has at most {_MAX_WORDS} words")
        pieces: list[tuple[str, str]] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "'\"":
                pieces.append((self._quoted(char), char))
            elif char == "`" or self._text.startswith(("$(", "${"), self._at):
                pieces.append((self._substitution(), ""))
            elif char == "\\" and self._at + 1 < len(self._text):
                if self._text[self._at + 1] != "\n":
                    pieces.append((self._text[self._at + 1], "'"))
                self._at += 2
            elif char in " \t" or char in _ENDS:
                break
            else:
                pieces.append((char, ""))
                self._at += 1
        joined: list[tuple[str, str]] = []
        for plain, run in groupby(pieces, lambda piece: not piece[1]):
            same = list(run)
            joined += [("".join(text for text, _ in same), "")] if plain else same
        return _Raw(tuple(joined), *self._place(start))

    def _quoted(self, quote: str) -> str:
        start = self._at
        self._at += 1
        found: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == quote:
                return "".join(found)
            if char == "\\" and quote == '"' and self._at < len(self._text):
                after = self._text[self._at]
                self._at += 1
                found.append("" if after == "\n" else after if after in '"\\`' else f"\\{after}")
            else:
                found.append(char)
        raise self._fault(start, "this quote does not end")

    def _substitution(self) -> str:
        """Return ``${...}``, ``$(...)`` or backquotes as written, up to the closing character."""
        start = self._at
        if self._text[start] == "`":
            end = self._text.find("`", start + 1)
            self._at = end + 1
            if end < 0:
                raise self._fault(start, "this backquote does not end")
            return self._text[start : self._at]
        opening = self._text[start + 1]
        closing = {"(": ")", "{": "}"}[opening]
        depth, self._at = 0, start + 1
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            depth += (char == opening) - (char == closing)
            if depth == 0:
                return self._text[start : self._at]
        raise self._fault(start, "this bracket does not end")

    def _place(self, offset: int) -> tuple[int, int]:
        before = bisect_left(self._lines, offset)
        return before + 1, offset - (self._lines[before - 1] if before else -1)

    def _fault(self, offset: int, message: str) -> InputError:
        return InputError(Fault(message, self._file, *self._place(offset)))

    # -- assignments and expansion ------------------------------------------------------

    def _done(self, raw: list[_Raw | tuple[_Raw, list[_Raw]]]) -> list[Word]:
        """Apply the command's assignments; return its other words, expanded."""
        words: list[Word] = []
        sets: list[Word] = []
        for each in raw:
            if isinstance(each, tuple):
                name, array = each
                self._here = name.line, name.column
                match = _SET.match(name.text)
                if match is not None:
                    self._set(match[1], [w for item in array for w in self._expanded(item)], added=bool(match[2]))
                continue
            self._here = each.line, each.column
            match = _SET.match(each.text) if not words and each.pieces and not each.pieces[0][1] else None
            if match is not None:
                value = [(each.pieces[0][0].partition("=")[2], ""), *each.pieces[1:]]
                joined = "".join(self._value(piece, quote) for piece, quote in value)
                self._set(match[1], [joined], added=bool(match[2]), again=f"${match[1]}" in each.text.replace("{", ""))
                sets.append(Word(f"{match[1]}={joined}", each.line, each.column))
                continue
            if not words and each.text in _KEYWORDS:
                continue
            words += [Word(text, each.line, each.column) for text in self._expanded(each)]
        return words

    def _set(self, name: str, value: list[str], *, added: bool, again: bool = False) -> None:
        before = self._known.get(name)
        if added and before is not None:
            value = [*before, *value] if len(before) != 1 or len(value) != 1 else [before[0] + value[0]]
        elif before is not None and before != value and not again:
            self._twice[name] = None
        self._known[name] = value

    def _value(self, piece: str, quote: str) -> str:
        return piece if quote == "'" else _SAID.sub(lambda match: " ".join(self._said(match)), piece)

    def _expanded(self, raw: _Raw) -> list[str]:
        """Return the expansion of *raw*; variables outside quotes are split at white space."""
        if len(raw.pieces) == 1 and raw.pieces[0][1] == '"':
            whole = re.fullmatch(r"\$\{(\w+)\[@\]\}", raw.text)
            if whole is not None and whole[1] in self._known:
                return self._counted(self._known[whole[1]])
        found: list[str] = [""]
        any_quoted = False
        for piece, quote in raw.pieces:
            text = self._value(piece, quote)
            if quote:
                found[-1] += text
                any_quoted = True
                continue
            parts = re.split(r"\s+", text)
            found[-1] += parts[0]
            found += parts[1:]
        return found if any_quoted and len(found) == 1 else [text for text in found if text]

    def _said(self, match: re.Match[str]) -> list[str]:
        if match["sum"] is not None:
            value = _sum(self._value(re.sub(r"(?<![\w$}])([A-Za-z_]\w*)", r"$\1", match["sum"]), ""))
            return [match[0] if value is None else str(value)]
        name = match["name"] or match["plain"]
        known = self._known.get(name)
        if known is not None:
            return self._counted(known)
        other = match["other"]
        return [match[0]] if other is None else [self._value(other.strip("\"'"), "")]

    def _counted(self, words: list[str]) -> list[str]:
        """Return *words*, a variable's value; raises InputError if all expansions together exceed the limit."""
        self._expanded_chars += len(words) + sum(map(len, words))
        if self._expanded_chars > _MAX_EXPANDED:
            told = f"variables stand for more than {_MAX_EXPANDED:,} characters up to here"
            raise InputError(Fault(told, self._file, *self._here))
        return words


def _sum(text: str) -> int | None:
    """Return the value of integer arithmetic *text*; None if it is anything else."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            found = _SUMS[type(node.op)](value(node.left), value(node.right))
            if abs(found) < _MOST:
                return found
        raise ValueError(one_line(text))

    try:
        return value(ast.parse(text.strip().replace("/", "//"), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None
