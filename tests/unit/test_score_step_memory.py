"""Measured memory of steps: how rows hold it, why it does not count, and the group of each figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from simulator import Session, StepOptions, StepQuestion, Where
from simulator.errors import InputError
from simulator.questions.where import Software
from simulator.step.memory import MemoryNeed
from tests.calls import hang_limit
from tests.validate_commands import score_command
from validate.kinds.kind import MemoryFigure, memory_figures

ROW = {"machine": "dgx-a100-80gb", "model": "alexnet", "batch_per_gpu": "8", "dtype": "fp32"}
COLUMNS = (*ROW, "step_time_s", "max_allocated_bytes", "max_reserved_bytes", "smi_bytes", "trust")
GB = 1e9


def written(folder: Path, *rows: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> str:
    path = folder / "steps.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="")
        writer.writeheader()
        writer.writerows(ROW | row for row in rows)
    return str(path)


def scored(capsys: pytest.CaptureFixture[str], file: str, **options: Any) -> dict[str, Any]:
    score_command([file], json=True, **options)
    (found,) = json.loads(capsys.readouterr().out)["tables"]
    return found


def needed() -> MemoryNeed:
    options = StepOptions(mode="train", precision="fp32", optimizer="momentum")
    where = Where("dgx-a100-80gb", 1)
    said = {"batch": 8, "sizes": (("loss", 0),), "gpus": (0,)}
    software = Software(nccl=(2, 8))  # of an A100's first year, as the row says nothing
    return Session().memory(StepQuestion(where=where, workload="alexnet", options=options, software=software, **said))


def figures(**cells: str) -> tuple[MemoryFigure, ...]:
    return memory_figures(lambda column: cells.get(column, ""))


def test_a_row_holds_any_figures() -> None:
    assert figures() == ()
    assert figures(smi_bytes="2e9", max_allocated_bytes="1000000000") == (
        MemoryFigure("allocated", GB),
        MemoryFigure("process", 2 * GB),
    )
    assert figures(peak_bytes="3") == (MemoryFigure("allocated", 3.0),)
    assert figures(peak_bytes="3", max_allocated_bytes="4") == (MemoryFigure("allocated", 4.0),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("4 GB", "max_reserved_bytes is not a number"),
        ("nan", "max_reserved_bytes is not a number"),
        ("0", "max_reserved_bytes not positive"),
        ("-1", "max_reserved_bytes not positive"),
        ("1e16", "max_reserved_bytes is more than 1e+15"),
    ],
)
def test_what_is_no_size_is_refused(text: str, reason: str) -> None:
    (found,) = figures(max_reserved_bytes=text)
    assert found.skipped == reason
    assert found.error is None


def test_each_figure_is_compared_with_its_own_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need = needed()
    assert need.allocated_bytes < need.process_bytes == need.total_bytes
    rows = [
        {"step_time_s": "0.1", "max_allocated_bytes": repr(need.allocated_bytes / 1.25)},
        {"max_allocated_bytes": repr(need.allocated_bytes / 0.5), "smi_bytes": repr(need.process_bytes)},
        {"step_time_s": "0.1", "max_reserved_bytes": repr(need.reserved_bytes / 2)},
    ]
    found = scored(capsys, written(tmp_path, *rows))
    assert (found["rows"], found["scored"], found["skipped"]) == (3, 2, {"no time, only memory": 1})
    allocated, reserved, process = (found["memory"][name] for name in ("allocated", "reserved", "process"))
    assert (allocated["rows"], allocated["n"], allocated["skipped"]) == (2, 2, {})
    assert allocated["median_ape"] == pytest.approx((0.25 + 0.5) / 2)
    assert allocated["bias"] == pytest.approx((0.25 - 0.5) / 2)
    assert (allocated["worst"], allocated["worst_line"]) == (pytest.approx(-0.5), 3)
    assert (reserved["n"], reserved["worst"], reserved["worst_line"]) == (1, pytest.approx(1.0), 4)
    assert (process["n"], process["worst"]) == (1, pytest.approx(0.0, abs=1e-12))


def test_of_a_fault_in_one_figure_the_others_take_no_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"step_time_s": "0.1", "max_allocated_bytes": "1 GB", "smi_bytes": "1e9"},
        {"step_time_s": "soon", "max_allocated_bytes": "1e9"},
        {"step_time_s": "0.1", "max_allocated_bytes": "1e9", "trust": "C"},
        {"step_time_s": "0.1", "max_allocated_bytes": "1e9", "model": "alexnet99"},
    ]
    found = scored(capsys, written(tmp_path, *rows))
    assert found["scored"] == 1
    assert found["memory"]["process"]["n"] == 1
    assert found["memory"]["allocated"]["n"] == 1
    assert found["memory"]["allocated"]["skipped_lines"] == {
        "context: trust C": [4],
        "max_allocated_bytes is not a number": [2],
        "no network 'alexnet99' in the zoo": [5],
    }


def test_a_step_whose_memory_cannot_be_told_still_has_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> MemoryNeed:
        raise InputError("nobody knows")

    monkeypatch.setattr(Session, "memory", refused)
    found = scored(capsys, written(tmp_path, {"step_time_s": "0.1", "max_allocated_bytes": "1e9"}))
    assert found["scored"] == 1
    assert found["memory"]["allocated"]["skipped"] == {"nobody knows": 1}


def test_without_measured_memory_none_is_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "memory", lambda *_: pytest.fail("asked"))
    found = scored(capsys, written(tmp_path, {"step_time_s": "0.1"}, {"step_time_s": "0.1", "smi_bytes": "many"}))
    assert found["memory"] == {"process": found["memory"]["process"]}
    assert found["memory"]["process"]["median_ape"] is None


def test_a_table_of_memory_needs_no_column_of_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, {"smi_bytes": "1e9"}, columns=(*ROW, "smi_bytes"))
    score_command([file])
    said = capsys.readouterr()
    assert "0 of 1 rows scored (0.0%), memory of 1;" in said.out
    assert "memory, process     1       1" in said.out
    assert "all rows" not in said.out  # no times, no table of their errors
    assert "no row was scored" not in said.err
    with pytest.raises(InputError, match="missing column step_time_s"):
        score_command([written(tmp_path, {}, columns=(*ROW,))])
    with pytest.raises(InputError, match="the column 'smi_bytes' is there twice"):
        score_command([written(tmp_path, {}, columns=(*ROW, "smi_bytes", "smi_bytes"))])


def test_the_text_names_what_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score_command([written(tmp_path, {"max_allocated_bytes": "many"})])
    said = capsys.readouterr()
    assert "allocated: max_allocated_bytes is not a number     1  2" in said.out
    assert "no row was scored: no time, only memory" in said.err


def test_predictions_are_written_of_the_figures_that_a_row_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out, need = written(tmp_path, {"smi_bytes": "1e9"}, {"step_time_s": "0.1"}), tmp_path / "out.csv", needed()
    score_command([file], out=str(out))
    with out.open() as stream:
        first, second = csv.DictReader(stream)
    assert float(first["predicted_process_bytes"]) == need.process_bytes
    assert first["predicted_allocated_bytes"] == second["predicted_process_bytes"] == ""
    score_command([written(tmp_path, {"step_time_s": "0.1"}, columns=(*ROW, "step_time_s"))], out=str(out))
    assert "predicted_process_bytes" not in out.read_text()


@pytest.mark.slow
def test_other_processes_predict_memory_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"batch_per_gpu": str(1 + i % 4), "max_allocated_bytes": repr(1e9 + i)} for i in range(100)]
    file = written(tmp_path, *rows)
    alone = scored(capsys, file, jobs="1")
    with hang_limit():
        assert scored(capsys, file, jobs="2") == alone
    assert alone["memory"]["allocated"]["n"] == 100
