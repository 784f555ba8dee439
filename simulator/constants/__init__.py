"""Constants of the models, as data: ``NAME.json`` in this folder has those of one model.

For each constant, the file gives its value, unit, meaning and origin (``from``): a fit, with its relative ``spread``
(one standard deviation) and whether it is at a ``bound``; a source; or a choice.  For each fit, ``fitted`` gives the
command and its rows.  ``validate fit --write`` writes the files; see docs/constants.md.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

T = TypeVar("T", bound="Values")

_READERS: "dict[str, type[Values]]" = {}  # by file: the class that reads it, once imported


class Values:
    """The constants of a file, or of a part of it, as attributes by their names; a class says what is no number.

    The ``FILE`` of a class is in the ``constants`` folder of its top-level package.  ``PARTS``: the classes of those
    with dotted names; a mapping by default.  ``ALIKE``: prefixes of names, and those whose values they have unless they
    have their own.  No type checker sees the names; ``tests/unit/test_constants.py`` does.
    """

    FILE: ClassVar[str] = ""
    PARTS: ClassVar[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {}
    ALIKE: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, file: str) -> None:
        cls.FILE = file
        _READERS[file] = cls

    def __init__(self, values: Mapping[str, Any]) -> None:
        nested: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            head, dot, rest = key.partition(".")
            if dot:
                nested.setdefault(head, {})[rest] = value
            else:
                vars(self)[key] = value
        vars(self).update((head, self.PARTS.get(head, dict)(inner)) for head, inner in nested.items())

    def but(self, **changed: Any) -> Self:
        """Return the same with the *changed* ones."""
        found = type(self)(changed)
        vars(found).update({**vars(self), **changed})
        return found

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...


def by_name(cls: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of *cls* for each first part of the names of *values*, made of what follows by name."""
    return {name: cls(**_below(values, name)) for name in dict.fromkeys(key.partition(".")[0] for key in values)}


def constants_path(name: str) -> Traversable:
    """Return the path of the file *name*."""
    package = _READERS.get(name, Constants).__module__.partition(".")[0]
    return files(f"{package}.constants").joinpath(f"{name}.json")


def constants_file(name: str) -> dict[str, Any]:
    """Return the contents of the file *name*."""
    found: dict[str, Any] = json.loads(constants_path(name).read_text(encoding="utf-8"))
    return found


class Constants:
    """The constants of each file: ``constants["gemm"].fetch``; where a class reads it, ``constants(NcclConstants)``.

    - ``changed``: values that replace those in the files, by file and name: ``gemm.fetch``.

    Raises ValueError if no file has a constant of that name.
    """

    def __init__(self, changed: Mapping[str, float] | None = None) -> None:
        self.changed = dict(changed or {})
        for name in self.changed:
            file, _, constant = name.partition(".")
            if constant not in _values(file):
                raise ValueError(f"{name}: there is no such constant")
        self._filled: dict[type[Values] | str, Any] = {}

    def __getitem__(self, file: str) -> Values:
        """Return the numbers of *file*, or of a part of it (``front_ends.mxnet``); the same object each time.

        Those of parts are not among the numbers of their file.  Raises ValueError if there are none of that name, or
        if a class reads the file, as its parts are more than numbers.
        """
        if file not in self._filled:
            name, _, part = file.partition(".")
            if name in _READERS:
                raise ValueError(f"{file}: read by constants({_READERS[name].__name__}) alone")
            values = {**_values(name), **_below(self.changed, name)}
            numbers = {
                key: value for key, value in (_below(values, part) if part else values).items() if "." not in key
            }
            if not numbers:
                raise ValueError(f"{file}: there are no such constants")
            self._filled[file] = Values(numbers)
        found: Values = self._filled[file]
        return found

    def __call__(self, cls: type[T]) -> T:
        """Return *cls* filled with its constants; the same object each time."""
        found: T | None = self._filled.get(cls)
        if found is None:
            values = {**_values(cls.FILE), **_below(self.changed, cls.FILE)}
            for prefix, like in cls.ALIKE.items():
                alike = {key.removeprefix(like): value for key, value in values.items() if key.startswith(like)}
                values = {**{f"{prefix}{key}": value for key, value in alike.items()}, **values}
            found = self._filled[cls] = cls(values)
        return found


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
