"""Long tables: memory close to the file's size, each question predicted once, no partial output."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

import validate.score.scores
import validate.score.scoring
from simulator.api.session import Session
from simulator.errors import InputError
from tests.validate_commands import score_command
from validate.kinds.kind import MeasuredRow
from validate.score.scores import Scores
from validate.tables.cells import MAX_HELD, MAX_ROWS, CsvRecord, read_records
from validate.tables.statistics import line_ranges
from validate.tables.table import read_table

_COLUMNS = "machine,n_gpus,collective,bytes,time_s,trust\n"
_LINES = ("4gpu-pcie,4,all_reduce,{size},0.00{digit},A\n", "unknown-{digit},4,all_reduce,{size},0.1,A\n")


def _table(path: Path, n_rows: int) -> str:
    rows = (_LINES[i % 2].format(size=1 << (10 + i // 2 % 8), digit=1 + i % 9) for i in range(n_rows))
    path.write_text(_COLUMNS + "".join(rows))
    return str(path)


@pytest.mark.slow
def test_memory_grows_with_the_file_and_little_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peaks = []
    files = [_table(tmp_path / f"{n}.csv", n) for n in (500, 5_500)]
    score_command([files[0]])  # creates the machine and does all imports
    for file in files:
        tracemalloc.start()
        score_command([file], out=str(tmp_path / "out.csv"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    capsys.readouterr()
    more = Path(files[1]).stat().st_size - Path(files[0]).stat().st_size
    assert peaks[1] - peaks[0] < 2 * more + 5_000 * 80
    assert (tmp_path / "out.csv").read_bytes().count(b"\n") == 5_501


def test_rows_that_ask_the_same_are_predicted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    before = Session.time_s
    monkeypatch.setattr(Session, "time_s", lambda self, question: asked.append(question) or before(self, question))
    score_command([_table(tmp_path / "t.csv", 2_000)], json=True)
    [found] = json.loads(capsys.readouterr().out)["tables"]
    assert found["scored"] == 1_000
    assert len(asked) == len(set(asked)) == 8


def test_answers_come_from_the_statistics_of_all_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score_command([_table(tmp_path / "t.csv", 360)], json=True, by="machine", out=str(tmp_path / "out.csv"))
    [found] = json.loads(capsys.readouterr().out)["tables"]
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    errors = sorted(abs(float(line.split(",")[-2])) for line in lines if line.startswith("4gpu-pcie"))
    assert found["overall"]["median_ape"] == pytest.approx((errors[89] + errors[90]) / 2, rel=1e-12)
    assert found["overall"]["mean_ape"] == pytest.approx(sum(errors) / 180, rel=1e-12)
    assert (found["rows"], found["scored"], sum(found["skipped"].values())) == (360, 180, 180)
    assert sorted(line for lines in found["skipped_lines"].values() for line in lines) == list(range(3, 362, 2))


def test_what_is_refused_midway_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _table(tmp_path / "t.csv", 100)
    monkeypatch.setattr(validate.score.scores, "MOST_DIFFERENT", 3)
    words = r"t\.csv: has more than 3 different combinations of size, fit, machine, .*; score it in parts"
    with pytest.raises(InputError, match=words):
        score_command([file], out=str(tmp_path / "out.csv"))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_reasons_beyond_those_that_are_told_apart_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate.score.scores, "MOST_DIFFERENT", 2)
    rows = [MeasuredRow(None, 1.0, {}, record=CsvRecord(line, ()), skipped=f"reason {line}") for line in range(2, 7)]
    found = {reason: list(lines) for reason, lines in Scores(rows).skipped().items()}
    assert list(found.values()) == [[2], [3], [4, 5, 6]]


def test_configurations_that_frameworks_are_ranked_by_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate.score.scoring, "MOST_DIFFERENT", 3)
    path = tmp_path / "t.csv"
    rows = "".join(f"p3.2xlarge,alexnet,{batch},0.1\n" for batch in range(1, 6))
    path.write_text("machine,model,batch_per_gpu,step_time_s\n" + rows)
    with pytest.raises(InputError, match=r"t\.csv: has more than 3 different configurations; score it in parts"):
        score_command([str(path)])


def test_a_million_rows_are_read_one_by_one() -> None:
    assert MAX_ROWS == 1_000_000 > MAX_HELD
    raw = b"a,b\n" + b"1, 2\n" * (MAX_HELD + 1)
    assert len(read_records(raw, "t.csv", MAX_ROWS)) == MAX_HELD + 2
    with pytest.raises(InputError, match=r"^t\.csv:100002:1: has more than 100,000 rows; score it in parts$"):
        read_records(raw, "t.csv")


def test_rows_are_the_same_however_they_are_asked_for() -> None:
    table = read_table(b'a,note\n1,x\n\n2,well, yes\n"3\n",z\n', "t.csv", ["a"], ["a"])
    rows = list(table.rows)
    assert [(row.line, row.fields) for row in rows] == [(2, ("1", "x")), (4, ("2", "well, yes")), (5, ("3\n", "z"))]
    assert [table.rows[-1], table.rows[1:], len(table.rows)] == [rows[2], rows[1:], 3]
    with pytest.raises(IndexError):
        table.rows[3]


def test_places_are_in_characters_also_where_those_have_several_bytes() -> None:
    for raw, place in (('é,"é', "1:3"), ('é,"é"x', "1:6"), ('"é\né"é', "2:3")):
        with pytest.raises(InputError, match=rf"^t\.csv:{place}: "):
            read_records(raw.encode(), "t.csv")
    with pytest.raises(InputError, match=r"^t\.csv:2:2: is not UTF-8 text"):
        read_records(b"a\n" + "é".encode()[:1].rjust(2, b"x"), "t.csv")
    long = b"a\n" + b"x" * (1 << 20) + "é".encode() * 5 + b"\xff"  # beyond the piece that is decoded first
    with pytest.raises(InputError, match=rf"^t\.csv:2:{(1 << 20) + 11}: is not UTF-8 text"):
        read_records(long, "t.csv")


def test_ranges_are_looked_for_as_far_as_they_are_shown() -> None:
    seen = []
    lines = (seen.append(line) or line for line in range(0, 1_000_000, 2))
    assert line_ranges(lines) == "0, 2, 4, 6, 8, 10, ..."  # type: ignore[arg-type]
    assert len(seen) < 10
