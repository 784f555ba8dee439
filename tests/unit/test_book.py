"""docs/book.md and docs/scenarios.md agree with the program, and items marked as right are right."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from simulator.scenarios.catalogue import in_order

ROOT = Path(__file__).resolve().parents[2]
AGAIN = "run python -m docs.make_pages"


def _make_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_pages"] = module
    spec.loader.exec_module(module)
    return module


pages = _make_pages()
BOOK = (ROOT / "docs" / "book.md").read_text(encoding="utf-8")
SCENARIOS = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
ITEMS = pages.read_items()


def test_the_items_are_numbered_and_each_has_one_command_or_a_reason() -> None:
    assert [item.number for item in ITEMS] == list(range(1, 149))
    for item in ITEMS:
        assert (item.run is None) or (item.scenario is None), item.number
        assert bool(item.command) != bool(item.refused), item.number
        assert not (item.partly and item.refused), item.number


def test_most_statements_are_right() -> None:
    assert sum(item.verdict == "right" for item in ITEMS) >= 135


@pytest.mark.slow
def test_the_page_of_the_book_says_what_is_answered() -> None:
    book = pages.Book(ITEMS)
    wrong = []
    for item in ITEMS:
        answers = book.answers(item)
        held = [answer.holds for answer in answers]
        if item.verdict == "right" and (False in held or True not in held):
            wrong.append((item.number, pages.answer_words(answers)))
    assert wrong == []
    assert f"<!-- book -->\n{pages.book_body(book)}<!-- /book -->" in BOOK, AGAIN


def test_every_scenario_is_on_its_page_with_its_picture() -> None:
    shown = re.findall(r"^### (\S+)$", SCENARIOS, re.MULTILINE)
    assert shown == [scenario.name for scenario in in_order()], AGAIN
    pictures = {path.stem for path in (ROOT / "docs" / "images" / "scenarios").glob("*.svg")}
    assert pictures == set(shown), AGAIN
