"""Find the commands of a shell script without running it (docs/decisions/launch-lines.md)."""

import re
from collections.abc import Mapping
from os.path import dirname, isfile
from os.path import join as joinpath

from simulator.errors import Fault, InputError
from simulator.launch.arguments import whole_sum
from simulator.launch.branches import Branches
from simulator.launch.slurm import batch_arguments, job_variables
from simulator.launch.words import COMMANDS, RawWord, Scanner, Word
from simulator.records import dataclass, replace
from simulator.user_files import read_user_file

_SET = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SAID = re.compile(
    r"\$\{(?P<name>[A-Za-z_]\w*|\d+|[@*#])(?:\[[@*]\])?(?:(?P<sign>:?[-=+])(?P<other>(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*))?\}"
    r"|\$(?P<plain>[A-Za-z_]\w*|[\d@*#])"
    r"|\$\(\((?P<sum>(?:(?!\$\(\().)*?)\)\)",
    re.DOTALL,
)
_UNSET = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?\})")
_OPAQUE = re.compile(r"`[^`]*`|\$\((?:[^()]|\([^()]*\))*\)")  # what is known only as the script runs
_OF_SYSTEM = ("SLURM_", "PBS_", "LSB_", "OMPI_", "PMI", "HOST", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK")
_MOST_BYTES = 1_000_000
_MOST_WITHIN = 8  # scripts that read one another
_MAX_EXPANDED = 4_000_000  # characters of all expansions: each may be ten times as long as the last


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable set *before* the command of this number, and for it *alone* or from there on; None: unset."""

    before: int
    name: str
    value: Word | None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Commands as words; variables set ``twice``, comments, settings; and here-documents by path, with their line."""

    commands: tuple[tuple[Word, ...], ...]
    twice: tuple[str, ...]
    comments: tuple[Word, ...]
    settings: tuple[Setting, ...]
    written: Mapping[str, tuple[int, str]]

    def environment(self, place: int) -> dict[str, Word]:
        """Return the variables that the command at *place* gets, each as its value where it was set."""
        found: dict[str, Word] = {}
        for setting in self.settings:
            if setting.before == place or (setting.before < place and not setting.alone):
                found.pop(setting.name, None)
                if setting.value is not None:
                    found[setting.name] = setting.value
        return found


def script_text(file: str) -> str:
    """Return the text of the script *file*; raises InputError if it cannot be read or is not text."""
    raw = read_user_file(file, _MOST_BYTES, needed="a shell script", usual="a script is a few kB")
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(Fault("is not text; a shell script is needed", file, line, 1))
    return raw.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8, as in names of files, stay


def commands_of(
    text: str, file: str, known: Mapping[str, list[str]] | None = None, asked: tuple[Word, ...] = ()
) -> Script:
    """Return the commands of the script *text*, started with the variables *known*, its arguments as ``1``, ``2``.

    *asked* are ``#SBATCH`` lines that go before its own.  Raises InputError for a quote or a bracket without an end.
    """
    return _Reader(text, file, {"#": ["0"], **(known or {})}, asked).run()


def script_arguments(given: list[str]) -> dict[str, list[str]]:
    """Return the variables of the arguments *given* to a script."""
    numbered = {str(number): [text] for number, text in enumerate(given, 1)}
    return {**numbered, "@": given, "*": given, "#": [str(len(given))]}


class _Reader:
    def __init__(self, text: str, file: str, known: dict[str, list[str]], asked: tuple[Word, ...] = ()) -> None:
        self._file = file
        self._asked_before = asked
        self._depth = 1
        self._scanner = Scanner(text, file)
        self._branches = Branches(self._tested)
        self._known = known
        self._twice: dict[str, None] = {}
        self._perhaps: dict[str, None] = {}  # variables set where it is not known whether a branch runs
        self._asked: set[str] = set()  # variables that expansions needed
        self._expanded_chars = 0
        self._here = (1, 1)
        self._job: dict[str, str] = {}
        self._comments_read = 0
        self._commands: list[tuple[Word, ...]] = []
        self._settings: list[Setting] = []

    def run(self) -> Script:
        written: dict[str, tuple[int, str]] = {}
        for raw in self._scanner.commands():
            written |= self._documents()
            first = len(self._settings)
            words = self._done(self._branches.reached(raw, self._scanner.before))
            for each in raw if self._branches.run is False else ():
                match = _SET.match((each if isinstance(each, RawWord) else each[0]).text)
                if match is not None:
                    self._known.setdefault(match[1], [])  # empty, as nothing sets it
            first_word = raw[0] if isinstance(raw[0], RawWord) else raw[0][0]
            if first_word.text == "for" and self._known.get("@") and "$@" in str(raw):
                self._refuse_loops(first_word.line, first_word.column)
            if words:
                self._settings[first:] = [replace(setting, alone=True) for setting in self._settings[first:]]
                self._commands.append(tuple(words))
        written |= self._documents()
        comments, settings = (*self._scanner.comments, *self._asked_before), tuple(self._settings)
        return Script(tuple(self._commands), tuple(self._twice), comments, settings, written)

    def _documents(self) -> dict[str, tuple[int, str]]:
        """Return the here-documents since the last call, as they are written with the variables known so far."""
        found = {
            "".join(self._value(*piece) for piece in path.pieces): (line, self._value(text, "'" if literal else ""))
            for path, text, line, literal in self._scanner.documents
            if self._branches.run is not False
        }
        self._scanner.documents.clear()
        return found

    def _done(self, raw: list[RawWord | tuple[RawWord, list[RawWord]]]) -> list[Word]:
        words: list[Word] = []
        declares = False
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
                continue
            if not words and (each.text in COMMANDS["keywords"] or (declares and each.text.startswith("-"))):
                declares |= each.text in COMMANDS["declares"]
                continue
            words += [Word(text, each.line, each.column) for text in self._expanded(each)]
        for at, word in enumerate(words):
            of_shell = (
                at > 1 and words[at - 1].text == "-c" and COMMANDS["shells"].intersection(w.name for w in words[:at])
            )
            if of_shell or (".py " in _OPAQUE.sub("", word.text) and "-" in word.text):
                return [*words[:at], *self._again(word.text, word)]
        if len(words) > 1 and words[0].text in ("source", ".") and isfile(self._here_path(words[1].text)):
            return self._sourced(self._here_path(words[1].text))
        if words and words[0].text == "eval":
            return self._again(" ".join(word.text for word in words[1:]), words[0])
        if words and words[0].text == "shift" and self._known.get("@"):
            count = int(words[1].text) if len(words) > 1 and words[1].text.isdigit() else 1
            self._refuse_loops(words[0].line, words[0].column)
            self._known |= script_arguments(self._known["@"][count:])
            return []
        if words and words[0].text == "unset":
            if all(word.text != "-f" for word in words):  # which is about functions
                for word in words[1:]:
                    self._known.pop(word.text, None)
                    self._settings.append(Setting(len(self._commands), word.text, None))
            return []
        return words

    def _refuse_loops(self, line: int, column: int) -> None:
        """Raise InputError if arguments of the script are taken where it is not known how often that runs."""
        if self._branches.run is None:
            told = "takes the script's arguments in a loop, which is not run; set its variables in it instead"
            raise InputError(Fault(told, self._file, line, column))

    def _here_path(self, path: str) -> str:
        """Return *path* without the folder that a command names (``$(dirname $0)/``): that of the script."""
        name = _OPAQUE.sub(".", path)
        return name if isfile(name) else joinpath(dirname(self._file), name)

    def _read_within(self, text: str, file: str) -> tuple[Script, int]:
        """Return the script *text*, which is read here with the variables so far, and the number of its first command.

        Raises InputError for more than 8 within each other.
        """
        inner = _Reader(text, file, self._known)
        inner._depth = self._depth + 1
        if inner._depth > _MOST_WITHIN:
            raise InputError(Fault(f"more than {_MOST_WITHIN} scripts read one another", self._file, *self._here))
        return inner.run(), len(self._commands)

    def _sourced(self, path: str) -> list[Word]:
        """Read the script *path* here, for what it sets."""
        script, first = self._read_within(script_text(path), path)
        self._settings += [replace(setting, before=setting.before + first) for setting in script.settings]
        self._commands += script.commands
        return []

    def _again(self, text: str, at: Word) -> list[Word]:
        """Return the longest command of *text*, which a shell reads once more *at* a word (``eval``, ``bash -c``)."""
        script, first = self._read_within(text, self._file)
        self._settings += [replace(setting, before=first) for setting in script.settings]
        return [replace(at, text=word.text) for word in max(script.commands, key=len, default=())]

    def _tested(self, raw: RawWord) -> str | None:
        """Return the value of a word of a test, where a variable set nowhere is empty; None if it is not known."""
        self._asked.clear()
        text = "".join(piece if quote == "'" else self._value(piece, quote) for piece, quote in raw.pieces)
        for match in _UNSET.finditer(text):
            name = match[1] or match[2]
            if not name.startswith(_OF_SYSTEM) and (not name.isdigit() or match[0] in raw.text):  # $1, not what it gave
                text = text.replace(match[0], "")
        return None if "$" in text or "`" in text or self._asked.intersection(self._perhaps) else text

    def _set(self, name: str, value: list[str], *, added: bool, again: bool = False) -> None:
        before = self._known.get(name)
        if self._branches.run is None:
            self._perhaps[name] = None
        elif not added and not again:
            self._perhaps.pop(name, None)
        if added and before is not None:
            value = [*before, *value] if len(before) != 1 or len(value) != 1 else [before[0] + value[0]]
        elif before is not None and before != value and not again:
            self._twice[name] = None
        self._known[name] = value
        self._settings.append(Setting(len(self._commands), name, Word(" ".join(value), *self._here)))

    def _value(self, piece: str, quote: str) -> str:
        return piece if quote == "'" else _SAID.sub(lambda match: " ".join(self._said(match)), piece)

    def _expanded(self, raw: RawWord) -> list[str]:
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
            kept = _OPAQUE.sub(lambda match: re.sub(r"\s", "\0", match[0]), text)
            parts = [part.replace("\0", " ") for part in re.split(r"\s+", kept)]
            found[-1] += parts[0]
            found += parts[1:]
        return found if any_quoted and len(found) == 1 else [text for text in found if text]

    def _said(self, match: re.Match[str]) -> list[str]:
        if match["sum"] is not None:
            value = whole_sum(self._value(re.sub(r"(?<![\w${}])([A-Za-z_]\w*)", r"$\1", match["sum"]), ""))
            return [match[0] if value is None else str(value)]
        name, other = match["name"] or match["plain"], match["other"]
        self._asked.add(name)
        known = self._known[name] if name in self._known else self._of_job(name)
        if match["sign"] in (":+", "+"):
            return [""] if known in (None, [], [""]) else self._value(other.replace('"', ""), "").split()
        if known is not None and (other is None or known not in ([], [""])):
            return self._counted(known)
        if other is None:
            return [match[0]]
        said = [self._value(other.strip("\"'"), "")]
        if match["sign"].endswith("="):
            self._set(name, said, added=False)
        return said

    def _of_job(self, name: str) -> list[str] | None:
        """Return the value of a variable that Slurm sets, from the ``#SBATCH`` lines so far; None if they have none."""
        if not name.startswith("SLURM_"):
            return None
        comments = [*self._scanner.comments, *self._asked_before]
        if len(comments) != self._comments_read:
            self._comments_read = len(comments)
            is_job = any(word.text.startswith("#SBATCH") for word in comments)
            self._job = job_variables(batch_arguments(comments, self._file)) if is_job else {}
        return [self._job[name]] if name in self._job else None

    def _counted(self, words: list[str]) -> list[str]:
        """Return *words*, a variable's value; raises InputError if all expansions together exceed the limit."""
        self._expanded_chars += len(words) + sum(map(len, words))
        if self._expanded_chars > _MAX_EXPANDED:
            told = f"variables stand for more than {_MAX_EXPANDED:,} characters up to here"
            raise InputError(Fault(told, self._file, *self._here))
        return words
