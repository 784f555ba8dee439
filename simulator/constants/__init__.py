"""Constants of the models, as data: ``NAME.json`` in this folder has those of one model.

For each constant, the file gives its value, unit, meaning and origin (``from``): a fit, with its relative ``spread``
(one standard deviation) and whether it is at a ``bound``; a source; or a choice.  For each fit, ``fitted`` gives the
command and its rows.  ``validate fit --write`` writes the files; see docs/constants.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar, dataclass_transform

from simulator.records import dataclass, fields

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Each:
    """Marks a mapping field; each value of the mapping is a *cls* filled from the constants below its name."""

    cls: type


_NAME = "__constants__"
_PACKAGES: dict[str, str] = {}  # by file: the top-level package of its class, once imported


@dataclass_transform(frozen_default=True)
def constants(name: str, *, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass, filled from *name* in the ``constants`` folder of its top-level package.

    Without *eq*, its objects compare by identity.
    """

    def named(cls: type[T]) -> type[T]:
        made = cls if "__dataclass_fields__" in vars(cls) else dataclass(cls, frozen=True, slots=True, eq=eq)
        setattr(made, _NAME, name)
        _PACKAGES[name] = made.__module__.partition(".")[0]
        return made

    return named


def constants_path(name: str) -> Traversable:
    """Return the path of the file *name*."""
    return files(f"{_PACKAGES.get(name, 'simulator')}.constants").joinpath(f"{name}.json")


def constants_file(name: str) -> dict[str, Any]:
    """Return the contents of the file *name*."""
    found: dict[str, Any] = json.loads(constants_path(name).read_text(encoding="utf-8"))
    return found


class Constants:
    """The constants of each class: ``constants(GemmConstants).fetch``.

    - ``changed``: values that replace those in the files, by file and name: ``gemm.fetch``.

    Raises ValueError if no file has a constant of that name.
    """

    def __init__(self, changed: Mapping[str, float] | None = None) -> None:
        self.changed = dict(changed or {})
        for name in self.changed:
            file, _, constant = name.partition(".")
            if constant not in _values(file):
                raise ValueError(f"{name}: there is no such constant")
        self._filled: dict[type, Any] = {}

    def __call__(self, cls: type[T]) -> T:
        """Return *cls* filled with its constants; the same object each time."""
        found = self._filled.get(cls)
        if found is None:
            found = self._filled[cls] = self._fill(cls)
        return found

    def _fill(self, cls: type[T]) -> T:
        name = getattr(cls, _NAME)
        values = {**_values(name), **_below(self.changed, name)}
        for prefix, like in getattr(cls, "ALIKE", {}).items():  # what is not said of the one is that of the other
            alike = {key.removeprefix(like): value for key, value in values.items() if key.startswith(like)}
            values = {**{f"{prefix}{key}": value for key, value in alike.items()}, **values}
        return _filled(cls, values, f"{name}.json")


def _filled(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return *cls* filled with *values*, dotted names into mappings or ``PARTS``; raises ValueError if names differ."""
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        head, dot, rest = key.partition(".")
        if dot:
            nested.setdefault(head, {})[rest] = value
        else:
            own[key] = value
    parts = getattr(cls, "PARTS", {})
    for head, inner in nested.items():
        part = parts.get(head, dict)
        if isinstance(part, Each):
            names = dict.fromkeys(key.partition(".")[0] for key in inner)
            own[head] = {name: _filled(part.cls, _below(inner, name), f"{where}: {head}.{name}") for name in names}
        else:
            own[head] = inner if part is dict else _filled(part, inner, f"{where}: {head}")
    known: tuple[Field[Any], ...] = fields(cls)  # type: ignore[arg-type]
    missing = {field.name for field in known if field.default is MISSING} - own.keys()
    if odd := missing | (own.keys() - {field.name for field in known}):
        raise ValueError(f"{where}: {sorted(odd)} are in the file or in {cls.__name__}, not in both")
    return cls(**own)


def _below(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key.partition(".")[2]: value for key, value in values.items() if key.partition(".")[0] == name}


@lru_cache(maxsize=64)
def _values(name: str) -> Mapping[str, Any]:
    try:
        entries = constants_file(name)["constants"]
    except FileNotFoundError:
        raise ValueError(f"{name}: there are no such constants") from None
    return {key: entry["value"] for key, entry in entries.items()}


DEFAULT = Constants()
"""The constants as in the files."""
