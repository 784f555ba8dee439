"""No name of a data set, its machine or its publisher affects a prediction: only columns do."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Files that read tables document their conventions with sources; importers make tables.
READERS = ("validate/importing/", "validate/cli/import_.py")
PUBLISHERS = ("neusight", "deepbench", "superbench", "llm-foundry", "llmfoundry", "dlperf", "aiconfigurator", "habitat")


def code() -> Iterator[tuple[str, int, str]]:
    """Yield file, line number and code of everything that can affect a prediction: with strings, without comments."""
    for top in ("simulator", "validate"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name.startswith(READERS):
                continue
            text = re.sub(r'"""(?:.|\n)*?"""', lambda match: "\n" * match[0].count("\n"), path.read_text("utf-8"))
            for number, line in enumerate(text.splitlines(), start=1):
                yield name, number, line.split("  #")[0].lower()


def test_publishers_are_named_where_tables_are_read_alone() -> None:
    shown_of_a_network = re.compile(r"\(r?\"[^\"]*\", \"[^\"]*\"\)")  # (name, what the list of networks says of it)
    found = [
        (name, number, word)
        for name, number, line in code()
        for word in PUBLISHERS
        if word in shown_of_a_network.sub("", line)
    ]
    assert found == []


def names_in(folder: Path) -> set[str]:
    """Return the names of data sets in the tables under *folder*."""
    found: set[str] = set()
    for table in folder.rglob("*.csv"):
        with table.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                found.update((row.get("dataset") or "").lower().split(";"))
    return {name.strip() for name in found if "_" in name}


def test_no_data_set_of_the_project_is_named() -> None:
    check_not_named(names_in(ROOT / "validate" / "measurements"))


@pytest.mark.slow
@pytest.mark.corpus
def test_no_published_data_set_is_named(corpus: Path) -> None:
    check_not_named(names_in(corpus))


def check_not_named(names: set[str]) -> None:
    assert names
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)))
    assert [(name, number, match[0]) for name, number, line in code() for match in pattern.finditer(line)] == []
