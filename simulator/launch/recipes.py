"""Files of settings that a program reads in place of arguments (docs/decisions/launch-lines.md)."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from simulator.errors import Fault, InputError, few, one_line
from simulator.launch.arguments import Arguments, Names, is_off, reasons
from simulator.package_data import own_data
from simulator.records import dataclass
from simulator.topology.yaml_source import YamlSource

_KINDS: Mapping[str, Any] = own_data("simulator.launch", "recipes.yaml")
_FILE = re.compile(r"\S+\.ya?ml")
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_ARGUMENTS = ("config", "config-file", "config-name")  # that name a file
_REFERENCE = re.compile(r"\$\{(\.?)([\w.]+)\}")  # of OmegaConf: to a key, or to one of the same section
_Name = str | Mapping[Any, str | None] | None  # of an argument, or of the one that each value is
_Given = tuple[_Name, Any, Fault]
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a file says beside arguments: the number of ``ranks``, None if it says none, at a place of the file."""

    ranks: int | None = None
    at: Fault | None = None

    def check(self, whole: int | None, args: Arguments) -> None:
        """Add a fault to *args* if the launcher starts *whole* ranks, and the file divides a step over others."""
        if self.at is not None and whole not in (None, self.ranks):
            told = f"is for {self.ranks} ranks, and the launcher starts {whole}"
            args.faults.append(Fault(told, self.at.file, self.at.line, self.at.column))


class _Settings(dict[str, Any]):
    """The values of a file by dotted key, and those that the command line *said*; of lists, their words."""

    def __init__(self, source: YamlSource | None, said: Mapping[str, str]) -> None:
        super().__init__(self._flat(source.data, ()) if source else ())
        self.source, self._said = source, said
        self.update((key, _WORDS.get(value.lower(), value)) for key, value in said.items())
        for key, value in self.items():
            if isinstance(value, str) and (match := _REFERENCE.fullmatch(value)):
                section = key.rpartition(".")[0]
                self[key] = self.get(f"{section}.{match[2]}" if match[1] else match[2], value)

    def _flat(self, data: Mapping[Any, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for key, value in data.items():
            path = (*above, str(key))
            if isinstance(value, dict):
                yield from self._flat(value, path)
            elif not isinstance(value, list):
                yield ".".join(path), value
            elif not any(isinstance(each, dict | list) for each in value):
                yield ".".join(path), " ".join(map(str, value))

    def at(self, key: str) -> Fault:
        """Return the place of *key*; none for one of the command line."""
        return Fault("") if self.source is None or key in self._said else self.source.fault(tuple(key.split(".")), "")

    def has(self, name: str) -> bool:
        """Return whether there is a key *name*, or one in the section of that name."""
        return any(key == name or key.startswith(f"{name}.") for key in self)

    def is_on(self, name: str) -> bool:
        """Return whether such a key is on."""
        return any((key == name or key.startswith(f"{name}.")) and not is_off(said) for key, said in self.items())

    def product(self, names: str) -> int | None:
        """Return the product of the keys *names*, 1 where one is missing; None without the first."""
        first, *others = names.split()
        values = [str(self.get(name, 1)) for name in (first, *others)]
        return math.prod(map(int, values)) if first in self and all(map(str.isdecimal, values)) else None


def take_recipe(args: Arguments, launcher: Arguments) -> Recipe:
    """Add settings of the file that *args* name, and of the line, to *args* and *launcher*; faults to *args*."""
    said = {match[1]: match[2] for word in args.others if (match := _SETTING.fullmatch(word))}
    path, argument = _path(args)
    source = None
    if path and args.files.has(path):
        with args.recording():
            source = args.files.yaml(path, "a configuration")
            if not isinstance(source.data, dict):
                raise InputError(source.fault((), "a configuration is a mapping: micro_batch_size: 2"))
    settings = _Settings(source if source and isinstance(source.data, dict) else None, said)
    kind = next((each for each in _KINDS.values() if _is_marked(each, settings)), None)
    if kind is None:
        return Recipe()
    options = {name: name.replace("_", "-") for name in kind.get("names", ()) if "." not in name}
    of_line = {name: args.value(option) or "true" for name, option in options.items() if option in args}
    if source and of_line:  # axolotl train config.yaml --micro-batch-size 4
        settings = _Settings(source, {**said, **of_line})
        for name in of_line:
            del args[options[name]]
    args.has(argument, "config-path")
    args.others = [word for word in args.others if word != path and not _SETTING.fullmatch(word)]
    _take(kind, settings, args, launcher)
    ranks = settings.product(kind["ranks"]) if "ranks" in kind else None
    return Recipe(ranks, None if ranks is None else settings.at(kind["ranks"].split()[0]))


def _path(args: Arguments) -> tuple[str, str]:
    for name in _ARGUMENTS:
        said = args.value(name) or ""
        if name == "config-name" and said:  # Hydra's, in the folder of --config-path
            said = posixpath.join(args.value("config-path") or "", said if _FILE.fullmatch(said) else f"{said}.yaml")
        if _FILE.fullmatch(said):
            return said, name
    return next((word for word in args.others if _FILE.fullmatch(word)), ""), ""


def _is_marked(kind: Mapping[str, Any], settings: _Settings) -> bool:
    return all(any(map(settings.has, marks.split("|"))) for marks in kind["marks"].split())


def _take(kind: Mapping[str, Any], settings: _Settings, args: Arguments, launcher: Arguments) -> None:
    of_launcher = Names(kind.get("of_launcher", ""))
    unknown: list[str] = []
    for name, value, at in (*_read(kind, settings, args.notes, unknown), *_added(kind, settings)):
        found = _argument(name, value)
        if found is not None:
            (launcher if found[0] in of_launcher else args).take(*found, at)
    args.notes += filter(None, [kind.get("told")])
    if unknown:
        file = f"{settings.source.file}: " if settings.source else ""
        args.notes.append(f"{file}not known, and without effect: {few(unknown)}")


def _read(kind: Mapping[str, Any], settings: _Settings, notes: list[str], unknown: list[str]) -> Iterator[_Given]:
    """Yield the argument of each key, its value and place; add *notes* on what is not modelled, and *unknown* keys."""
    names, sections, parts = kind.get("names", {}), kind.get("sections", "").split(), kind.get("parts", {})
    timeless, instead = Names(kind.get("timeless", "")), reasons(kind.get("instead", {}))
    for key, value in settings.items():
        section, _, last = key.rpartition(".")
        if section in parts:
            yield f"{parts[section]}{last.removeprefix(section.removesuffix('config'))}", value, settings.at(key)
        elif key in names:
            yield names[key], value, settings.at(key)
        elif key in instead and not is_off(value):
            notes.append(f"{key}: is not modelled; {instead[key]}")
        elif key in instead or key in timeless or value is None:
            continue
        elif section not in sections and (section or kind.get("strict")):
            unknown.append(key)
        elif value is not False or not section:  # Megatron-LM's switches are on where they are there
            yield last, value, settings.at(key)


def _added(kind: Mapping[str, Any], settings: _Settings) -> Iterator[_Given]:
    for said, without, within in kind.get("sets", ()):
        if not any(map(settings.is_on, without)) and (not within or any(map(settings.is_on, within))):
            yield said, True, Fault("")
    for name, keys in kind.get("products", {}).items():
        product = settings.product(keys)
        if product is not None:
            yield name, product, settings.at(keys.split()[0])


def _argument(name: _Name, value: Any) -> tuple[str, str] | None:
    """Return the argument that *name* is for *value*, or that a mapping has for it, with its value; None if none."""
    is_known = isinstance(name, Mapping) and name.get(value) is not None
    found = name.get(value, name.get("any")) if isinstance(name, Mapping) else name
    value = True if is_known else value
    if found is None or value is None or value == "auto":
        return None
    first, _, said = found.partition(" ")
    return first.replace("_", "-"), said or (str(value).lower() if isinstance(value, bool) else one_line(value, 200))
