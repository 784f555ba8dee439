"""A folder compared with its prediction: the error found is the error put in, and omissions are reported."""

from __future__ import annotations

import json
import math

import pytest

from simulator.console.run import run_app
from tests.measured_folders import (
    DEVICE,
    ENVIRONMENT,
    PART,
    bandwidths,
    constant,
    operators,
    scattered,
    steps,
    timed,
    write,
)
from validate.cli import app
from validate.compare.classes import class_errors, find_outliers
from validate.compare.comparison import ComparisonOptions, compared, part_by_facts, topology_with
from validate.compare.folder import VALUES, key_of, read_folder, row_name
from validate.kinds import OPERATORS, STEPS
from validate.machine.measure.timing import median_interval
from validate.score import scoring
from validate.tables.table import read_table

pytestmark = pytest.mark.slow


def run(capsys, *arguments):
    status = run_app(app, "validate", ["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def document(capsys, *arguments):
    status, out, _ = run(capsys, *arguments, "--json")
    assert status == 0
    return json.loads(out)


@pytest.fixture(scope="module")
def slow_by_a_quarter(tmp_path_factory):
    tables = {
        "ops.csv": timed("ops.csv", operators(40), constant(1.25)),
        "training.csv": timed("training.csv", steps(("resnet18", "alexnet")), constant(0.8)),
        "memory.csv": bandwidths(),
    }
    return write(tmp_path_factory.mktemp("quarter"), tables)


def test_the_error_found_is_the_one_put_in(capsys, slow_by_a_quarter):
    found = document(capsys, slow_by_a_quarter)
    classes = {(item["table"], *item["by"].values()): item for item in found["classes"]}
    whole = classes["ops.csv",]
    assert whole["scored"] == whole["rows"] == 40
    for key in ("median", "mean", "p90", "median_low", "median_high"):
        assert whole[key] == pytest.approx(1 - 1 / 1.25, rel=1e-6)
    assert whole["bias"] == pytest.approx(1 / 1.25 - 1, rel=1e-6)
    assert whole["spread"] == 0.004
    assert classes["ops.csv", "conv2d"]["bias"] == pytest.approx(-0.2, rel=1e-6)
    assert classes["training.csv",]["bias"] == pytest.approx(0.25, rel=1e-6)
    assert classes["training.csv", "alexnet"]["scored"] == 2
    assert [item for item in found["outliers"] if item["table"] != "memory.csv"] == []  # which has no planted errors


def test_tables_that_no_scorer_predicts_are_listed_as_measured_only(slow_by_a_quarter, monkeypatch):
    monkeypatch.setattr(scoring, "KINDS", (OPERATORS, STEPS))
    found = compared(read_folder(str(slow_by_a_quarter)), ComparisonOptions())
    rows = [row for row in found.rows if row.table == "memory.csv"]
    assert len(rows) == len(bandwidths())
    assert {row.skipped for row in rows} == {"measured only: no scorer predicts this table"}
    assert all(any(row.cells.get(name.lower()) for name in VALUES) for row in rows)
    assert {item.scored for item in found.classes if item.table == "memory.csv"} == {0}


def test_device_and_topology_are_found_by_what_the_machine_reports(slow_by_a_quarter):
    found = compared(read_folder(str(slow_by_a_quarter)), ComparisonOptions())
    assert (found.places.part, found.places.topology) == (PART, "dgx-h200")


@pytest.mark.parametrize(
    ("name", "gpu", "part"),
    [
        ("nvidia-h100-80gb-hbm3", {"sm_count": 132, "memory_bytes": 85_000_000_000}, "h100-sxm5-80gb"),
        ("nvidia-h100-pcie", {"sm_count": 114, "memory_bytes": 85_000_000_000}, "h100-pcie"),
        ("nvidia-h100-80gb-hbm3", {"sm_count": 99, "memory_bytes": 85_000_000_000}, ""),
        ("NVIDIA H100 80GB HBM3", {}, "h100-sxm5-80gb"),
        ("NVIDIA GH200 120GB", {}, "gh200-480gb"),
        ("tesla-v100-sxm2-16gb", {}, "v100-sxm2-16gb"),
        ("nvidia-geforce-rtx-3090", {"sm_count": 82, "memory_bytes": 25_300_000_000}, "rtx-3090"),
        ("some-accelerator", {"sm_count": 132, "memory_bytes": 85_000_000_000}, ""),
        ("", {}, ""),
    ],
)
def test_parts_by_facts(name, gpu, part):
    assert part_by_facts(name, {"gpu": gpu}) == part


def test_the_topology_of_a_part_has_enough_of_them():
    assert topology_with("h200-sxm", 1) == "dgx-h200"
    assert topology_with("t4", 1) == "1x-t4"
    assert topology_with("no-such-part", 1) is None


def test_a_topology_in_the_folder_is_used_and_the_option_goes_before(tmp_path, capsys):
    bare = {"device": DEVICE, "gpu": {"name": "a GPU"}}  # gives neither model nor size
    write(tmp_path, {"ops.csv": timed("ops.csv", operators(5), constant(1.0))}, environment=bare)
    from simulator.topology.catalogue import builtin_topologies

    (tmp_path / "topology.yaml").write_text(builtin_topologies()["1x-t4"].read_text())
    rows = document(capsys, tmp_path, "--device", f"{DEVICE}=t4")
    assert rows["part"] == "t4"
    assert rows["topology"].endswith("topology.yaml")
    assert document(capsys, tmp_path, "--topology", "dgx-h200")["part"] == PART


def test_a_folder_of_several_devices_and_machines_mixes_none_of_them(tmp_path):
    """Tables without a record: rows of an unknown device stay unknown."""
    ops = timed("ops.csv", operators(6), constant(1.0))
    for row, name in zip(ops, ("t4", "t4", "v100-pcie-32gb", "no-such", "t4", "no-such"), strict=True):
        row |= {"device": name, "dtype": "fp32"}
    training = timed("training.csv", steps(("alexnet",)), constant(1.0))
    training[0]["machine"], training[1]["machine"] = "1x-t4", "p3.2xlarge"
    write(tmp_path, {"ops.csv": ops, "training.csv": training})
    (tmp_path / "run.json").unlink()
    found = compared(read_folder(str(tmp_path)), ComparisonOptions())
    assert (found.places.part, found.places.topology) == ("", None)
    assert [row.cells["device"] for row in found.rows if row.kind == "operators" and not row.counts] == ["no-such"] * 2
    steps_found = [row for row in found.rows if row.kind == "training"]
    assert len({row.predicted_s for row in steps_found}) == 2
    assert all(row.counts for row in steps_found)


def test_rows_of_grade_c_do_not_count(tmp_path, capsys):
    ops = timed("ops.csv", operators(6), constant(1.0))
    ops[0] |= {"trust": "C"}
    found = document(capsys, write(tmp_path, {"ops.csv": ops}))
    assert (found["rows_scored"], found["rows_total"]) == (5, 6)
    assert found["skipped"] == {"ops.csv": {"context: trust C": 1}}
    assert document(capsys, tmp_path, "--trust", "A,C")["rows_scored"] == 6


def test_a_run_that_did_not_finish_and_what_it_left_is_said(tmp_path, capsys):
    left = [{"group": "steps", "case": "vgg16", "reason": "out of memory"}] * 3
    ops = timed("ops.csv", operators(5), constant(1.0))
    write(tmp_path, {"ops.csv": ops}, finished=False, end="the device is lost", left=left)
    status, out, _ = run(capsys, tmp_path)
    assert status == 0
    assert "note: the run did not finish: the device is lost" in out
    assert "     3  steps: out of memory" in out


def test_without_a_record_tables_are_read_all_the_same(tmp_path, capsys):
    write(tmp_path, {"ops.csv": timed("ops.csv", operators(5), constant(1.0))})
    (tmp_path / "run.json").unlink()
    found = document(capsys, tmp_path, "--device", f"{DEVICE}={PART}")
    assert found["rows_scored"] == 5
    assert "no run.json" in found["notes"][0]


def test_one_bad_table_does_not_hide_the_others(tmp_path, capsys):
    write(tmp_path, {"ops.csv": timed("ops.csv", operators(5), constant(1.0))})
    (tmp_path / "copies.csv").write_bytes(b"\xff\xfe\x00")
    found = document(capsys, tmp_path)
    assert found["rows_scored"] == 5
    assert any("copies.csv: not read" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "none", "is not there"),
        (lambda p: (p / "f.csv").write_text("a,b\n1,2\n") and p / "f.csv", "is a file; a folder"),
        (lambda p: p, "holds no measurement; found no table"),
        (lambda p: (p / "run.json").write_text("[1]") and p, "is not a record of a run"),
        (lambda p: (p / "run.json").write_text("{") and p, "is not JSON"),
    ],
)
def test_wrong_folders_are_one_line(tmp_path, capsys, make, words):
    status, out, err = run(capsys, make(tmp_path))
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "a folder is needed"),
        (("--topology", "dgx-h20"), "did you mean"),
        (("--device", "h200-sx"), "did you mean 'h200-sxm'"),
        (("--trust", "A,"), "--trust: grades such as A,B"),
        (("--trust", "A,Z"), "--trust: no grade 'Z'; allowed: A, B, C"),
        (("--topology", "1x-t4"), "--topology 1x-t4: t4 has 40 multiprocessors, and the NVIDIA H200 that is measured"),
        (("--topology", "cpu-i7-3820"), "--topology cpu-i7-3820: has no GPU, and the GPU NVIDIA H200 is what is"),
        (("--device", f"{DEVICE}=t4"), "--device: t4 has 40 multiprocessors"),
        (("--device", "gh200-480gb"), "is another GPU than the NVIDIA H200 that is measured, h200-sxm"),
        (("--calibrate", "some"), "--calibrate: a number of rows such as 50, or a time such as 120s; got 'some'"),
        (("--calibrate", "9", "--calibrated-by", "."), "one of the two"),
        (("--calibrate", "9", "--calibration", "x"), "--calibration is predicted with"),
        (("--with", "nowhere"), "--with nowhere: is not there"),
        (("--report", "nowhere/r.html"), "there is no folder"),
    ],
)
def test_wrong_options_are_one_line(slow_by_a_quarter, capsys, arguments, words):
    status, _, err = run(capsys, *([slow_by_a_quarter, *arguments] if arguments else []))
    assert status == 2
    assert words in err
    assert err.count("\n") == 1


def test_planted_outliers_are_named_and_no_others(tmp_path):
    rows = timed("ops.csv", operators(150), scattered(0.02))
    planted = [20, 77]
    for i in planted:
        rows[i]["time_s"] *= 1.6
    found = compared(read_folder(str(write(tmp_path, {"ops.csv": rows}))), ComparisonOptions())
    named = {outlier.line for outlier in found.outliers}
    assert {i + 2 for i in planted} <= named
    assert len(named) <= len(planted) + 5  # of 150 normal rows, hardly one exceeds three deviations
    assert all(outlier.deviations < -3 for outlier in found.outliers if outlier.line in {i + 2 for i in planted})


def test_where_all_agree_noise_is_no_outlier(tmp_path):
    rows = timed("ops.csv", operators(60), constant(1.1))
    rows[0] |= {"time_s": rows[0]["time_s"] * 1.02, "interval": 0.02}
    found = compared(read_folder(str(write(tmp_path, {"ops.csv": rows}))), ComparisonOptions())
    assert found.outliers == ()


def test_a_class_of_four_has_no_outliers(slow_by_a_quarter):
    rows = [
        row
        for row in compared(read_folder(str(slow_by_a_quarter)), ComparisonOptions()).rows
        if row.table == "training.csv"
    ]
    assert len(rows) == 4
    assert find_outliers(rows) == []


def test_the_interval_of_the_median_covers_it_as_often_as_it_says(slow_by_a_quarter):
    """Of draws with a known median of abs(error), 95 % of intervals contain it; the share in 200 is within 4 sigma."""
    import random
    from dataclasses import replace

    row = next(row for row in compared(read_folder(str(slow_by_a_quarter)), ComparisonOptions()).rows if row.counts)
    draw = random.Random(7)
    true = math.log(2) * 0.1  # the median of an exponential of mean 0.1
    hits = 0
    for _ in range(200):
        rows = [replace(row, predicted_s=row.measured_s * (1 + draw.expovariate(10.0))) for _ in range(25)]
        found = class_errors(rows)
        hits += found.median_low <= true <= found.median_high
    assert hits >= 190 - 4 * math.sqrt(200 * 0.95 * 0.05)
    assert class_errors(rows[:5]).median_low is None


@pytest.mark.parametrize("n", [900, 1000, 1001, 5000, 100_000])
def test_thousands_of_rows_have_an_interval_too(n):
    """Ranks of the sign test tend to n/2 -+ 0.98 sqrt(n), without a jump where the approximation takes over."""
    found = median_interval([float(i) for i in range(n)])
    assert found.low == pytest.approx(n / 2 - 0.98 * math.sqrt(n), abs=1.5)
    assert found.low + found.high == n - 1


def test_text_fits_80_columns_and_is_the_same_twice(slow_by_a_quarter, capsys, monkeypatch):
    first = run(capsys, slow_by_a_quarter)
    assert first == run(capsys, slow_by_a_quarter)
    assert max(map(len, first[1].splitlines())) <= 80
    assert "\x1b" not in first[1]
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run(capsys, slow_by_a_quarter)[1]
    assert max(map(len, narrow.splitlines())) <= 60
    assert "not shown at 60 columns" in narrow


def test_a_calibration_file_sets_aside_what_it_was_fitted_to(tmp_path, capsys):
    pytest.importorskip("scipy")
    ops = timed("ops.csv", operators(30), constant(1.3))
    short = write(tmp_path / "short", {"ops.csv": ops[:15]})
    long = write(tmp_path / "long", {"ops.csv": ops})
    file = tmp_path / "mine.yaml"
    assert run_app(app, "validate", ["calibrate", str(short), "--out", str(file)]) == 0
    capsys.readouterr()
    found = document(capsys, long, "--calibration", file)
    assert found["rows_scored"] == 15
    assert found["skipped"]["ops.csv"] == {"calibrated on": 15}
    whole = next(item for item in found["classes"] if not item["by"])
    assert whole["median"] < 0.1
    assert found["method"] == f"calibration of {PART}"


def test_the_environment_is_in_the_document(slow_by_a_quarter, capsys):
    assert document(capsys, slow_by_a_quarter)["environment"] == ENVIRONMENT


def test_how_an_operator_could_be_issued_is_no_part_of_what_was_asked(tmp_path):
    """An operator captured in one run and not in the next is the same operator: the two are compared."""
    text = "device,op,m,n,k,issue,time_s\nh100-sxm5-80gb,linear,64,64,64,graph,1e-5\n"
    tables = []
    for issue in ("graph", "queued"):
        path = tmp_path / f"{issue}.csv"
        path.write_text(text.replace("graph", issue))
        tables.append(read_table(path.read_bytes(), str(path), ("op",), ("op",), "operators"))
    keys = [key_of(table, table.rows[0]) for table in tables]
    assert keys[0] == keys[1]
    assert "graph" not in row_name(tables[0], tables[0].rows[0])
