"""``python -m tests.fresh`` draws other examples than CI does, and tells a failure with the way to ask again."""

from __future__ import annotations

import subprocess
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


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of tests in a project of its own, in CI: there hypothesis' usual profile draws the same ones."""
    monkeypatch.setattr(fresh, "ROOT", tmp_path)
    monkeypatch.setenv("CI", "true")
    (tmp_path / "tests").mkdir()
    conftest = Path(__file__).resolve().parents[1] / "conftest.py"
    (tmp_path / "tests" / "conftest.py").write_text(conftest.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path / "tests" / "test_rare.py"


@pytest.mark.slow
def test_other_examples_are_drawn_and_a_failure_is_told(file: Path, tmp_path: Path, capsys) -> None:
    log = tmp_path / "log"
    file.write_text(FILE.format(log=str(log), last=11), encoding="utf-8")
    assert fresh.files() == [file]
    for seed in (1, 2):
        assert fresh.draw(file, seed, 60) == ""
    assert len(set(log.read_text().splitlines())) > 300
    file.write_text(FILE.format(log=str(log), last=7), encoding="utf-8")
    assert "n = " in fresh.draw(file, 1, 60)


@pytest.mark.slow
def test_what_is_no_failure_of_a_test_is_told_too(file: Path) -> None:
    """A file that cannot be collected draws nothing; neither does one whose time is over."""
    file.write_text("import nothing_of_the_kind", encoding="utf-8")
    assert "nothing_of_the_kind" in (said := fresh.draw(file, 1, 60))
    assert said.endswith("pytest ended with status 2")
    with pytest.raises(subprocess.TimeoutExpired):
        fresh.draw(file, 1, 0.01)


def test_a_failure_is_told_with_the_way_to_ask_again(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(fresh, "draw", lambda *_: "Failing test case: test_rare(n=7)")
    at_s = iter([0.0, 1.0, 61.0])  # the start, before the first file, before the second
    monkeypatch.setattr(fresh.time, "monotonic", lambda: next(at_s))
    assert fresh.main(["--minutes", "1", "--seed", "5", __file__]) == 1
    assert "again: HYPOTHESIS_PROFILE=fresh python" in capsys.readouterr().out


def test_a_file_whose_time_is_over_is_named_and_not_counted(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def slow(*_: object) -> str:
        raise subprocess.TimeoutExpired("pytest", 1)

    monkeypatch.setattr(fresh, "draw", slow)
    assert fresh.main([__file__]) == 0
    printed = capsys.readouterr().out
    assert "the time was over in test_fresh.py" in printed
    assert "new examples for 0 files" in printed
