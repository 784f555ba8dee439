"""Copies beside work: three rows per case, with the same work in each."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from simulator.api import Session  # noqa: E402
from simulator.questions.where import Where  # noqa: E402
from simulator.questions.words import parse_question  # noqa: E402
from tests.clocked_cuda import clocked_bench  # noqa: E402
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import Unavailable, cases_of  # noqa: E402
from validate.machine.measure.cases import copies as copy_cases  # noqa: E402
from validate.machine.measure.timing import median_interval  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_cpu_says_at_once_that_it_has_none(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cores that compute"):
        cases_of("overlap", Bench(torch.device("cpu"), "cpu", 1 << 30, 1 << 20, tmp_path))


def test_the_work_is_repeated_to_last_as_long_as_the_copy() -> None:
    assert copy_cases._repeats(10e-3, 1e-3) == 10
    assert copy_cases._repeats(1e-6, 1e-3) == 1
    assert copy_cases._repeats(1.0, 1e-9) == copy_cases._MOST_REPEATS


def test_each_case_has_the_work_the_copy_and_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_cases, "_SIZES", (1 << 20, 64 << 10))
    for name, value in (("_SIDE", 32), ("_SMALL_SIDE", 16), ("_VECTOR", 1024), ("_SMALL_VECTOR", 256)):
        monkeypatch.setattr(copy_cases, name, value)
    bench = clocked_bench(monkeypatch, tmp_path)
    cases = list(copy_cases.overlap_cases(bench))
    keys = [tuple(case.columns.items()) for case in cases]
    assert len(set(keys)) == len(keys)
    notes = [str(case.columns["note"]) for case in cases if case.columns["bytes"] == 1 << 20]
    assert sorted(notes) == sorted(
        2
        * [
            *("copy alone", "matrix products alone", "copy and matrix products"),
            *("sums alone", "copy and sums"),
        ]
    )
    for case in cases:
        work = case.build(bench)
        assert work.watch is not None
        assert work.watch.sample(work.call, 1) > 0
        assert work.figures is not None
        rate = work.figures(median_interval([1e-3] * 6))["GBps"]
        copies = "copy" in str(case.columns["note"])
        assert rate == (pytest.approx(int(case.columns["bytes"]) / 1e6) if copies else None)


@pytest.mark.parametrize("work", list(copy_cases._WORK))
def test_work_is_on_numbers_by_chance(work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SIDE", "_SMALL_SIDE", "_VECTOR", "_SMALL_VECTOR"):
        monkeypatch.setattr(copy_cases, name, 64)
    given: list[Any] = []
    for function in ("mm", "add"):
        monkeypatch.setattr(torch, function, lambda a, b, out: given.extend((a, b)))
    copy_cases._work(work, 64, clocked_bench(monkeypatch, tmp_path))[0]()
    assert all(len(x.unique()) > 16 for x in given)
    assert len(given) == 2


def test_what_runs_beside_a_copy_is_in_its_row_and_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A continued run repeats the work as often as the existing rows."""
    for name in ("_SIDE", "_SMALL_SIDE", "_VECTOR", "_SMALL_VECTOR"):
        monkeypatch.setattr(copy_cases, name, 64)
    monkeypatch.setattr(copy_cases, "_SIZES", (1 << 16, 1 << 12))
    bench = clocked_bench(monkeypatch, tmp_path)
    monkeypatch.setattr(copy_cases, "_repeats", lambda copy_s, work_s: 7)
    alone, copy, both = itertools.islice(copy_cases.overlap_cases(bench), 3)
    alone.known({"repeats": "5"})
    for case in (both, copy):
        figures = case.build(bench).figures
        assert figures is not None
        cells = figures(median_interval([1e-3] * 6))
        words = cells.get("work")
        assert (cells.get("repeats"), words is not None) == ((5, True) if case is both else (None, False))
        if words is not None:
            asked = parse_question(words, Where("1x-v100-pcie-32gb"))
            assert Session().time_s(asked) > 0


def test_both_does_what_each_does_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = clocked_bench(monkeypatch, tmp_path)
    done: list[str] = []
    monkeypatch.setattr(copy_cases, "_work", lambda *_: (lambda: done.append("work"), "op"))
    counted = copy_cases._build(4096, "counted", True, "both", {"repeats": 7}, bench)
    done.clear()
    counted.call(0)
    assert done == ["work"] * 7
