"""Divide a shell script into commands and words, as bash quotes them (docs/decisions/launch-lines.md)."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from simulator.errors import Fault, InputError
from simulator.records import dataclass, lists_by_key, own_data

_ENDS = ";&|\n()"
_MAX_WORDS = 100_000
NAMES: Mapping[str, Any] = own_data("simulator.launch", "names.yaml")
COMMANDS = {what: frozenset(names.split()) for what, names in NAMES["commands"].items()}
# At the start of a word: > file, 2>&1, &> file, < file; not <<EOF, <<<text, <(command).
_REDIRECTS = re.compile(r"(?:(?:\d*|&)>>?(?!\()|\d*<(?![<(]))(?P<to>&(?:\d+|-))?[ \t]*")
# Of a word, what is neither quoted nor expanded as a whole; of a text in double quotes, a part.
_PLAIN = re.compile(r"""(?:[^ \t;&|\n()'"`\\$<]|<<<|<(?!<)|\$(?!['"({])|\\\Z)+""")
_IN_DOUBLE = re.compile(r"""\\(?P<escaped>["\\`])|\\.|\$[({]|[^"`\\$]+|.""", re.DOTALL)
_EXPANSIONS = ("`", "$(", "${")
_SUM = re.compile(r"\(\((?:[^()\n]|\([^()\n]*\))*\)\)")  # ((A > 1)), and one level of brackets within
_LITERAL = re.compile("'([^']*)'")
_ANSI = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, with its line and column, counted from 1."""

    text: str
    line: int
    column: int

    @property
    def name(self) -> str:
        """The command that the word is, without its folder."""
        return self.text.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word before expansion: its pieces, each with its quote character (``'``, ``"`` or "")."""

    pieces: tuple[tuple[str, str], ...]
    line: int
    column: int

    @property
    def text(self) -> str:
        """Return the word without its quotes."""
        first, *others = self.pieces or (("", ""),)
        return "".join(piece for piece, _ in self.pieces) if others else first[0]


class Document(NamedTuple):
    """A here-document that a command writes to the file *path*; one whose delimiter is quoted is *literal*."""

    path: RawWord
    text: str
    line: int
    literal: bool


def _in_test(words: Sequence[object]) -> bool:
    """Return whether *words* begin a test ``[[ A > 1 ]]``, where signs are no redirections."""
    return any(isinstance(word, RawWord) and word.text == "[[" for word in words)


class Scanner:
    """Scans *text*, called *file* in faults; keeps ``comments`` with ``#``, and ``documents`` that go to files."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._file = file
        self._at = 0
        self._words = 0
        self._lines = [match.start() for match in re.finditer("\n", self._text)]
        self._awaited: list[RawWord] = []  # delimiters of here-documents that begin after this line
        self._target: RawWord | None = None  # the file to which this line writes
        self._of_line: set[str] = set()  # words of this line
        self.before = ""  # what separates a command from the one before it
        self.comments: list[Word] = []
        self.documents: list[Document] = []

    def commands(self) -> Iterator[list[RawWord | tuple[RawWord, list[RawWord]]]]:
        """Yield commands as words, an array as a pair (name, words); raises InputError for an open quote or bracket."""
        found: list[RawWord | tuple[RawWord, list[RawWord]]] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "(" and found and isinstance(found[-1], RawWord) and found[-1].text.endswith("="):
                self._at += 1
                found[-1] = found[-1], self._array()
            elif (whole := _SUM.match(self._text, self._at)) is not None:
                found.append(RawWord(((whole[0], ""),), *self._place(self._at)))
                self._at = whole.end()
            elif not _in_test(found) and (redirection := _REDIRECTS.match(self._text, self._at)) is not None:
                self._at = redirection.end()
                if not redirection["to"] and self._at < len(self._text) and self._text[self._at] not in _ENDS:
                    file = self._word()
                    if self._target is None and redirection[0].startswith((">", "1>", "&>")):
                        self._target = file
            elif char in _ENDS:
                self._at += 1
                if found:
                    yield found
                    found, self.before = [], ""
                self.before += char
                if char == "\n":
                    self._skip_documents()
            elif self._is_document():
                self._document()
            elif not self._passes_blank(" \t"):
                word = self._word()
                if found and isinstance(found[-1], RawWord) and found[-1].text == "tee":
                    self._target = word
                self._of_line.add(word.text.rpartition("/")[2])
                found.append(word)
        if found:
            yield found

    def _passes_blank(self, blanks: str) -> bool:
        """Move past one of *blanks*, an end of line that is escaped, or a comment; return whether there is one."""
        char, start = self._text[self._at], self._at
        if char in blanks:
            self._at += 1
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        elif char == "#":
            end = self._text.find("\n", start)
            self._at = end if end >= 0 else len(self._text)
            self.comments.append(Word(self._text[start : self._at], *self._place(start)))
        return self._at > start

    def _is_document(self) -> bool:
        return self._text.startswith("<<", self._at) and not self._text.startswith("<<<", self._at)

    def _document(self) -> None:
        """Note the delimiter of a here-document; without one (``((a << 2))``), pass the sign."""
        self._at += 3 if self._text.startswith("<<-", self._at) else 2
        while self._text.startswith((" ", "\t"), self._at):
            self._at += 1
        if self._at < len(self._text) and self._text[self._at] not in _ENDS and not self._is_document():
            self._awaited.append(self._word())

    def _skip_documents(self) -> None:
        """Move past the here-documents that begin here, unless a shell reads them; keep those that go to a file."""
        if not self._of_line & COMMANDS["shells"]:
            for delimiter in self._awaited:
                start, self._at = self._at, self._after(delimiter.text)
                if self._target is not None and self._at > start:
                    text = self._text[start : self._at].rstrip("\n").rpartition("\n")[0]
                    literal = any(quote for _, quote in delimiter.pieces)
                    self.documents.append(Document(self._target, f"{text}\n", self._place(start)[0], literal))
        self._target = None
        self._awaited.clear()
        self._of_line.clear()

    @cached_property
    def _ends_of(self) -> dict[str, list[int]]:
        """The starts of lines by their text, without tabs before it."""
        starts = (0, *(line + 1 for line in self._lines))
        lines = zip(self._text.split("\n"), starts, strict=True)
        return lists_by_key((line.strip("\t"), start) for line, start in lines)

    def _after(self, delimiter: str) -> int:
        starts = self._ends_of.get(delimiter, [])
        place = bisect_left(starts, self._at)
        if place == len(starts):
            return self._at
        after = bisect_right(self._lines, starts[place])
        return self._lines[after] + 1 if after < len(self._lines) else len(self._text)

    def _array(self) -> list[RawWord]:
        start = self._at
        words: list[RawWord] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == ")":
                self._at += 1
                return words
            if self._passes_blank(" \t\n"):
                continue
            if char in _ENDS or self._is_document():
                raise self._fault(self._at, f"'{char}' cannot stand in an array")
            words.append(self._word())
        raise self._fault(start - 1, "this bracket does not end")

    def _word(self) -> RawWord:
        start, text = self._at, self._text
        self._words += 1
        if self._words > _MAX_WORDS:
            raise self._fault(start, f"a script has at most {_MAX_WORDS} words")
        pieces: list[tuple[str, str]] = []
        while self._at < len(text):
            char, quote = text[self._at], ""
            if (plain := _PLAIN.match(text, self._at)) is not None:
                piece, self._at = plain[0], plain.end()
            elif text.startswith(_EXPANSIONS, self._at):
                piece = self._expansion()
            elif char in "'\"$":
                is_ansi = text.startswith("$'", self._at)
                self._at += char == "$"
                quote = text[self._at]
                piece = self._single(is_ansi) if quote == "'" else self._double()
            elif char == "\\":
                self._at += 2
                if text[self._at - 1] == "\n":
                    continue
                piece, quote = text[self._at - 1], "'"
            else:
                break
            if pieces and quote == pieces[-1][1] == "":
                piece = pieces.pop()[0] + piece
            pieces.append((piece, quote))
        return RawWord(tuple(pieces), *self._place(start))

    def _single(self, is_ansi: bool) -> str:
        whole = (_ANSI if is_ansi else _LITERAL).match(self._text, self._at)
        if whole is None:
            raise self._fault(self._at, "this quote does not end")
        self._at = whole.end()

        def escaped(match: re.Match[str]) -> str:
            said = match[1]
            if said[0] == "x" and len(said) > 1:
                return chr(int(said[1:], 16))
            return chr(int(said, 8) & 255) if said[0] in "01234567" else _ESCAPED.get(said, said)

        return _ESCAPE.sub(escaped, whole[1]) if is_ansi else whole[1]

    def _double(self) -> str:
        start, found = self._at, list[str]()
        self._at += 1
        while (part := _IN_DOUBLE.match(self._text, self._at)) is not None:
            if part[0] == '"':
                self._at += 1
                return "".join(found)
            if part[0] in _EXPANSIONS:
                found.append(self._expansion())
            else:
                self._at = part.end()
                found.append("" if part[0] == "\\\n" else part["escaped"] or part[0])
        raise self._fault(start, "this quote does not end")

    def _expansion(self) -> str:
        """Return a text between backquotes, ``${...}`` or ``$(...)`` as written, up to the closing character."""
        start, text, awaited = self._at, self._text, self._awaited
        if text[start] == "`":
            self._at = text.find("`", start + 1) + 1
            if not self._at:
                raise self._fault(start, "this backquote does not end")
            return text[start : self._at]
        self._awaited = []
        waiting: list[str] = []  # for these closing characters, the innermost last
        while self._at < len(text):
            char, inner = text[self._at], waiting[-1] if waiting else ""
            if text.startswith(("$(", "${"), self._at):
                waiting.append(")" if text[self._at + 1] == "(" else "}")
                self._at += 2
            elif char == inner:
                waiting.pop()
                self._at += 1
                if not waiting:
                    self._awaited = awaited
                    return text[start : self._at]
            elif char == '"' or (char == "(" and inner == ")"):
                waiting.append('"' if char == '"' else ")")
                self._at += 1
            elif char == "\\" or inner == '"':
                self._at += 2 if char == "\\" else 1
            else:
                self._pass_unquoted(in_command=inner == ")")
        raise self._fault(start, "this bracket does not end")

    def _pass_unquoted(self, *, in_command: bool) -> None:
        """Move past what a shell reads as a whole here: a quoted text, a comment, here-documents, or one character."""
        text, at = self._text, self._at
        if text[at] == "'":
            whole = (_ANSI if text[at - 1] == "$" else _LITERAL).match(text, at)
            self._at = whole.end() if whole else len(text)
        elif text[at] == "#" and in_command and text[at - 1] in " \t\n":
            end = text.find("\n", at)
            self._at = end if end >= 0 else len(text)
        elif in_command and self._is_document():
            self._document()
        else:
            self._at += 1
            for delimiter in self._awaited if text[at] == "\n" else ():
                self._at = self._after(delimiter.text)
            self._awaited = [] if text[at] == "\n" else self._awaited

    def _place(self, offset: int) -> tuple[int, int]:
        before = bisect_left(self._lines, offset)
        return before + 1, offset - (self._lines[before - 1] if before else -1)

    def _fault(self, offset: int, message: str) -> InputError:
        return InputError(Fault(message, self._file, *self._place(offset)))
