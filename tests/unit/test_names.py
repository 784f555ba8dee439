"""One public name, one meaning: no two classes share a name, nor two functions."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVERYWHERE = {"main", "cases", "simulate"}  # the same wherever it is: a command, cases of a kind, a door


@cache
def _statements() -> list[tuple[str, str, str]]:
    """Return the file, keyword and name of each class and function at the top of a file."""
    return [
        (str(path.relative_to(ROOT)), *found)
        for room in ("simulator", "validate", "reports")
        for path in sorted((ROOT / room).rglob("*.py"))
        for found in re.findall(r"^(class|def) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def _defined(kind: str) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for file, found, name in _statements():
        if found == kind and not name.startswith("_"):
            places[name].append(file)
    return places


def test_no_two_classes_share_a_name() -> None:
    assert {name: places for name, places in _defined("class").items() if len(places) > 1} == {}


def test_no_two_functions_share_a_name() -> None:
    found = {name: places for name, places in _defined("def").items() if len(places) > 1}
    assert {name: places for name, places in found.items() if name not in EVERYWHERE} == {}


def test_the_glossary_has_each_word_once() -> None:
    rows = [line for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    words = [row.split("|")[1].strip() for row in rows if row != "| word | meaning |"]
    assert len(words) == len(set(words)) > 40
