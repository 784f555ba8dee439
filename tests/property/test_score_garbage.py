"""Any table: rows are scored or skipped, or the fault is reported in one line."""

import contextlib
import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.plan.plan import PlanBuilder
from tests.validate_commands import score_command

COLUMNS = [
    "machine", "n_nodes", "n_gpus", "gpu_set", "group_size", "n_groups_concurrent", "collective", "bytes", "time_s",
    "algorithm_forced", "trust",
]  # fmt: skip
PLAUSIBLE = st.sampled_from(
    [
        "", "0", "1", "2", "4", "8", "-1", "1e3", "1e400", "nan", "inf", "0.001", "1e-320", "4gpu-pcie", "p3.16xlarge",
        "all_reduce", "sendrecv", "broadcast", "pairs 0>1", "pairs 0>1;", "0-1", "0,2", "1-0", "ring", "A", "C", "١",
        "\x1b[31m", "a,b", '"', "\n", "\u2028",
    ]
)  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
CELL = st.one_of(PLAUSIBLE, TEXT)


class Constant:
    name = "constant"

    def plan(self, request):
        builder = PlanBuilder()
        builder.work("wait", "host", 1e-3)
        return builder.build()


@pytest.fixture(autouse=True, scope="module")
def constant():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.api.session.strategy_of", lambda name, software, **how: Constant())
        yield


def score(raw: bytes):
    """Score *raw*; return the document and the predictions, or the text of the error."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        path, out = Path(folder) / "t.csv", Path(folder) / "p.csv"
        path.write_bytes(raw)
        try:
            score_command([str(path)], json=True, out=str(out))
        except InputError as error:
            refused = str(error)
        else:
            return json.loads(printed.getvalue()), out.read_bytes()
        assert refused.isprintable()
        assert not out.exists()
        return None, refused


@settings(deadline=None)
@given(raw=st.one_of(st.binary(max_size=80), TEXT.map(str.encode)))
def test_any_bytes(raw):
    score(raw)


@settings(deadline=None)
@given(rows=st.lists(st.lists(CELL, min_size=1, max_size=13), max_size=6), columns=st.permutations(COLUMNS))
def test_any_cells_under_the_right_header(rows, columns):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows([columns, *rows])
    document, written = score(out.getvalue().encode())
    assert document is not None, written
    (table,) = document["tables"]
    assert table["rows"] == table["scored"] + sum(table["skipped"].values())
    assert table["rows"] <= len(rows)
    again = list(csv.reader(io.StringIO(written.decode(), newline="")))
    assert len(again) == table["rows"] + 1
    assert {len(row) for row in again} == {len(columns) + 5}


@settings(deadline=None)
@given(cells=st.fixed_dictionaries(dict.fromkeys(["gpu_set", "bytes", "time_s", "algorithm_forced", "trust"], CELL)))
def test_one_odd_row_leaves_the_others_as_they_are(cells):
    good = {"machine": "4gpu-pcie", "n_gpus": "4", "collective": "all_reduce", "bytes": "8", "time_s": "1"}
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows([good, {**good, **cells}, good])
    document, written = score(out.getvalue().encode())
    assert document is not None, written
    rows = list(csv.DictReader(io.StringIO(written.decode(), newline="")))
    assert rows[0]["skipped"] == rows[2]["skipped"] == ""
    assert rows[0]["predicted_s"] == rows[2]["predicted_s"] == "0.001"
