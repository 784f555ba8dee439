"""The blind record: predictions see no measurement, lines are only added, and an entry is scored once."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.console.run import run_app
from simulator.errors import InputError
from validate.blind.record import PREDICTIONS, PROJECT, RECORD, opened_seal, read_record
from validate.cli import app

ROOT = Path(__file__).resolve().parents[2]
TABLE = """machine,n_gpus,collective,bytes,time_s,algbw_GBps,dataset,trust,note
dgx-h100,8,all_reduce,1048576,0.00005,21.0,one,A,seen at 21 GB/s
dgx-h100,8,all_reduce,67108864,0.00035,191.7,one,A,
dgx-h100,8,all_gather,67108864,0.00021,319.6,two,B,
dgx-h100,8,all_reduce,8388608,0.0001,83.9,two,C,
dgx-h100,8,gossip,8388608,0.0001,83.9,two,A,
"""
GIVEN = ["--commit", "0123abc", "--date", "2026-11-29"]


def validate(*words: str) -> int:
    return run_app(app, "validate", list(words))


def add(folder: Path, table: str = TABLE, name: str = "mine") -> int:
    """Add *table* to the record in ``folder/record``, with its halves in *folder*."""
    (folder / "record").mkdir(exist_ok=True, parents=True)
    (folder / "table.csv").write_text(table, encoding="utf-8")
    words = ["--name", name, "--source", "a lab", *GIVEN, "--out", str(folder), "--record", str(folder / "record")]
    return validate("blind", "add", str(folder / "table.csv"), *words, "--quiet")


def score(folder: Path, sealed: str = "mine.sealed") -> int:
    return validate("blind", "score", "mine", str(folder / sealed), *GIVEN, "--record", str(folder / "record"))


def rows_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))


# -- the record of the project -----------------------------------------------------------


def test_each_line_of_the_project_names_the_one_before_it() -> None:
    lines = (PROJECT / RECORD).read_bytes().splitlines()
    assert [json.loads(line)["previous"] for line in lines] == [
        "",
        *(sha256(line).hexdigest() for line in lines[:-1]),
    ]
    assert len(read_record(PROJECT)) == len(lines)


def test_the_predictions_of_the_project_are_those_recorded() -> None:
    events = [event for event in read_record(PROJECT) if event.what == "predicted"]
    files = {path.stem: sha256(path.read_bytes()).hexdigest() for path in (PROJECT / PREDICTIONS).glob("*.csv")}
    assert files == {event.name: event.predictions for event in events}


def test_no_commit_changed_a_line() -> None:
    """Each state of the record in the history is the beginning of the next."""
    file = str((PROJECT / RECORD).relative_to(ROOT))

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout

    try:
        commits = git("log", "--format=%H", "--", file).decode().split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone with a history")
    states = [git("show", f"{commit}:{file}") for commit in reversed(commits)] + [(PROJECT / RECORD).read_bytes()]
    for before, after in pairwise(states):
        assert after.startswith(before)


@pytest.mark.parametrize("fault", ["changed", "left out", "no event"])
def test_a_record_that_lost_a_line_is_refused(tmp_path: Path, fault: str) -> None:
    lines = (PROJECT / RECORD).read_text(encoding="utf-8").splitlines()
    if fault == "changed":
        lines[1] = lines[1].replace("0.238", "0.138")
    elif fault == "left out":
        del lines[1]
    else:
        lines[1] = "{}"
    (tmp_path / RECORD).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"{RECORD}:{2 if fault != 'changed' else 3}:1: "):
        read_record(tmp_path)


# -- adding ------------------------------------------------------------------------------


def test_predictions_do_not_depend_on_what_was_measured(tmp_path: Path) -> None:
    other = TABLE.replace("0.00005,21.0", "0.5,0.002").replace("seen at 21 GB/s", "seen at 2 MB/s")
    assert add(tmp_path / "a") == add(tmp_path / "b", other) == 0
    for name in ("mine.questions.csv", f"record/{PREDICTIONS}/mine.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "mine.sealed").read_bytes() != (tmp_path / "b" / "mine.sealed").read_bytes()


def test_questions_hold_no_measurement_and_the_seal_holds_all(tmp_path: Path) -> None:
    assert add(tmp_path) == 0
    questions = rows_of(tmp_path / "mine.questions.csv")
    assert list(questions[0]) == ["machine", "n_gpus", "collective", "bytes", "dataset", "trust"]
    assert opened_seal(str(tmp_path / "mine.sealed")) == TABLE.encode()
    assert b"0.00005" not in (tmp_path / "mine.sealed").read_bytes()


def test_predictions_are_those_that_a_score_shows(tmp_path: Path) -> None:
    assert add(tmp_path) == 0
    out = tmp_path / "scored.csv"
    assert validate("score", str(tmp_path / "table.csv"), "--out", str(out), "--quiet") == 0
    recorded, shown = rows_of(tmp_path / "record" / PREDICTIONS / "mine.csv"), rows_of(out)
    keys = ("predicted_s", "low_s", "high_s")
    assert [[row[key] for key in keys] for row in recorded] == [[row[key] for key in keys] for row in shown]
    assert [bool(row["refused"]) for row in recorded] == [False, False, False, True, True]


# -- scoring -----------------------------------------------------------------------------


def test_errors_are_those_of_the_recorded_predictions(tmp_path: Path) -> None:
    """By hand: |predicted - measured| / measured of the three rows that count, whatever the program says today."""
    assert add(tmp_path) == 0
    file = tmp_path / "record" / PREDICTIONS / "mine.csv"
    rows = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))
    for row, factor, measured_s in zip(rows[1:4], (1.1, 1.2, 0.7), (5e-5, 35e-5, 21e-5), strict=True):
        row[2:5] = [
            repr(factor * measured_s),
            repr(0.9 * measured_s),
            repr((1.05 if factor == 1.2 else 0.95) * measured_s),
        ]
    text = "\n".join(",".join(row) for row in rows) + "\n"
    file.write_text(text, encoding="utf-8")
    record = tmp_path / "record" / RECORD
    event = json.loads(record.read_text(encoding="utf-8")) | {"predictions": sha256(text.encode()).hexdigest()}
    record.write_text(json.dumps(event) + "\n", encoding="utf-8")
    assert score(tmp_path) == 0
    whole = read_record(tmp_path / "record")[-1].whole
    assert whole is not None
    assert (whole.scored, whole.median, whole.bias) == (3, 0.2, 0.0)
    assert whole.p90 == pytest.approx(0.28)
    assert whole.inside == pytest.approx(1 / 3, abs=1e-4)


def test_an_entry_is_added_and_scored_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(tmp_path) == 0
    assert add(tmp_path) == 2
    assert "an entry is predicted once" in capsys.readouterr().err
    assert score(tmp_path) == 0
    record = (tmp_path / "record" / RECORD).read_bytes()
    assert score(tmp_path) == 2
    assert "only the first time is blind" in capsys.readouterr().err
    assert (tmp_path / "record" / RECORD).read_bytes() == record
    assert [event.what for event in read_record(tmp_path / "record")] == ["predicted", "scored"]


def test_another_seal_or_other_predictions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(tmp_path) == 0
    assert add(tmp_path, TABLE.replace("0.00035", "0.00030"), name="other") == 0
    assert score(tmp_path, "other.sealed") == 2
    assert "is not what was recorded of 'mine'" in capsys.readouterr().err
    predictions = tmp_path / "record" / PREDICTIONS / "mine.csv"
    predictions.write_text(predictions.read_text(encoding="utf-8").replace("one", "two"), encoding="utf-8")
    assert score(tmp_path) == 2
    assert "is not what was recorded of 'mine'" in capsys.readouterr().err


def test_a_file_that_is_no_seal_or_half_of_one_is_refused(tmp_path: Path) -> None:
    assert add(tmp_path) == 0
    whole = (tmp_path / "mine.sealed").read_bytes()
    with pytest.raises(InputError, match="is no sealed table"):
        opened_seal(str(tmp_path / "table.csv"))
    for cut in (whole[:-20], whole.replace(b"\n", b"\n!!", 1)[:150]):
        (tmp_path / "cut").write_bytes(cut)
        with pytest.raises(InputError, match="is damaged"):
            opened_seal(str(tmp_path / "cut"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "Mine"], "--name: small letters"),
        (["--date", "29.11.2026"], "--date: a day such as"),
        (["--commit", "main"], "--commit: 7 to 40 digits"),
        (["--source", ""], "--source is needed"),
    ],
)
def test_what_is_not_said_well_is_refused(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.csv").write_text(TABLE, encoding="utf-8")
    said = ["--name", "mine", "--source", "a lab", *GIVEN, "--out", str(tmp_path), "--record", str(tmp_path)]
    said[said.index(words[0]) + 1] = words[1]
    assert validate("blind", "add", str(tmp_path / "table.csv"), *said) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / RECORD).exists()


def test_the_record_is_shown_by_kind_and_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(tmp_path) == 0
    capsys.readouterr()
    assert validate("blind", "show", "--record", str(tmp_path / "record")) == 0
    assert "2026-11-29    0123abc    mine         2     4  not yet" in capsys.readouterr().out
    assert score(tmp_path) == 0
    capsys.readouterr()
    assert validate("blind", "show", "--record", str(tmp_path / "record"), "--json") == 0
    assert [event["what"] for event in json.loads(capsys.readouterr().out)["events"]] == ["predicted", "scored"]
    assert validate("blind", "show") == 0
    shown = [line.split()[:2] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]]
    assert shown == sorted(shown)
    assert validate("blind", "show", "nobody") == 2


def test_a_record_begins_in_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    words = [
        "--name",
        "mine",
        "--source",
        "a lab",
        *GIVEN,
        "--out",
        str(tmp_path / "o"),
        "--record",
        str(tmp_path / "r"),
    ]
    assert validate("blind", "add", str(tmp_path / "t.csv"), *words, "--quiet") == 0
    assert validate("blind", "score", "mine", str(tmp_path / "o/mine.sealed"), *GIVEN, "--record", words[-1]) == 0


@pytest.mark.parametrize("option", ["--out", "--record"])
def test_a_folder_that_cannot_be_is_refused_and_nothing_is_recorded(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    said = {"--out": str(tmp_path / "o"), "--record": str(tmp_path / "r"), option: str(tmp_path / "t.csv")}
    words = ["--name", "mine", "--source", "a lab", *GIVEN, *(word for pair in said.items() for word in pair)]
    assert validate("blind", "add", str(tmp_path / "t.csv"), *words, "--quiet") == 2
    assert capsys.readouterr().err == f"validate: {option} {tmp_path / 't.csv'}: cannot be made: File exists\n"
    assert not (tmp_path / "r" / RECORD).exists()


def test_an_unwritable_half_leaves_no_line_in_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.sealed").mkdir()
    assert add(tmp_path) == 2
    assert "mine.sealed: is a folder; name a file" in capsys.readouterr().err
    assert not (tmp_path / "record" / RECORD).exists()


def test_no_record_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show"], ["show", "mine"], ["score", "mine", str(tmp_path / "mine.sealed"), *GIVEN]):
        assert validate("blind", *words, "--record", str(tmp_path / "no")) == 2
        assert f"--record {tmp_path / 'no'}: there is no {RECORD}" in capsys.readouterr().err


def test_nothing_is_scored_before_its_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(tmp_path) == 0
    words = ["mine", str(tmp_path / "mine.sealed"), "--commit", "0123abc", "--date", "2026-11-28"]
    assert validate("blind", "score", *words, "--record", str(tmp_path / "record")) == 2
    assert "--date: 'mine' was predicted on 2026-11-29, after 2026-11-28" in capsys.readouterr().err
