"""Tables of operators: known errors, skipped rows, calibration without the rows that judge it."""

import csv
import json
import random
import sys
from collections.abc import Mapping

import pytest
import yaml

from simulator.constants import DEFAULT
from simulator.devices.calibration_file import load_calibration
from simulator.errors import InputError, MissingDependency
from simulator.topology.catalogue import load_part
from simulator.workload.operators import Attention
from tests.validate_commands import calibrate_command, score_command
from validate.kinds import OPERATORS
from validate.kinds.kind import RowQuestion
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.table import PUBLISHED, conventions_of, filled, stands_for

NAMES = RowNames()

COLUMNS = ["device", "op", "variant", "phase", "dtype", "batch", "m", "n", "k", "rows", "cols", "time_s",
           "includes_dispatch", "clock", "c_in", "c_out", "h_in", "w_in", "kernel_h", "kernel_w", "groups",
           "dataset", "trust"]  # fmt: skip
LINEAR = {"device": "v100-pcie-32gb", "op": "linear", "phase": "fwd", "dtype": "fp32", "m": "512", "n": "1024",
          "k": "2048", "time_s": "0.001", "trust": "A", "dataset": "mine"}  # fmt: skip


IMAGE = {"batch": "1", "c_in": "4", "c_out": "4", "h_in": "8", "w_in": "8", "kernel_h": "3", "kernel_w": "3"}


def table(tmp_path, *rows, name="ops.csv", columns=COLUMNS):
    path = tmp_path / name
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**LINEAR, **row} for row in rows)
    return str(path)


def document(capsys, file, **options):
    score_command([file], json=True, **options)
    return json.loads(capsys.readouterr().out)["tables"][0]


def written(path):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def asked(row: Mapping[str, str]) -> RowQuestion:
    return OPERATORS.read(lambda column: row.get(column, ""), NAMES)


def predicted_s(**row):
    return asked({**LINEAR, **row}).time_s(NAMES.session)


def many(n=80, seed=1, device="v100-pcie-32gb", factor=2.0):
    """Return rows that take *factor* times their prediction."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        row = {"device": device, **{name: str(rng.randrange(64, 4096)) for name in ("m", "n", "k")}}
        rows.append({**row, "time_s": repr(factor * predicted_s(**row))})
    return rows


def test_known_errors(tmp_path, capsys):
    exact_s = predicted_s()
    file = table(tmp_path, {"time_s": repr(exact_s)}, {"time_s": repr(2 * exact_s)}, {"op": "spmm"})
    scored = document(capsys, file)
    assert (scored["kind"], scored["rows"], scored["scored"]) == ("operators", 3, 2)
    assert scored["overall"]["median_ape"] == pytest.approx(0.25)
    assert scored["overall"]["bias"] == pytest.approx(-0.25)
    assert scored["skipped"] == {"no model of spmm": 1}
    assert {"op": "linear"} in [group["by"] for group in scored["groups"]]
    assert {"by": {"op": "spmm"}, "rows": 1} in scored["not_scored"]


def test_the_roofline_stands_beside(tmp_path, capsys):
    part = load_part("v100-pcie-32gb")
    flop_s = 2 * 512 * 1024 * 2048 / part.peak["fp32"]
    assert asked(LINEAR).bound_s(NAMES.session) == pytest.approx(flop_s)
    scored = document(capsys, table(tmp_path, {"time_s": repr(4 * flop_s)}))
    assert scored["baselines"]["roofline"]["bias"] == pytest.approx(-0.75)


def test_what_the_framework_waits_for_is_in_rows_that_measured_it(tmp_path, capsys):
    assert predicted_s(includes_dispatch="1") > predicted_s(includes_dispatch="0") == predicted_s()


def test_the_hosts_clock_has_a_floor_of_its_own():
    """LLMCompass, A100: softmax of 4096 x 32 takes 13.1 us, a compiled gelu of 1,024 numbers 48.2 us."""
    small = {"device": "a100-sxm4-80gb", "dtype": "fp16", "includes_dispatch": "1"}
    softmax = {**small, "op": "softmax", "rows": "4096", "cols": "32"}
    gelu = {**small, "op": "elementwise", "variant": "gelu", "rows": "1", "cols": "1024"}
    host = {"clock": "host"}
    assert predicted_s(**softmax, **host) == pytest.approx(13.1e-6, rel=0.1)
    assert predicted_s(**gelu, **host, compiled="1") == pytest.approx(48.2e-6, rel=0.1)
    assert predicted_s(**gelu, **host) < 0.5 * predicted_s(**gelu, **host, compiled="1")
    assert predicted_s(**softmax) == predicted_s(**softmax, clock="events") > 2 * predicted_s(**softmax, **host)
    product = {**small, "op": "matmul", "m": "64", "n": "64", "k": "64"}
    chosen_s = DEFAULT["dispatch"].product_s
    waits_s = predicted_s(**product, **host) - predicted_s(**{**product, "includes_dispatch": ""})
    floor_s = predicted_s(**softmax, **host) - predicted_s(**{**softmax, "includes_dispatch": ""})
    assert waits_s - floor_s == pytest.approx(chosen_s)


def test_tables_that_the_host_timed_are_known():
    row = {"dataset": "llmcompass_ops", "op": "layer_norm", "trust": "A"}
    rules = (conventions_of(PUBLISHED)["operators"],)
    assert stands_for(rules, "clock", lambda name: row.get(name, ""))[0] == "host"
    assert stands_for(rules, "compiled", lambda name: row.get(name, ""))[0] == "1"
    assert not stands_for(rules, "compiled", lambda name: {**row, "op": "softmax"}.get(name, ""))[0]
    assert not stands_for(rules, "clock", lambda name: {**row, "dataset": "neusight_ops"}.get(name, ""))[0]
    assert not filled("operators", "clock", lambda name: row.get(name, ""))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"clock": "sundial", "includes_dispatch": "1"}, "no such clock: sundial; events or host"),
        ({"device": ""}, "device missing"),
        ({"device": "v100-pcie-32g"}, "no part of device 'v100-pcie-32g'; did you mean 'v100-pcie-32gb'?"),
        ({"device": "xyz"}, "no part of device 'xyz'; --device NAME=PART gives one"),
        ({"device": "mine"}, "no part of device 'mine'; --device NAME=PART gives one"),
        ({"op": ""}, "no model of an operator without a name"),
        ({"dtype": "fp31"}, "no such dtype: fp31"),
        ({"dtype": "nvfp4", "op": "matmul"}, "matmul in nvfp4 is not modelled; linear is"),
        ({"phase": "sideways"}, "no such phase: sideways"),
        ({"dtype": "fp8"}, "v100-pcie-32gb: no peak rate for fp8"),
        ({"m": ""}, "m missing"),
        ({"m": "1.5"}, "m is not a whole number"),
        ({"m": "-4"}, "m not positive"),
        ({"m": "1e11"}, "m is more than 1e+10"),
        ({"op": "conv2d", **IMAGE, "kernel_h": "9"}, "the kernel is larger than the image"),
        ({"op": "conv2d", **IMAGE, "groups": "3"}, "groups do not divide the channels"),
        ({"time_s": "0"}, "time_s not positive"),
        ({"trust": "C"}, "context: trust C"),
    ],
)
def test_rows_that_cannot_be_scored(tmp_path, capsys, cells, reason):
    scored = document(capsys, table(tmp_path, {}, cells))
    (found,) = scored["skipped"]
    assert found.startswith(reason)
    assert scored["skipped_lines"][found] == [3]


def test_a_name_of_the_table_is_made_a_part(tmp_path, capsys):
    file = table(tmp_path, {"device": "h100-unspecified"}, {})
    assert document(capsys, file)["scored"] == 1
    assert document(capsys, file, device=["h100-unspecified=h100-pcie"])["scored"] == 2


def test_a_part_for_all_rows_makes_the_column_needless(tmp_path, capsys):
    file = table(tmp_path, {}, columns=[c for c in COLUMNS if c != "device"])
    assert document(capsys, file, device=["t4"])["scored"] == 1


def test_predictions_do_not_depend_on_what_was_measured(tmp_path, capsys):
    rows = many()
    one = table(tmp_path, *rows, name="1.csv")
    other = table(tmp_path, *[{**row, "time_s": "", "trust": "B"} for row in rows], name="2.csv")
    predictions = []
    for file in (one, other):
        out = tmp_path / "p.csv"
        document(capsys, file, out=str(out), quiet=True)
        predictions.append([row["predicted_s"] for row in written(out)])
    assert predictions[0] == predictions[1]
    assert all(predictions[0])


# -- calibration -----------------------------------------------------------------------


@pytest.fixture
def scipy():
    pytest.importorskip("scipy", reason="calibrating needs SciPy")


def calibrated(capsys, tmp_path, rows, count="20", name="t.csv", **options):
    out = tmp_path / "p.csv"
    scored = document(capsys, table(tmp_path, *rows, name=name), calibrate=count, out=str(out), quiet=True, **options)
    return scored, written(out)


def test_a_factor_on_all_rows_is_found_and_judged_on_the_others(tmp_path, capsys, scipy):
    scored, _ = calibrated(capsys, tmp_path, many(factor=2.0))
    assert scored["skipped"] == {"calibrated on": 20}
    assert scored["scored"] == 60
    assert scored["overall"]["median_ape"] < 0.1  # shrunk slightly towards 1


@pytest.mark.slow
def test_rows_that_are_judged_have_no_say(tmp_path, capsys, scipy):
    rows = many()
    _, before = calibrated(capsys, tmp_path, rows)
    judged = [i for i, row in enumerate(before) if not row["skipped"]]
    rng = random.Random(3)
    for i in judged:
        rows[i]["time_s"] = repr(rng.uniform(1e-6, 1))
    _, after = calibrated(capsys, tmp_path, rows)
    assert [row["predicted_s"] for row in after] == [row["predicted_s"] for row in before]
    assert [i for i, row in enumerate(after) if not row["skipped"]] == judged


@pytest.mark.slow
def test_the_choice_does_not_depend_on_order_or_time(tmp_path, capsys, scipy):
    rows = many()
    key = ("m", "n", "k")
    scored, before = calibrated(capsys, tmp_path, rows)
    random.Random(5).shuffle(rows)
    again, after = calibrated(capsys, tmp_path, rows)
    chosen = [{tuple(row[c] for c in key) for row in turn if row["skipped"]} for turn in (before, after)]
    assert chosen[0] == chosen[1]
    assert scored["overall"] == pytest.approx(again["overall"])


def test_rows_that_ask_the_same_as_a_calibrating_row_are_not_judged(tmp_path, capsys, scipy):
    rows = many(20)
    twice = rows + [{**row, "time_s": repr(1.01 * float(row["time_s"])), "dataset": "again"} for row in rows]
    scored, written_rows = calibrated(capsys, tmp_path, twice, count="5")
    assert scored["skipped"] == {"calibrated on": 10}
    assert [bool(row["skipped"]) for row in written_rows[:20]] == [bool(row["skipped"]) for row in written_rows[20:]]


def test_at_most_half_of_a_device_is_calibrated_on(tmp_path, capsys, scipy):
    scored, _ = calibrated(capsys, tmp_path, many(7) + many(1, device="t4"), count="50")
    assert scored["skipped"] == {"calibrated on": 3}
    assert {"device": "t4"} in [group["by"] for group in scored["groups"]]


@pytest.mark.slow
def test_devices_are_calibrated_apart(tmp_path, capsys, scipy):
    scored, _ = calibrated(capsys, tmp_path, many(factor=2.0) + many(device="t4", factor=1.0))
    errors = {g["by"]["device"]: g["median_ape"] for g in scored["groups"] if set(g["by"]) == {"device"}}
    assert errors["t4"] < 0.01
    assert errors["v100-pcie-32gb"] < 0.1


@pytest.mark.slow
def test_grades_that_do_not_count_are_not_calibrated_on(tmp_path, capsys, scipy):
    rows = [{**row, "trust": "C" if i % 2 else "A"} for i, row in enumerate(many())]
    scored, rows = calibrated(capsys, tmp_path, rows)
    assert sum(row["skipped"] == "calibrated on" and row["trust"] == "C" for row in rows) == 0
    assert scored["skipped"]["calibrated on"] == 20


@pytest.mark.slow
def test_the_file_of_a_calibration(tmp_path, capsys, scipy):
    file, out = table(tmp_path, *many(40), *many(3, device="t4")), tmp_path / "c.yaml"
    calibrate_command(file, device="v100-pcie-32gb", out=str(out))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "v100-pcie-32gb: 40 points (40 linear)" in printed.err
    first = out.read_bytes()
    calibrate_command(file, device="v100-pcie-32gb", quiet=True)
    assert capsys.readouterr().out.encode() == first
    data = yaml.safe_load(first)["devices"]["v100-pcie-32gb"]
    assert data["points"]["count"] == {"linear": 40}
    assert data["points"]["lines"] == "2-41"
    assert len(data["points"]["asked"]) == 40
    assert data["spread"]["by_class.gemm"] > 0
    assert load_calibration(out)["v100-pcie-32gb"].by_class["gemm"] > 1.2
    # Predictions use the calibration; the rows it was fitted to never count.
    more = table(tmp_path, *many(40), *many(10, seed=9), name="more.csv")
    scored = document(capsys, more, calibration=str(out))
    assert scored["skipped"] == {"calibrated on": 40}
    assert scored["overall"]["median_ape"] < 0.1
    assert document(capsys, more)["overall"]["median_ape"] == pytest.approx(0.5)


def test_names_of_tables_are_quoted_as_yaml_wants_it(tmp_path, capsys, scipy):
    file = table(tmp_path, *many(4), name='a "b" \\ ☃.csv')
    calibrate_command(file, device="v100-pcie-32gb", quiet=True)
    data = yaml.safe_load(capsys.readouterr().out)
    assert data["devices"]["v100-pcie-32gb"]["points"]["table"] == 'a "b" \\ ☃.csv'


def test_a_table_without_devices_is_of_the_one_named(tmp_path, capsys, scipy):
    file = table(tmp_path, *many(8), columns=[c for c in COLUMNS if c != "device"])
    calibrate_command(file, device="t4", quiet=True)
    assert yaml.safe_load(capsys.readouterr().out)["devices"]["t4"]["points"]["count"] == {"linear": 8}


def test_columns_asked_hold_nothing_measured():
    assert not {"time_s", "note", "trust", "dataset", "source"} & set(OPERATORS.asked)


def test_a_device_without_a_name_is_a_reason():
    with pytest.raises(NotScored, match="device missing"):
        NAMES.device("")


def test_without_scipy_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingDependency, match=r"fitting needs SciPy; in the clone: pip install -e '\.\[fit\]'"):
        document(capsys, table(tmp_path, *many(10)), calibrate="5")
    assert document(capsys, table(tmp_path, *many(10)))["scored"] == 10


def test_rows_that_are_not_calibrated_on_are_listed_with_their_reasons(tmp_path, capsys, scipy):
    good = "t4,linear,,fwd,fp32,4096,4096,1024,,,9.9e-3"
    path = tmp_path / "t.csv"
    path.write_text(
        "device,op,variant,phase,dtype,m,n,k,rows,cols,time_s,trust\n"
        f"{good},A\n"
        "t4,linear,,fwd,fp32,,4096,1024,,,9.9e-3,A\n"
        "t4,linear,,fwd,fp32,1,1,1,,,1e300,A\n"
        "t4,linear,,fwd,fp32,1,1,2,,,soon,A\n"
        "t4,linear,,fwd,fp32,,4096,1024,,,9.9e-3,A\n"
        "p4,linear,,fwd,fp32,,4096,1024,,,9.9e-3,A\n"
        "t44,linear,,fwd,fp32,1,1,1,,,9.9e-3,A\n"
        f"{good},C\n"
        "t4\n"
    )
    calibrate_command(str(path), device="t4", out=str(tmp_path / "c.yaml"))
    told = [line.split("  ") for line in capsys.readouterr().err.splitlines()[1:]]
    assert {line[0].strip(): [cell.strip() for cell in line[1:] if cell.strip()] for line in told} == {
        "not used": ["rows", "lines"],
        "m missing": ["2", "3, 6"],
        "1 fields where the header has 12": ["1", "10"],
        "no part of device 't44'; did you mean 't4'?": ["1", "8"],
        "time_s is not a number": ["1", "5"],
        "time_s outside 1e-09 to 1e+09 s": ["1", "4"],
        "trust C": ["1", "9"],
    }


def test_where_no_row_can_be_calibrated_on_the_reasons_are_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "device,op,dtype,m,n,k,time_s\n"
        "t4,linear,fp32,,64,64,1e-3\nt4,linear,fp32,,64,64,1e-3\nt4,linear,fp32,64,64,64,1e300\np4,linear,fp32,1,1,1,1\n"
    )
    with pytest.raises(InputError) as raised:
        calibrate_command(str(path), device="t4")
    assert str(raised.value).endswith(
        "t.csv: no row of t4 that can be predicted and has a grade of A, B;"
        " m missing (lines 2-3); time_s outside 1e-09 to 1e+09 s (line 4); other rows are of p4"
    )


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, Attention(16, 1, 32, 32, 64)),
        ({"heads": "8"}, Attention(2, 8, 32, 32, 64)),
        ({"heads": "8", "kv_heads": "8"}, Attention(2, 8, 32, 32, 64)),
        ({"heads": "8", "kv_heads": "1"}, Attention(2, 8, 32, 32, 64, kv_heads=1)),
    ],
)
def test_heads_of_attention(cells, expected):
    row = {"device": "l4", "op": "attention", "dtype": "bf16", "batch": "16", "m": "32", "n": "32", "k": "64", **cells}
    assert asked(row).question.operator == expected


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"heads": "3"}, "do not divide batch"),
        ({"heads": "8", "kv_heads": "3"}, "divide heads"),
        ({"variant": "casual"}, "attention 'casual' is not modelled; causal, or empty"),
        ({"dtype": "fp8"}, "attention of 8 bits is not modelled"),
    ],
)
def test_attention_that_cannot_be_scored(cells, said):
    row = {"device": "l4", "op": "attention", "dtype": "bf16", "batch": "16", "m": "32", "n": "32", "k": "64", **cells}
    with pytest.raises(NotScored, match=said):
        asked(row)
