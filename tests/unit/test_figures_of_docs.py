"""Each sentence with a figure of accuracy has, in the source of its page, the command that shows it.

The command stands in a comment at the end of the paragraph or list item, ``<!-- from: validate score ... -->``, unless
a program writes the paragraph (``<!-- accuracy -->``).  What no command shows any more says where it was recorded:
``<!-- from: git show COMMIT:FILE -->``, or ``<!-- from: the issue or file that states it -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.cli import COMMANDS
from validate.cli import app

ROOT = Path(__file__).resolve().parents[2]
OF_ACCURACY = ("README.md", "docs/accuracy.md")
"""Pages of which every figure counts; on the others those that say how near something is to what was measured."""
_WRITTEN_BY_PROGRAMS = ("docs/options.md", "docs/modules.md")
PAGES = tuple(
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if str(page.relative_to(ROOT)) not in _WRITTEN_BY_PROGRAMS
)
_OF_ERRORS = re.compile(
    r"\b(median|percentile|bias|errors?|off by|too (fast|slow|low|high|long|short)|predicted|agree|held|inside)\b"
)
_WRITTEN = re.compile(r"<!-- (?P<what>[\w-]+) -->\n.*?<!-- /(?P=what) -->", re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_FROM = re.compile(r"<!-- from: (?P<command>.+?) -->", re.DOTALL)
_FIGURE = re.compile(r"\d(?:[\d.,]*\d)? ?%|\d[\d,]* (?:rows|steps|collectives|operators|measurements|constants)\b")
_KNOWN = ("validate ", "simulate ", "python -m docs.", "python docs/", "git show ", "git log ")


def pieces(text: str) -> Iterator[str]:
    """Yield the paragraphs, list items and tables of a page that no program writes."""
    text = _CODE.sub("", _WRITTEN.sub("", text))
    for block in re.split(r"\n\s*\n", text):
        yield from re.split(r"\n(?=- |\d+\. )", block) if re.match(r"- |\d+\. ", block) else [block]


def without_command(text: str, *, every: bool = True) -> list[str]:
    """Return the pieces with a figure, *every* or of errors alone, that have no command."""
    return [
        piece.strip()[:100]
        for piece in pieces(text)
        if _FIGURE.search(_FROM.sub("", piece)) and not _FROM.search(piece) and (every or _OF_ERRORS.search(piece))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_figure_has_its_command_beside_it(page: str) -> None:
    assert without_command((ROOT / page).read_text(encoding="utf-8"), every=page in OF_ACCURACY) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_command_is_one_that_there_is(page: str) -> None:
    commands = app.commands  # type: ignore[attr-defined]
    for found in _FROM.finditer((ROOT / page).read_text(encoding="utf-8")):
        for command in found["command"].split("; "):
            words = command.split()
            if words[0] == "validate":
                assert words[1] in commands, command
            elif words[0] == "simulate":
                assert words[1].startswith("-") or words[1] in COMMANDS, command
            elif words[:2] == ["python", "-m"]:
                assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file(), command
            elif words[0] == "python":
                assert (ROOT / words[1]).is_file(), command
            else:
                assert command.startswith((*_KNOWN, "https://", "stated by ")), command


def test_a_paragraph_without_its_command_is_found() -> None:
    page = "Half is within 4.8 %.\n\n<!-- x -->\n5 %\n<!-- /x -->\n\n- 7 % <!-- from: validate score t.csv -->\n- 8 %\n"
    assert without_command(page) == ["Half is within 4.8 %.", "- 8 %"]
    assert without_command("The band holds 80 %.\n\nIts median is 5 %.\n", every=False) == ["Its median is 5 %."]
