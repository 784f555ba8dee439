"""No file imports itself, directly or through others; imports in functions and for types alone count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("simulator", "validate", "reports")


def modules() -> dict[str, ast.Module]:
    """Return the parsed source of every module, by its name."""
    found = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """Yield the *known* modules that *tree* imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports name their module in full"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def circle_of(trees: Mapping[str, ast.Module]) -> list[str]:
    """Return modules that import each other in this order, first and last the same; empty if there are none."""
    try:
        TopologicalSorter({name: set(imported(tree, trees)) for name, tree in trees.items()}).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_circle_of_files() -> None:
    circle = circle_of(modules())
    assert not circle, f"these files import each other in a circle: {' -> '.join(circle)}"


def test_circles_of_local_and_type_imports_are_found() -> None:
    first = "def f():\n    from room.second import g\n"
    second = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import room.third\n"
    third = "from room import first\n"
    sources = {"room": "", "room.first": first, "room.second": second, "room.third": third}
    trees = {name: ast.parse(text) for name, text in sources.items()}
    found = circle_of(trees)
    assert {*found} == {"room.first", "room.second", "room.third"}
    assert all(there in imported(trees[here], trees) for here, there in pairwise(found))
