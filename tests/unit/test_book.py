"""docs/book.md and docs/scenarios.md agree with the program, and items marked as right are right."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from simulator.cli.scenario_command import answer_scenario, scenario_lines
from simulator.console import PLAIN
from simulator.scenarios.answers import ScenarioAnswer
from simulator.scenarios.file import ExpectedValue, builtin_scenarios, find_scenario, in_order

pytestmark = pytest.mark.usefixtures("answered_once")

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


def test_each_item_says_what_its_answer_is_worth() -> None:
    for item in ITEMS:
        assert item.refused or item.how in ("computed", "echoed", "judged"), item.number
        if item.run == "simulate parts":  # it shows inputs alone
            assert item.verdict in ("echoed", "partly"), item.number


def is_threshold(expected: ExpectedValue) -> bool:
    """Whether an expectation is a bound on one side with a factor or a number of ours, which no source states."""
    bounds = [bound.text for bound in (expected.low, expected.high) if bound is not None]
    one_sided = len(bounds) == 1 and "/ (" not in bounds[0]  # bytes over a rate
    return one_sided and re.match(r"(?!(0|1)( |$))[\d./]+( \*|$|[a-z ]+$)", bounds[0]) is not None


def test_a_bound_of_ours_is_told() -> None:
    """An item that only such bounds judge says so; sources state 500 GB/s of a 2080 Ti alone so, which is an input."""
    for item in ITEMS:
        asked = pages.requests(item)
        expected = [each.expected for each in asked if each.expected is not None and each.expected.words is None]
        if item.how == "computed" and expected and not item.partly:
            assert not all(map(is_threshold, expected)), item.number


def test_the_honest_count() -> None:
    """As the page says; a change is a change of what is claimed."""
    found = Counter(item.verdict for item in ITEMS)
    assert found == {"computed": 78, "judged": 18, "echoed": 31, "partly": 20, "not": 1}


@functools.cache
def answered(name: str) -> tuple[ScenarioAnswer, ...]:
    """Return the answers of a built-in scenario, which the book has too."""
    return answer_scenario(find_scenario(name))[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin_scenarios())
def test_a_built_in_scenario_holds_what_it_says(name: str) -> None:
    answers = answered(name)
    wrong = [
        f"{answer.asked.name}: {answer.value}, error {answer.error}" for answer in answers if answer.holds is False
    ]
    assert wrong == []
    shown = "\n".join(line.rstrip() for line in scenario_lines(find_scenario(name), answers, PLAIN))
    assert f"$ simulate scenario {name}\n{shown}\n```" in SCENARIOS, "run docs.make_pages"


@pytest.mark.slow
def test_the_page_of_the_book_says_what_is_answered() -> None:
    book = pages.Book(ITEMS, {item.scenario: answered(item.scenario) for item in ITEMS if item.scenario})
    wrong = []
    for item in ITEMS:
        answers = book.answers(item)
        held = [answer.holds for answer in answers]
        if item.verdict in ("computed", "judged", "echoed") and (False in held or True not in held):
            wrong.append((item.number, pages.answer_words(answers)))
    assert wrong == []
    assert f"<!-- book -->\n{pages.book_body(book)}<!-- /book -->" in BOOK, AGAIN


def test_every_scenario_is_on_its_page_with_its_picture() -> None:
    shown = re.findall(r"^### (\S+)$", SCENARIOS, re.MULTILINE)
    assert shown == [scenario.name for scenario in in_order()], AGAIN
    pictures = {path.stem for path in (ROOT / "docs" / "images" / "scenarios").glob("*.svg")}
    assert pictures == set(shown), AGAIN
