"""The published measurements, where their folder is available."""

import csv
import io
import json
import os
import random
from pathlib import Path

import pytest

from simulator.plan.plan import PlanBuilder
from tests.validate_commands import score_command

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("TOPOCAST_CORPUS") or ROOT.parent / "shared" / "corpus")
TABLE = FOLDER / "collectives.csv"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.corpus,
    pytest.mark.skipif(not TABLE.is_file(), reason=f"no collectives.csv in TOPOCAST_CORPUS ({FOLDER})"),
]


class Latency:
    name = "latency"

    def plan(self, request):
        builder = PlanBuilder()
        builder.work("wait", "host", 1e-5 + request.size_bytes * 1e-11 * request.n_ranks)
        return builder.build()


@pytest.fixture
def latency(monkeypatch):
    monkeypatch.setattr("simulator.api.session.strategy_of", lambda name, software, **how: Latency())


def score(capsys, file, out=None, strategy="fake"):
    score_command([str(file)], json=True, out=None if out is None else str(out), strategy=strategy)
    return json.loads(capsys.readouterr().out)["tables"][0]


def test_every_row_is_accounted_for(capsys, tmp_path, latency):
    out = tmp_path / "p.csv"
    scored = score(capsys, TABLE, out)
    with TABLE.open(newline="") as stream:
        original = list(csv.reader(stream))
    with out.open(newline="") as stream:
        written = list(csv.DictReader(stream))
    assert scored["rows"] == len(original) - 1 == len(written)
    assert scored["rows"] == scored["scored"] + sum(scored["skipped"].values())
    assert [row["skipped"] == "" for row in written].count(True) == scored["scored"]
    for before, after in zip(original[1:], written, strict=True):
        # Joined, since an unquoted comma in prose splits a field.
        assert ",".join(list(after.values())[: len(original[0])]) == ",".join(before)
    errors = sorted(abs(float(row["error"])) for row in written if not row["skipped"])
    assert scored["overall"]["mean_ape"] == pytest.approx(sum(errors) / len(errors))


def test_every_machine_has_a_topology(capsys, latency):
    scored = score(capsys, TABLE)
    assert not [reason for reason in scored["skipped"] if "topology" in reason]


def test_predictions_do_not_see_what_was_measured(capsys, tmp_path, latency):
    with TABLE.open(newline="") as stream:
        rows = list(csv.reader(stream))
    header = rows[0]
    measured = [header.index(name) for name in ("time_s", "algbw_GBps", "busbw_GBps")]
    order = list(range(1, len(rows)))
    random.Random(0).shuffle(order)
    shuffled = [list(row) for row in rows]
    for to, origin in enumerate(order, 1):
        for column in measured:
            shuffled[to][column] = rows[origin][column]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(shuffled)
    (tmp_path / "shuffled.csv").write_text(text.getvalue())
    score(capsys, TABLE, tmp_path / "a.csv")
    score(capsys, tmp_path / "shuffled.csv", tmp_path / "b.csv")
    predicted = []
    for name in ("a.csv", "b.csv"):
        with (tmp_path / name).open(newline="") as stream:
            predicted.append([row["predicted_s"] for row in csv.DictReader(stream)])
    assert predicted[0] == predicted[1]


def test_another_kind_of_table_is_told_apart(capsys):
    with pytest.raises(Exception, match="--strategy is for tables of collectives; these are of operators"):
        score(capsys, FOLDER / "ops.csv")


@pytest.mark.slow
def test_nearly_the_whole_table_is_scored(capsys):
    assert score(capsys, TABLE, strategy="nccl")["coverage"] > 0.9
