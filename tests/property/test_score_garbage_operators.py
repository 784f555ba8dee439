"""Any table of operators or steps: rows are scored or skipped, or the fault is reported in one line."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from tests.examples import few
from validate.kinds import COPIES, LAUNCH, MEMORY, OPERATORS, STEPS, STORAGE
from validate.score.report import Predictions, ScoredTable, scores_document, scores_for, scores_report
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.table import read_table

NUMBERS = ["", "0", "1", "2", "7", "64", "-1", "1e3", "1e18", "1e300", "1e400", "nan", "inf", "0.5", "1e-320", "١"]
WORDS = ["t4", "v100-pcie-32gb", "mi100", "knl-7250", "linear", "bmm", "conv2d", "elementwise", "softmax", "lstm",
         "fwd", "bwd", "bwd_weight", "fp32", "fp16", "int8", "relu", "add", "NT", "A", "C", "p3.2xlarge", "alexnet",
         "gpt2", "train", "inference", "images/s", "adam", "full", "h2d", "d2d", "p2p", "bidir",
         "cuda:0", "host", "torch stream", "copy", "gather rows of 64 B", "pointer chase", "read_random", "direct",
         "host time of linear, forward, recorded", "time of a graph of 9 kernels", "from a captured graph",
         "xeon-e5-2630-v3", "2x-gtx1080-desktop", "\x1b[31m", "a,b", '"', "\n", "\u2028"]  # fmt: skip
CELL = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(st.characters(exclude_characters="\0\ud800"), max_size=6)
)
KINDS = [OPERATORS, STEPS, COPIES, MEMORY, LAUNCH, STORAGE]


def check(kind, rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, kind.columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    scoring = Scoring(ScoringOptions())
    try:
        table = read_table(text.getvalue().encode("utf-8", "replace"), "t.csv", kind.needed, kind.columns, kind.name)
    except InputError:
        return None
    scored = tuple(scoring.score(table, kind, ["A"]))
    for row in scored:
        assert row.skipped or row.error is not None
        assert row.skipped.isprintable()
        assert row.predicted_s is None or 0 < row.predicted_s < float("inf")
    found = ScoredTable("t.csv", scores_for(kind), kind, scoring.method(kind))
    lines = []
    write = Predictions([table], lines.append).begin(table)
    for row in scored:
        found.rows.add(row)
        write(row)
    assert scores_document([found], strategy="nccl", trust=["A"])["tables"][0]["rows"] == len(scored)
    assert scores_report([found], trust=["A"])
    assert b"".join(lines).count(b"\n") >= len(lines) == len(scored) + 1
    return scored


@settings(deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_any_cells(kind, data):
    rows = data.draw(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(kind.columns, CELL)), max_size=4))
    check(kind, rows)


GOOD = {
    "operators": {"device": "t4", "op": "linear", "phase": "fwd", "dtype": "fp32", "m": "64", "n": "64", "k": "64",
                  "batch": "2", "rows": "8", "cols": "8", "c_in": "4", "c_out": "4", "h_in": "9", "w_in": "9",
                  "kernel_h": "3", "kernel_w": "3", "hidden": "16", "timesteps": "3", "time_s": "1e-4"},
    "training": {"machine": "p3.2xlarge", "model": "lenet", "batch_per_gpu": "2", "step_time_s": "0.1",
                 "image": "32", "dtype": "fp32"},
}  # fmt: skip
OPS = ["linear", "matmul", "bmm", "conv2d", "elementwise", "softmax", "layer_norm", "batch_norm", "embedding", "gru"]


@settings(deadline=None)
@given(op=st.sampled_from(OPS), column=st.sampled_from(sorted(GOOD["operators"])), cell=CELL)
def test_one_odd_cell_of_an_operator(op, column, cell):
    good = {**GOOD["operators"], "op": op, "variant": "relu" if op == "elementwise" else ""}
    scored = check(OPERATORS, [good, {**good, column: cell}, good])
    assert scored is None or len(scored) < 3 or scored[0].predicted_s == scored[2].predicted_s


@settings(deadline=None, max_examples=few(30))
@given(column=st.sampled_from(sorted(GOOD["training"])), cell=st.sampled_from(NUMBERS))
def test_one_odd_cell_of_a_step(column, cell):
    check(STEPS, [GOOD["training"], {**GOOD["training"], column: cell}])
