"""Regenerate the pages of answers: docs/scenarios.md with its pictures, and docs/book.md.

``python -m docs.make_pages`` rewrites the text between ``<!-- scenarios -->`` and ``<!-- /scenarios -->``, and likewise
for ``book``; ``docs/make_tables.py`` runs it too.  With ``--no-pictures`` the pictures stay as they are.

docs/book/items.yaml holds statements of two sources, item by item.  One command answers an item: that of a scenario
(``scenario``, and which of its ``answers``), or a ``run`` with ``answers`` in the format of scenario files, whose paths
begin with ``run``.  ``how`` says what the answer is worth: *computed*, *echoed* (its figures went in as they come out),
or *judged* (the source has no figure, and the threshold is ours).  ``partly`` and ``not`` give the reason why an answer
is not right; without them it must be, as ``tests/unit/test_book.py`` checks.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reports.curves import draw_answers
from simulator.cli.scenario_command import (
    answer_scenario,
    draws_run,
    error_words,
    expected_words,
    scenario_lines,
    value_words,
)
from simulator.console import PLAIN
from simulator.scenarios.answers import ScenarioAnswer
from simulator.scenarios.file import AnswerRequest, Scenario, find_scenario, in_order, scenario_from
from simulator.topology.yaml_source import YamlSource

DOCS = Path(__file__).resolve().parent
ITEMS = DOCS / "book" / "items.yaml"
PICTURES = DOCS / "images" / "scenarios"
_MARKED = re.compile(r"(<!-- (?P<what>\w+) -->\n)(?P<body>.*?)(<!-- /(?P=what) -->)", re.DOTALL)
MARKS = {"computed": "✔", "judged": "✔", "echoed": "=", "partly": "~", "not": "✘"}
HEADS = {
    "computed": "computed, right",
    "judged": "right by our threshold",
    "echoed": "input echoed",
    "partly": "partly",
    "not": "not",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One statement of a source: its number, source and words, and the command that answers it."""

    number: int
    source: str
    says: str
    run: str | None
    scenario: str | None
    answers: tuple[Any, ...]
    how: str
    partly: str
    refused: str

    @property
    def verdict(self) -> str:
        """What the item counts as, one of :data:`MARKS`, as given in the file."""
        return "not" if self.refused else "partly" if self.partly else self.how

    @property
    def command(self) -> str:
        """The command that answers the item; empty if there is none."""
        return f"simulate scenario {self.scenario}" if self.scenario else self.run or ""


def read_items(file: Path = ITEMS) -> list[Item]:
    """Return the items of *file* in order; raises AssertionError for an unknown key."""
    known = {"item", "of", "says", "run", "scenario", "answers", "how", "partly", "not"}
    found = []
    for entry in yaml.safe_load(file.read_text(encoding="utf-8")):
        assert set(entry) <= known, (entry.get("item"), set(entry) - known)
        found.append(
            Item(
                entry["item"],
                entry["of"],
                " ".join(entry["says"].split()),
                " ".join(entry["run"].split()) if "run" in entry else None,
                entry.get("scenario"),
                tuple(entry.get("answers", ())),
                entry.get("how", ""),
                " ".join(entry.get("partly", "").split()),
                " ".join(entry.get("not", "").split()),
            )
        )
    return found


def requests(item: Item) -> Sequence[AnswerRequest]:
    """Return the answers that *item* asks for, unanswered."""
    if item.scenario is not None:
        return [each for each in find_scenario(item.scenario).answers if not item.answers or each.name in item.answers]
    return _as_scenario(item).answers if item.run is not None else ()


class Book:
    """Items and their answers; a scenario that several items name is answered once."""

    def __init__(self, items: Sequence[Item], answered: Mapping[str, tuple[ScenarioAnswer, ...]] | None = None) -> None:
        self.items = items
        self._scenarios = dict(answered or {})

    def answers(self, item: Item) -> tuple[ScenarioAnswer, ...]:
        """Return the answers of *item*; raises InputError if its command fails."""
        if item.scenario is not None:
            found = self._scenario(item.scenario)
            names = [answer.asked.name for answer in found]
            missing = [name for name in item.answers if name not in names]
            assert not missing, f"item {item.number}: {item.scenario} has no answer {missing}"
            return tuple(answer for answer in found if not item.answers or answer.asked.name in item.answers)
        if item.run is None:
            return ()
        return answer_scenario(_as_scenario(item))[0]

    def _scenario(self, name: str) -> tuple[ScenarioAnswer, ...]:
        if name not in self._scenarios:
            self._scenarios[name] = answer_scenario(find_scenario(name))[0]
        return self._scenarios[name]


def _as_scenario(item: Item) -> Scenario:
    answers = []
    for given in item.answers:
        answer: dict[str, Any] = {"unit": "s", **given}
        if "measured" in answer or "published" in answer:
            answer.setdefault("source", item.source)
        answers.append(answer)
    data = {
        "schema_version": 1,
        "title": f"item {item.number}",
        "chapter": item.source,
        "about": item.says,
        "runs": {"run": item.run},
        "answers": answers,
    }
    return scenario_from(YamlSource(f"{ITEMS.name}, item {item.number}", data, None), ITEMS)


def answer_words(answers: Sequence[ScenarioAnswer]) -> str:
    """Return *answers* as one table cell, each with the source's figure."""
    return "; ".join(dict.fromkeys(map(_one, answers)))


def _one(answer: ScenarioAnswer) -> str:
    value = value_words(answer.value, answer.asked.unit)
    text = f"{answer.asked.name} **{value}**"
    if answer.asked.expected is None:
        return text
    error = error_words(answer)
    return f"{text} ({expected_words(answer)}{'' if error in ('same', 'within', '0.0 %') else f', {error}'})"


def book_body(book: Book) -> str:
    """Return the generated part of docs/book.md: counts of verdicts, and a table of items for each source."""
    lines = [f"| source | {' | '.join(HEADS.values())} |", "|---|" + "--:|" * len(HEADS)]
    sources = dict.fromkeys(_chapter(item) for item in book.items)
    for source in [*sources, ""]:
        verdicts = [item.verdict for item in book.items if source in ("", _chapter(item))]
        counts = " | ".join(str(verdicts.count(verdict)) for verdict in MARKS)
        lines.append(f"| {source or '**all**'} | {counts} |")
    for source in sources:
        lines += [
            "",
            f"## {source}",
            "",
            "| | what it says | command, answer (and the source's figure) |",
            "|--:|---|---|",
        ]
        lines += [_row(book, item) for item in book.items if _chapter(item) == source]
    return "\n".join(lines) + "\n"


def _chapter(item: Item) -> str:
    match = re.match(r"(Dive into Deep Learning \d+(?:\.\d+)?|EE-559 6\.6)", item.source)
    assert match is not None, item.source
    return match[0]


def _row(book: Book, item: Item) -> str:
    cells = []
    if item.command:
        cells.append(f"`{item.command}`")
        cells.append(answer_words(book.answers(item)))
    cells += [text for text in (item.partly, item.refused) if text]
    cell = "<br>".join(cells).replace("|", "\\|")
    shown = {"judged": "by our threshold", "echoed": "input"}.get(item.verdict, "")
    first = f"{item.number} {MARKS[item.verdict]}" + (f" {shown}" if shown else "")
    return f"| {first} | {item.says} | {cell} |"


def scenarios_body(pictures: bool, answered: dict[str, tuple[ScenarioAnswer, ...]]) -> str:
    """Return the generated part of docs/scenarios.md: each scenario with its picture and output.

    The answers are added to *answered*, by scenario.  With *pictures*, the pictures are redrawn.
    """
    lines: list[str] = []
    chapter = None
    for scenario in in_order():
        if scenario.chapter != chapter:
            chapter = scenario.chapter
            lines += [f"## {chapter}", ""]
        picture = PICTURES / f"{scenario.name}.svg"
        answers, _ = answer_scenario(scenario, plot=str(picture) if pictures else None)
        answered[scenario.name] = answers
        if pictures and not draws_run(scenario):
            picture.write_bytes(draw_answers(scenario, answers, "svg"))
        lines += [f"### {scenario.name}", ""]
        lines += [f"![{scenario.title}](images/scenarios/{picture.name})", ""]
        lines += ["```text", f"$ simulate scenario {scenario.name}", *shown(scenario, answers), "```", ""]
    return "\n".join(lines[:-1]) + "\n"


def shown(scenario: Scenario, answers: tuple[ScenarioAnswer, ...]) -> Iterator[str]:
    """Yield the lines that the command prints."""
    return (line.rstrip() for line in scenario_lines(scenario, answers, PLAIN))


def write_pages(*, pictures: bool = True) -> None:
    """Regenerate both pages, and with *pictures* the scenarios' pictures."""
    os.environ.pop("COLUMNS", None)
    answered: dict[str, tuple[ScenarioAnswer, ...]] = {}
    bodies = {
        "scenarios": lambda: scenarios_body(pictures, answered),
        "book": lambda: book_body(Book(read_items(), answered)),
    }
    for what, body in bodies.items():
        page = DOCS / f"{what}.md"
        before = page.read_text(encoding="utf-8")
        after = _with(before, {what: body()})
        if after != before:
            page.write_text(after, encoding="utf-8")
            sys.stdout.write(f"wrote docs/{page.name}\n")


def _with(text: str, bodies: Mapping[str, str]) -> str:
    return _MARKED.sub(lambda m: f"{m[1]}{bodies.get(m['what'], m['body'])}{m[4]}", text)


if __name__ == "__main__":
    write_pages(pictures="--no-pictures" not in sys.argv[1:])
