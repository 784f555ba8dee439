"""``python -m tests.fresh`` draws other examples than CI does, and tells a failure with the way to ask again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fresh

FILE = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_rare(n):
    with open({log!r}, "a") as log:
        log.write(f"{{n}}\\n")
    assert n % 10 != {last}

def test_of_no_example():
    raise AssertionError("is not asked")
"""


@pytest.mark.slow
def test_other_examples_are_drawn_and_a_failure_is_told(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(fresh, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    conftest = Path(__file__).resolve().parents[1] / "conftest.py"
    (tmp_path / "tests" / "conftest.py").write_text(conftest.read_text(encoding="utf-8"), encoding="utf-8")
    file, log = tmp_path / "tests" / "test_rare.py", tmp_path / "log"
    file.write_text(FILE.format(log=str(log), last=11), encoding="utf-8")
    assert fresh.files() == [file]
    for seed in (1, 2):
        assert fresh.draw(file, seed, 60) == ""
    assert len(set(log.read_text().splitlines())) > 300
    file.write_text(FILE.format(log=str(log), last=7), encoding="utf-8")
    monkeypatch.setattr(fresh, "draw", lambda *_: drawn)
    drawn = "Failing test case: test_rare(n=7)"
    assert fresh.main(["--minutes", "0.00001", "--seed", "5", str(file)]) == 1
    assert "again: HYPOTHESIS_PROFILE=fresh python" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setattr(fresh, "ROOT", tmp_path)
    assert "n = " in fresh.draw(file, 1, 60)
