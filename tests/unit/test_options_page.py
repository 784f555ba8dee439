"""docs/options.md names every option of every command, as the commands declare it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.make_options import PAGE, page
from simulator.cli.written import DEFAULTS, OPTIONS, CommandOptions
from tests.unit.test_options_are_read import options_of

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_commands_declare() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m docs.make_options"


def test_every_option_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = {m[1]: m[2] for m in re.finditer(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)}
    for spelt in options_of():
        *command, option = spelt.split()
        of = [body for name, body in sections.items() if name.split()[1:2] == command[:1]]
        assert any(f"`{option}" in body for body in of), f"{spelt} is not on the page"


def test_each_option_of_a_question_is_declared_and_the_others_are_the_commands_own() -> None:
    assert set(OPTIONS) ^ set(DEFAULTS) == {"completion", "debug", "version"}


def test_code_names_options_that_are_declared() -> None:
    """No type checker knows them: they are declared in YAML."""
    places = [
        *(ROOT / "simulator" / "cli").glob("*.py"),
        ROOT / "simulator" / "python.py",
        ROOT / "validate/cli/run.py",
    ]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in places]
    named = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "written"
    }
    assert len(named) > 30
    assert named <= {*DEFAULTS, "but", "kind", "what"}
    with pytest.raises(TypeError, match="no such options: bacth"):
        CommandOptions(bacth="4")
