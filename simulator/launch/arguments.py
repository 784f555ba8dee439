"""A command's arguments and files, their arithmetic, and which have no effect (docs/decisions/launch-lines.md)."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub
from os.path import exists, normpath
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, few, mention, nearest, one_line
from simulator.launch.words import NAMES, Word
from simulator.records import own_data
from simulator.topology.yaml_source import YamlSource, parse_json, parse_yaml, read_json, read_yaml
from simulator.user_files import read_user_file

ARGUMENTS = {what: tuple(names.split()) for what, names in NAMES["arguments"].items()}
_ON = frozenset(("true", "1", "yes", "y", "t", "on"))
_OFF = frozenset(("none", "null", "false", "0", "no", "n", "f", "off", "0.0", ""))
_MOST = 10**9
_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=.*", re.DOTALL)  # of Hydra: a value of its own
_PLACE = re.compile("[/.=]")  # in a word that is a path or a setting, no number
_FLAG = re.compile(r"--?[A-Za-z]")
_LARGEST = 10**15
KNOWN: Mapping[str, Any] = own_data("simulator.launch", "known.yaml")
_KNOWN = KNOWN["arguments"]
ON_CPU = "trains on the CPU; leave it out, and name a CPU with --device"
DEVICES = ("device", "accelerator")
"""Arguments that name a device; "cpu" is refused like those of ``REFUSED``."""
_SHORTEST, _LONG = 4, 10  # letters of names of which one may be wrong, or two
_FILE = re.compile(r"\S+\.(ya?ml|toml|json|cfg|conf|py|sh)")


def is_on(value: object) -> bool:
    """Return whether *value* says yes (``true``, ``1``, ``yes``)."""
    return str(value).lower() in _ON


def is_off(value: object) -> bool:
    """Return whether a setting with *value* does nothing (``none``, ``false``, ``0``)."""
    return str(value).lower() in _OFF


def divides(value: object) -> bool:
    """Return whether *value* is a size of a group: one of 1 rank divides nothing, and -1 and ``auto`` name none."""
    return not is_off(value) and str(value).lower() not in ("1", "-1", "auto")


def spelt_flag(name: str) -> str:
    """Return the argument *name* as it is written: ``-b``, ``--batch-size``."""
    return f"{'-' if len(name) <= 2 else '--'}{name}"


class Arguments(dict[str, list[str]]):
    """Words of ``--name value``, ``--name=value`` and ``--name`` by name (``_`` is ``-``); the last of each counts."""

    def __init__(
        self, words: Sequence[Word], file: str, files: "Files | None" = None, notes: list[str] | None = None
    ) -> None:
        super().__init__()
        self.file = file
        self.files = files or Files(file, {})
        self.notes = [] if notes is None else notes
        self._places: dict[str, tuple[str, int, int]] = {}
        self._spelt: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.read: set[str] = set()
        self.others: list[str] = []
        name = ""
        for word in words:
            if _FLAG.match(word.text):
                said, equals, value = word.text.partition("=")
                name = said.lstrip("-").replace("_", "-")
                self[name] = [value] if equals else []
                self._spelt[name] = said
                self._places[name] = (file, word.line, word.column) if file != mention("launch") else (file, 0, 0)
            elif name and not (self[name] and _SETTING.match(word.text)):
                self[name].append(word.text)
            else:
                self.others.append(word.text)

    def has(self, *names: str) -> bool:
        """Return whether any of *names* is given."""
        return bool(self.given(*names))

    def given(self, *names: str) -> str:
        """Return the first of *names* that is given; empty if none is.  Marks all as read."""
        self.read.update(names)
        return next((name for name in names if name in self), "")

    def value(self, name: str) -> str | None:
        """Return the value of *name*; None if there is none.  Does not mark it as read."""
        return " ".join(self.get(name, [])) or None

    def written(self, *names: str) -> str:
        """Return the first of *names* that the command gives, as it spells it, with its value; empty if none is."""
        return next((f"{self._spelt[name]} {self.value(name) or ''}" for name in names if name in self._spelt), "")

    def take(self, name: str, value: str, at: Fault) -> None:
        """Take *value* for *name*, which another file says *at* a place, unless the command says one."""
        if name not in self:
            self[name] = [value]
            self._places[name] = at.file, at.line, at.column

    def flag(self, *names: str) -> bool:
        """Return whether the first of *names* that is given is on: without a value, or with one that says yes."""
        name = self.given(*names)
        value = self.value(name)
        if value is not None and not (is_on(value) or is_off(value)):
            self.fault(name, f"'{one_line(value, 40)}' is neither true nor false")
        return bool(name) and (value is None or is_on(value))

    def text(self, *names: str) -> str | None:
        """Return the value of the first of *names* that is given; None if none is."""
        name = self.given(*names)
        if name and not self[name]:
            self.fault(name, "needs a value")
        return " ".join(self[name]) if self.get(name) else None

    def number(self, *names: str, least: int = 1) -> int | None:
        """Return the integer value of the first of *names* that is given; None if none is, or after a fault."""
        for name in names:
            first, *others = self.get(name) or [""]
            if first.isdigit() and others and all(_PLACE.search(word) for word in others):
                self[name], self.others = [first], self.others + others  # -b 256 /data
        text = self.text(*names)
        if text is None:
            return None
        if re.fullmatch(r"\d{1,12}", text, re.ASCII) and least <= int(text) <= _MOST:
            return int(text)
        unset = "$" in text or "`" in text
        why = "is set nowhere in what is read; write its value" if unset else "is not a whole number"
        self.fault(self.given(*names), f"{one_line(text, 40)} {why}{'' if '$' in text else f', {least} to {_MOST}'}")
        return None

    def choice(self, allowed: Sequence[str], *names: str) -> str | None:
        """Return the value, one of *allowed*, of the first of *names* given; None if none is, or after a fault."""
        text = self.text(*names)
        if text is None or text.lower() in allowed:
            return text if text is None else text.lower()
        self.fault(self.given(*names), f"'{one_line(text, 40)}' is not known; {nearest(text.lower(), allowed)}")
        return None

    def fault(self, name: str, message: str) -> None:
        """Record a fault of the argument *name*."""
        self.faults.append(self.at(name, message))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the faults of an InputError that is raised within, which ends it."""
        try:
            yield
        except InputError as error:
            self.faults += error.faults

    def at(self, name: str, message: str) -> Fault:
        """Return a fault of the argument *name*, with its place."""
        return Fault(f"{spelt_flag(name)}: {message}", *self._places.get(name, (self.file, 0, 0)))


class Files:
    """The files of the script *script*, which has *written* some: by path, their line in the script and their text."""

    def __init__(self, script: str, written: Mapping[str, tuple[int, str]]) -> None:
        self._script = script
        self._written = {normpath(path): found for path, found in written.items()}

    def has(self, path: str) -> bool:
        """Return whether there is a file *path*."""
        return normpath(path) in self._written or exists(path)

    def read(self, path: str, most: int, *, needed: str, usual: str) -> bytes:
        """Return the content of *path*; raises InputError as :func:`read_user_file` does."""
        found = self._written.get(normpath(path))
        return found[1].encode() if found else read_user_file(path, most, needed=needed, usual=usual)

    def document(self, path: str, kind: str, *, json: bool = False) -> YamlSource:
        """Return the document *path*, a *kind* in messages, at the lines of a script that writes it; or InputError."""
        if normpath(path) not in self._written:
            return read_json(Path(path), kind) if json else read_yaml(Path(path), needs=kind)
        line, text = self._written[normpath(path)]
        is_own = self._script == mention("launch")
        raw, name = (text, path) if is_own else ("\n" * (line - 1) + text, self._script)
        return parse_json(raw.encode(), name, kind) if json else parse_yaml(raw.encode(), name, needs=kind)


def leaves(data: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in the sections of *data*, at any depth, each with its dotted name."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


_SUMS: Mapping[type, Callable[[int, int], int]]
_SUMS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: mod}
_SUMS |= {ast.Gt: gt, ast.GtE: ge, ast.Lt: lt, ast.LtE: le, ast.Eq: eq, ast.NotEq: ne}
_CHOICE = re.compile(r"([^?:]+)\?([^?:]+):([^?:]+)")  # of shells: (A > 1) ? 1 : 0


def whole_sum(text: str) -> int | None:
    """Return the value of integer arithmetic *text*; None if it is anything else."""
    found = whole_numbers(_CHOICE.sub(r"(\2) if (\1) else (\3)", text.replace("/", "//")), 0)
    return found if isinstance(found, int) else None


def whole_numbers(text: str, most: int) -> int | list[int] | None:
    """Return the whole number, or those, *most* at most, that *text* lists, adds or repeats (``[0]*1+[1]*3``)."""
    try:
        return _evaluated(ast.parse(text.strip(), mode="eval").body, most)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluated(node: ast.expr, most: int) -> int | list[int]:
    """Return the whole number or the list, of at most *most*, that *node* says; raises ValueError for others."""
    found: int | list[int] | None = None
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.IfExp):
        found = _evaluated(node.body if _evaluated(node.test, most) else node.orelse, most)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SUMS:
        left, right = _evaluated(node.left, most), _evaluated(node.comparators[0], most)
        found = int(_SUMS[type(node.ops[0])](left, right)) if isinstance(left, int) and isinstance(right, int) else None
    elif isinstance(node, ast.List):
        found = [each for item in node.elts if isinstance(each := _evaluated(item, most), int)]
        found = found if len(found) == len(node.elts) else None
    elif isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        left, right = _evaluated(node.left, most), _evaluated(node.right, most)
        if isinstance(left, int) and isinstance(right, int):
            found = _SUMS[type(node.op)](left, right)
            found = found if abs(found) < _LARGEST else None
        elif isinstance(left, list) and isinstance(right, list):
            found = left + right if isinstance(node.op, ast.Add) else None
        elif isinstance(left, list) and isinstance(right, int) and isinstance(node.op, ast.Mult):
            found = left * min(right, most + 1)  # more than there may be is refused below
    if found is None or (isinstance(found, list) and len(found) > most):
        raise ValueError("neither a whole number nor a list of them")
    return found


def reasons(named: Mapping[str, str]) -> dict[str, str]:
    """Return the reason for each argument; *named* has the names, separated by spaces, of each reason."""
    return {name: why for why, names in named.items() for name in names.split()}


class Names:
    """The names in *text*; one with a final ``*`` stands for any that begins so."""

    def __init__(self, text: str) -> None:
        words = text.split()
        self._whole = frozenset(words)
        self._begin = tuple(word[:-1] for word in words if word.endswith("*"))

    def __contains__(self, name: str) -> bool:
        return name in self._whole or name.startswith(self._begin)


_ANY, _OF_LAUNCHER = Names(_KNOWN["timeless"]), Names(_KNOWN["of_launchers"])
NOT_MODELLED = reasons(_KNOWN["instead"])
REFUSED = reasons(_KNOWN["refused"]) | dict.fromkeys(("use-cpu", "no-cuda", "cpu"), ON_CPU)


def is_timeless(name: str, of_launcher: bool = False) -> bool:
    """Return whether the argument *name*, perhaps *of_launcher*, does not affect the time of a step."""
    return name in _ANY or (of_launcher and name in _OF_LAUNCHER)


def refuse_arguments(args: Arguments, launcher: Arguments, starter: str) -> None:
    """Raise InputError with all faults, an argument nearly known alone; *launcher*'s count if it is *starter*."""
    both = [args] if launcher is args else [args, launcher]
    known = frozenset(args.read | launcher.read | NOT_MODELLED.keys() | REFUSED.keys())
    misspelt = [
        each.at(name, f"is not known; did you mean '{spelt_flag(near)}'? If not, leave it out")
        for each in (both if starter else [args])
        for name in _unknown(each, of_launcher=each is launcher)
        if (near := _meant(name, known)) and not (each.get(near) and each[name])  # each has a value of its own
    ]
    if misspelt:
        raise InputError(misspelt)
    for each in both:
        for name in each:
            if name in REFUSED and name not in each.read and not is_off(each.value(name) or "true"):
                each.fault(name, REFUSED[name])
            device = (each.value(name) or "").lower().partition(":")[0] if name in DEVICES else ""
            if device == "cpu":
                each.fault(name, ON_CPU)
            elif device in ("cuda", "gpu"):
                each.has(name)  # read: what is simulated anyway
    if faults := dict.fromkeys([*args.faults, *launcher.faults]):
        raise InputError(list(faults))


@lru_cache(maxsize=1024)
def _meant(name: str, known: frozenset[str]) -> str:
    """Return which of *known* differs from *name* by its hyphens, one letter, or two of a long name; or nothing."""
    if name in known:  # one of the launcher's, given to the program
        return ""
    plain = {each.replace("-", ""): each for each in known}
    wanted = name.replace("-", "").lower()
    for near in get_close_matches(wanted, plain, n=3, cutoff=0.7):
        same = sum(block.size for block in SequenceMatcher(None, near, wanted).get_matching_blocks())
        shorter, longer = sorted((len(near), len(wanted)))
        begun = zip(name.lower().split("-"), plain[near].split("-"), strict=False)  # patch-size is not batch-size
        slips = 2 if shorter >= _LONG else 1 if shorter >= _SHORTEST else 0
        if near == wanted or (longer - same <= slips and all(word[:1] == other[:1] for word, other in begun)):
            return plain[near]
    return ""


def unread(args: Arguments, launcher: Arguments, starter: str, files: list[str]) -> list[str]:
    """Return notes on what is not modelled or not known, *launcher*'s if it is *starter*; add to unread *files*."""
    notes = _not_modelled(args)
    files += [word for word in args.others if _FILE.fullmatch(word)]
    unknown: dict[str, list[str]] = {"": []}
    for name in _unknown(args):
        first = (args.value(name) or "").partition(" ")[0]
        if _FILE.fullmatch(first):
            files.append(first)
        else:
            unknown[""].append(spelt_flag(name))
    unknown[""] += [one_line(word, 40) for word in args.others if _SETTING.fullmatch(word)]
    if starter and launcher is not args:
        notes += _not_modelled(launcher)
        for name in _unknown(launcher, of_launcher=True):
            file = launcher.at(name, "").file
            unknown.setdefault("" if file == args.file else file, []).append(spelt_flag(name))
    for file, listed in unknown.items():
        if listed:
            notes.append(f"{file}{': ' if file else ''}not known, and without effect: {few(listed)}")
    if files:
        notes.append(f"not read, and without effect: {few([one_line(file, 60) for file in files])}")
    return notes


def _not_modelled(args: Arguments) -> list[str]:
    notes = []
    for name in args:
        said = args.value(name) or ""
        usual = said and (is_off(said) or said.lower() == _KNOWN["usual"].get(name))
        if name not in args.read and name in NOT_MODELLED and not usual:
            notes.append(f"{spelt_flag(name)}: is not modelled; {NOT_MODELLED[name]}")
    return notes


def _unknown(args: Arguments, *, of_launcher: bool = False) -> list[str]:
    known = args.read | NOT_MODELLED.keys() | REFUSED.keys()
    return [name for name in args if name not in known and not is_timeless(name, of_launcher)]
