"""docs/options.md names every option of every command, as the commands declare it."""

from __future__ import annotations

import re
from dataclasses import fields

from docs.make_options import PAGE, page
from simulator.cli.written import OPTIONS, CommandOptions
from tests.unit.test_options_are_read import options_of


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
    assert set(OPTIONS) ^ {field.name for field in fields(CommandOptions)} == {"completion", "debug", "version"}
