"""Any folder gives figures or one line per fault; never a traceback, never a number invalid in JSON."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from tests.measured_folders import ENVIRONMENT, constant, operators, steps, timed, write
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_document, comparison_page, comparison_text

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("machine", "environment", "finished", "end", "date", "seconds", "rows", "left")
CELLS = st.sampled_from(["", "0", "-1", "nan", "1e400", "x", "1.5", "fp16", "cold", "99999999999", "a\nb", "<i>", "1"])
OPERATORS = timed("ops.csv", operators(8), constant(1.1))
STEPS = timed("training.csv", steps(("alexnet",)), constant(0.9))


def check(folder, again=None, *, page=True):
    try:
        found = compared(read_folder(str(folder)), ComparisonOptions(), again)
    except InputError:
        return
    document = comparison_document(found)
    json.dumps(document, allow_nan=False)
    text = comparison_text(found)
    assert max(map(len, text.splitlines())) <= 80
    if page:
        text = comparison_page(found, "again")
        assert text.rstrip().endswith("</html>")
        assert "<i>" not in text


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(record=st.dictionaries(st.sampled_from(KEYS), ANY, max_size=4))
def test_any_record(tmp_path, record):
    folder = write(tmp_path / "any", {"ops.csv": OPERATORS[:2]}, **record)
    check(folder, read_folder(str(write(tmp_path / "plain", {"ops.csv": OPERATORS[:2]}))))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_cells(tmp_path, data):
    tables = {"ops.csv": [dict(row) for row in OPERATORS], "training.csv": [dict(row) for row in STEPS]}
    for rows in tables.values():
        for _ in range(data.draw(st.integers(1, 6))):
            row = data.draw(st.sampled_from(rows))
            row[data.draw(st.sampled_from(sorted({*row, "throttled", "sm_clock_MHz", "note"})))] = data.draw(CELLS)
    check(write(tmp_path / "any", tables), page=data.draw(st.integers(0, 4)) == 0)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(cut=st.integers(0, 400), name=st.sampled_from(["ops.csv", "run.json"]))
def test_files_cut_anywhere(tmp_path, cut, name):
    folder = write(tmp_path / "any", {"ops.csv": OPERATORS[:3]}, environment=ENVIRONMENT)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: max(0, len(content) - cut)])
    check(folder)
