"""Numbers of thousands of digits, and digits of other scripts, in every option: one line, exit status 2."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from simulator.units import whole_number
from tests.fuzz.run import fault_of
from tests.unit.test_options_are_read import CALIBRATION, SIMULATE

_LONG = "9" * 5_000


@pytest.mark.parametrize("name", SIMULATE)
def test_numbers_that_nobody_writes_are_told(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    question, value = SIMULATE[name]
    *command, option = name.split()
    (tmp_path / "calibration.yaml").write_text(CALIBRATION, encoding="utf-8")
    words = shlex.split(question.replace("{here}", str(tmp_path)))
    given = (value or "").replace("{here}", str(tmp_path))
    if not given:
        return
    for form in dict.fromkeys((_LONG, re.sub(r"\d+", _LONG, given), re.sub(r"\d+", "\u00b2", given))):
        if form == given:
            continue
        asked = list(words)
        if option in asked:
            asked[asked.index(option) + 1] = form
        else:
            asked += [option, form]
        assert not fault_of(["simulator", *command, *asked]), form[:80]


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "", "1.0", "-1", "1_0", "9" * 19, _LONG])
def test_what_is_no_whole_number(text: str) -> None:
    assert whole_number(text) is None


def test_whole_numbers() -> None:
    assert whole_number(" 0012 ") == 12
    assert whole_number("9" * 18) == 10**18 - 1
