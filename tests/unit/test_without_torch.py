"""Plain pytest runs without torch: a file of tests that needs it skips before it imports what does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def imported(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of modules that *body* imports at its head, those in functions left out."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def file_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


@cache
def imports_of(module: str) -> tuple[str, ...]:
    path = file_of(module)
    return () if path is None else tuple(imported(ast.parse(path.read_text(encoding="utf-8")).body))


def needs_torch(module: str) -> bool:
    """Return whether importing *module* imports torch."""
    seen, left = {module}, [module]
    while left:
        new = [name for name in imports_of(left.pop()) if name not in seen]
        seen.update(new)
        left += new
    return any(name.partition(".")[0] == "torch" for name in seen)


def skips(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
    return isinstance(value, ast.Call) and ast.unparse(value).startswith("pytest.importorskip('torch'")


def test_what_needs_torch_skips_first() -> None:
    too_early: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        before = list(takewhile(lambda node: not skips(node), nodes))
        if found := [module for module in imported(before) if needs_torch(module)]:
            too_early[path.stem] = found
    assert too_early == {}
