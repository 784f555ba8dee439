"""Finding scenarios: a path is the user's own file, a name is a built-in one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.scenarios.file import Scenario, read_scenario

_FOLDER = Path(__file__).parent / "files"
_SUFFIXES = (".yaml", ".yml")
_IS_SCENARIO = re.compile(r"^(?:runs|answers):", re.MULTILINE)


@lru_cache(maxsize=1)
def builtin_scenarios() -> dict[str, Path]:
    """Return the files of the built-in scenarios by name; the folder also holds machines and programs."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return {path.stem: path for path in files if _IS_SCENARIO.search(path.read_text(encoding="utf-8"))}


def find_scenario(name: str) -> Scenario:
    """Return the scenario of *name*, a path or built-in; raises InputError with the nearest name or all faults."""
    if name.endswith(_SUFFIXES) or os.sep in name:
        path = Path(name)
        if os.path.exists(name) or path.stem not in builtin_scenarios():
            return read_scenario(path, name)
        hint = f"did you mean '{path.stem}', which is built in?"
        raise InputError(Fault(f"cannot be read: no such file; {hint}", one_line(name)))
    path_of = builtin_scenarios()
    if name not in path_of:
        raise InputError(
            f"scenario {one_line(name, 60)}: no such scenario; {nearest(name, path_of, listed=3)} (--list)"
        )
    return read_scenario(path_of[name], path_of[name].name)


def in_order() -> list[Scenario]:
    """Return the built-in scenarios in course order: by chapter, then by the order in their files."""
    found = [read_scenario(path, path.name) for path in builtin_scenarios().values()]
    return sorted(found, key=lambda scenario: (_place(scenario.chapter), scenario.order, scenario.name))


def _place(chapter: str) -> tuple[bool, str, tuple[int, ...]]:
    """Return the sort key of a chapter: numbered chapters first, by book and number, then chapters without a number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)*)\s*(.*)", chapter, re.ASCII)
    if match is None:
        return True, chapter, ()
    return False, match[2], tuple(map(int, match[1].split(".")))


def needed_files(scenario: Scenario) -> Iterator[Path]:
    """Yield the files beside *scenario* that its runs need, directly or through other files, relative to its folder."""
    folder = scenario.path.parent
    words = {part for run in scenario.runs for word in run.arguments for part in re.split(r"[,=:@]", word) if part}
    found: dict[Path, None] = {}
    wanted = [path for word in sorted(words) if (path := _beside(folder, Path(), word)) is not None]
    while wanted:
        path = wanted.pop(0)
        if path not in found:
            found[path] = None
            wanted += _named_in(folder, path)
    yield from found


def _named_in(folder: Path, path: Path) -> list[Path]:
    """Return the files that the YAML file *path* names: nodes of a cluster, networks of a program."""
    if path.suffix not in _SUFFIXES:
        return []
    text = (folder / path).read_text(encoding="utf-8")
    words = dict.fromkeys(re.findall(r"[\w./-]+\.ya?ml\b", text))
    return [found for word in words if (found := _beside(folder, path.parent, word)) is not None]


def _beside(folder: Path, within: Path, word: str) -> Path | None:
    """Return the path of the file *word*, relative to *within*, if it lies in *folder*; otherwise None."""
    if os.path.isabs(word):
        return None
    path = Path(os.path.normpath(within / word))
    is_inside = ".." not in path.parts
    return path if is_inside and os.path.isfile(folder / path) else None  # no OSError for a name that no file can have
