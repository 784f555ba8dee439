"""Where scenarios lie: a path is the user's own file, a name is a built-in one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.scenarios.file import Scenario, read_scenario

__all__ = ["builtin_scenarios", "find_scenario", "in_order", "needed_files"]

_FOLDER = Path(__file__).parent / "files"
_SUFFIXES = (".yaml", ".yml")
_NODE = re.compile(r"\bnode:\s*([\w./-]+\.ya?ml)\b", re.ASCII)
_IS_SCENARIO = re.compile(r"^(?:runs|answers):", re.MULTILINE)


@lru_cache(maxsize=1)
def builtin_scenarios() -> dict[str, Path]:
    """Return the files of the built-in scenarios by name; machines and programs lie among them."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return {path.stem: path for path in files if _IS_SCENARIO.search(path.read_text(encoding="utf-8"))}


def find_scenario(name: str) -> Scenario:
    """Return the scenario that *name* stands for: a path, or a built-in name.

    Raises InputError where there is none, naming the nearest, or with all faults of its file.
    """
    if name.endswith(_SUFFIXES) or os.sep in name:
        path = Path(name)
        if path.exists() or path.stem not in builtin_scenarios():
            return read_scenario(path, name)
        hint = f"did you mean '{path.stem}', which is built in?"
        raise InputError(Fault(f"cannot be read: no such file; {hint}", one_line(name)))
    path_of = builtin_scenarios()
    if name not in path_of:
        raise InputError(f"scenario {one_line(name, 60)}: there is none; {nearest(name, path_of)} (--list)")
    return read_scenario(path_of[name], path_of[name].name)


def in_order() -> list[Scenario]:
    """Return the built-in scenarios in the order of a course: by chapter, then as their files say."""
    found = [read_scenario(path, path.name) for path in builtin_scenarios().values()]
    return sorted(found, key=lambda scenario: (_place(scenario.chapter), scenario.order, scenario.name))


def _place(chapter: str) -> tuple[bool, str, tuple[int, ...]]:
    """Return where a chapter stands: those of the book without a name first; last what has no number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)*)\s*(.*)", chapter, re.ASCII)
    if match is None:
        return True, chapter, ()
    return False, match[2], tuple(map(int, match[1].split(".")))


def needed_files(scenario: Scenario) -> Iterator[Path]:
    """Yield the files beside *scenario* that its runs name, by their place in its folder."""
    folder = scenario.path.parent
    words = {part for run in scenario.runs for word in run.arguments for part in re.split(r"[,=:@]", word) if part}
    found = {Path(word) for word in words if _lies_within(folder, Path(word))}
    for path in list(found):  # clusters name the files of their nodes, which lie beside them
        nodes = _NODE.findall((folder / path).read_text(encoding="utf-8")) if path.suffix in _SUFFIXES else []
        found |= {path.parent / node for node in nodes if _lies_within(folder, path.parent / node)}
    yield from sorted(found)


def _lies_within(folder: Path, path: Path) -> bool:
    return not path.is_absolute() and ".." not in path.parts and (folder / path).is_file()
