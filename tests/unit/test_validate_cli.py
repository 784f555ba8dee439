"""The command line of ``validate``: one line for a mistake, exit status 2, no traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator import __version__
from simulator.console.run import run_app
from simulator.plan.plan import PlanBuilder
from validate.cli import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HEADER = "machine,n_gpus,collective,bytes,time_s\n"
ROW = "4gpu-pcie,4,all_reduce,1000,0.001\n"


class Constant:
    name = "constant"

    def plan(self, request):
        builder = PlanBuilder()
        builder.work("wait", "host", 1e-3)
        return builder.build()


@pytest.fixture(autouse=True)
def constant(monkeypatch):
    monkeypatch.setattr("simulator.api.session.strategy_of", lambda name, software, **how: Constant())


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.csv"
    path.write_text(HEADER + ROW)
    return str(path)


def run(capsys, *arguments):
    status = run_app(app, "validate", list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_score_prints_and_succeeds(capsys, good):
    status, out, err = run(capsys, "score", good)
    assert (status, err) == (0, "")
    assert "1 of 1 rows scored (100.0%); strategy nccl" in out


def test_what_was_written_is_said_unless_quiet(capsys, good, tmp_path):
    out = tmp_path / "p.csv"
    assert run(capsys, "score", good, "--out", str(out))[2] == f"wrote {out}\n"
    assert run(capsys, "score", good, "--out", str(out), "--quiet")[2] == ""
    assert run(capsys, "score", good)[2] == ""


def test_cells_of_a_written_table_are_inert(capsys, tmp_path):
    table, out = tmp_path / "t.csv", tmp_path / "p.csv"
    table.write_text(
        "device,op,dtype,m,n,k,time_s,note,software,+more\n"
        "t4,linear,fp32,64,64,64,1e-5,=1+2,\x1b[31m\u202e,-1.5\n"
        't4,linear,fp32,64,64,64,1e-5,"@a, b",x\u00a0y,+x\n'
    )
    assert run(capsys, "score", str(table), "--out", str(out))[0] == 0
    head, *rows = out.read_text().splitlines()
    assert "'+more" in head
    assert [row.split(",64,1e-5,")[1].rsplit(",", 5)[0] for row in rows] == [
        "'=1+2,\\x1b[31m\\u202e,-1.5",
        "\"'@a, b\",x\u00a0y,'+x",
    ]
    assert run(capsys, "score", str(out))[0] == 0  # and can be read again


def test_rows_without_what_is_grouped_by_have_a_line(capsys, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(
        "device,op,dtype,m,n,k,issue,time_s\nt4,linear,fp32,64,64,64,graph,1e-5\nt4,linear,fp32,64,64,64,,1e-5\n"
    )
    _, out, _ = run(capsys, "score", str(table), "--by", "op,issue")
    lines = [line.split()[:4] for line in out.splitlines() if line.startswith("  ")]
    assert lines[1:] == [["linear", "graph", "1", "1"], ["(no", "issue)", "1", "1"]]
    assert "(no " not in run(capsys, "score", str(table), "--by", "op")[1]
    assert "(no " not in run(capsys, "score", str(table))[1]


@pytest.mark.parametrize(
    ("header", "row", "trust", "told"),
    [
        ("", "", "A,B", ""),
        (",trust", ",A", "A,B", ""),
        (",trust", ",A", "A,Z", "--trust: no row has the grade Z; grades there are: A\n"),
        ("", "", "Z", "--trust: no row has the grade Z; grades there are: none\n"),
        (
            ",trust",
            ",A",
            "Z",
            "--trust: no row has the grade Z; grades there are: A\nno row was scored: context: trust A\n",
        ),
    ],
)
def test_grades_that_no_row_has_are_named(capsys, tmp_path, header, row, trust, told):
    path = tmp_path / "t.csv"
    path.write_text(HEADER.strip() + header + "\n" + ROW.strip() + row + "\n")
    status, _, err = run(capsys, "score", str(path), "--trust", trust)
    assert (status, err) == (0, told)
    assert run(capsys, "score", str(path), "--trust", trust, "--quiet")[2] == ""


def test_that_nothing_was_scored_is_said(capsys, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEADER)
    assert run(capsys, "score", str(path))[::2] == (0, "no row was scored: there are none\n")
    path.write_text(HEADER + "4gpu-pcie,4,all_reduce,1000,x\n4gpu-pcie,4,all_reduce,,1\n4gpu-pcie,4,all_reduce,1,0\n")
    told = "no row was scored: bytes missing, and 2 other reasons\n"
    assert run(capsys, "score", str(path), "--json")[::2] == (0, told)


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["score", "-h"], ["calibrate", "-h"], ["fit", "-h"]])
def test_help(capsys, arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    assert "Usage: validate" in out
    assert "codes: 0 ok, 1 the run failed" in out


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"validate {__version__}\n", "")


def test_json_is_one_document(capsys, good):
    status, out, _ = run(capsys, "score", good, "--json")
    document = json.loads(out)
    assert status == 0
    assert document["schema_version"] == 1
    assert document["tables"][0]["overall"]["median_ape"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a command is needed"),
        (["score"], "a table is needed"),
        (["scor"], "validate: 'scor' is not a command; did you mean 'score'? (--help)"),
        (["import"], "validate: import needs COLLECTION and SOURCE (--help)"),
        (["score", "nope.csv"], "nope.csv: cannot be read: No such file or directory"),
        (["score", "."], ".: is a folder"),
        (["score", "-", "-"], "named twice"),
        (["score", "GOOD", "--topology", "p3.16xlarg"], "did you mean 'p3.16xlarge'"),
        (["score", "GOOD", "--machine", "x"], "--machine: NAME=FILE is needed; got 'x'"),
        (["score", "GOOD", "--machine", "x=4gpu-pcie", "--machine", "x=p3.16xlarge"], "--machine: 'x' is given twice"),
        (["score", "GOOD", "--machine", "4gpu-pci=p3.16xlarge"], "did you mean '4gpu-pcie'"),
        (["score", "GOOD", "--trust", "A,,B"], "--trust: grades such as A,B are needed"),
        (["score", "GOOD", "--by", "machin"], "--by: no column is called 'machin'; did you mean 'machine'"),
        (["score", "GOOD", "--out", "GOOD"], "is one of the tables"),
        (["score", "GOOD", "--out", "/nowhere/p.csv"], "--out /nowhere/p.csv"),
        (["score", "GOOD", "--out", "."], "--out .: is a folder"),
        (["score", "GOOD", "--bogus"], "--bogus"),
        (["score", "GOOD", "--trsut", "A"], "--trsut: no such option; did you mean '--trust'? (--help)"),
        (["check", "GOOD", "--by", "size"], "--by: is an option of validate score, not of validate check (--help)"),
        (["score", "GOOD", "--by", "size", "--by=machine"], "--by is given twice; once is enough"),
        (["score", "GOOD", "--device", "t4"], "--device is for tables of operators, memory and launch; these"),
        (["score", "GOOD", "--calibrate", "50"], "--calibrate is for tables of operators; these are of collectives"),
        (["score", "GOOD", "--calibrate", "some"], "--calibrate: a number of rows such as 50 is needed; got 'some'"),
        (["score", "GOOD", "--calibrate", "0"], "--calibrate: a number of rows such as 50 is needed; got '0'"),
        (["score", "GOOD", "--calibration", "nope.yaml"], "nope.yaml: cannot be read"),
        (["score", "GOOD", "--baselines", "b.csv"], "--baselines is for tables of training; these are of collectives"),
        (["score", "OPS", "--strategy", "ring"], "--strategy is for tables of collectives; these are of operators"),
        (["score", "OPS", "--device", "t5"], "--device: no GPU or CPU part 't5'; allowed: a10, a100-pcie-40gb"),
        (
            ["score", "OPS", "--device", "v100-pcie-32"],
            "--device: no GPU or CPU part 'v100-pcie-32'; did you mean 'v100-pcie-32gb'",
        ),
        (["score", "OPS", "--device", "=t4"], "--device: NAME=PART or PART is needed; got '=t4'"),
        (["score", "OPS", "--device", "x="], "--device: NAME=PART or PART is needed; got 'x='"),
        (["score", "OPS", "--device", "tt4=t4"], "--device: no row is of device 'tt4'; did you mean 't4'"),
        (["score", "OPS", "--device", "t4=t4", "--device", "t4=l4"], "--device: 't4' is given twice"),
        (["score", "OPS", "--device", "t4", "--device", "l4"], "--device: a part for all rows is given twice"),
        (["score", "OPS", "--machine", "a=p3.2xlarge"], "--machine is for tables of collectives, training, copies and"),
        (["score", "OPS", "--by", "opp"], "--by: no column is called 'opp'; did you mean 'op'"),
        (["score", "OPS", "--calibrate", "5", "--calibration", "OPS"], "--calibrate fits what --calibration reads"),
        (["calibrate"], "a table is needed, for example: validate calibrate --device v100-pcie-32gb ops.csv"),
        (["calibrate", "OPS"], "--device is needed"),
        (["calibrate", "OPS", "--device", "t44"], "--device: no GPU or CPU part 't44'; did you mean 't4'?"),
        (["calibrate", "OPS", "--device", "l4"], "no row of l4 that can be predicted and has a grade of A, B"),
        (["calibrate", "OPS", "--device", "t4", "--trust", ","], "--trust: grades such as A,B are needed"),
        (
            ["calibrate", "nope.csv", "--device", "t4"],
            "nope.csv: is not there; a folder that validate run wrote is needed",
        ),
        (["calibrate", "GOOD", "--device", "t4"], "no table of operators: missing columns op, dtype"),
        (["calibrate", "OPS", "--device", "t4", "--out", "."], "--out .: is a folder"),
        (["calibrate", "OPS", "--device", "t4", "--out", "OPS"], "--out OPS: is the table; name another file"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, tmp_path, good, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "OPS").write_text("device,op,dtype,m,n,k,time_s\nt4,linear,fp32,64,64,64,1e-5\n")
    (tmp_path / "b.csv").write_text("row_id,predictor,predicted_s\n")
    status, out, err = run(capsys, *[good if a == "GOOD" else a for a in arguments])
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert Path(good).read_text() == HEADER + ROW


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "t.csv:1:1: is empty"),
        (b"\x89PNG\r\n\x1a\n\x00", "t.csv:1:1: is not UTF-8 text"),
        (
            b"machine,time_s\n",
            "t.csv:1:1: no table of collectives: missing columns n_gpus, collective, bytes",
        ),
        (
            b"device,op,time_s\n",
            "t.csv:1:1: no table of operators: missing column dtype",
        ),
        (ROW.encode(), "t.csv:1:1: no table of collectives: missing columns"),
        (b"x" * 10_000_000, "t.csv:1:1: a cell has more than 1,000,000 characters"),
        (HEADER.encode() + b'"', "t.csv:2:1: the quote that opens here never closes"),
    ],
)
def test_malformed_files(capsys, tmp_path, raw, words):
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    status, out, err = run(capsys, "score", str(path))
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert len(err) < 400


def test_a_link_to_the_table_is_the_table(capsys, good, tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to(good)
    assert run(capsys, "score", good, "--out", str(link))[0] == 2
    hard = tmp_path / "hard.csv"
    os.link(good, hard)
    assert run(capsys, "score", good, "--out", str(hard))[0] == 2
    assert Path(good).read_text() == HEADER + ROW


def test_nothing_is_left_behind_by_a_failure(capsys, tmp_path):
    out = tmp_path / "p.csv"
    assert run(capsys, "score", "nope.csv", "--out", str(out))[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_topology_makes_the_machine_column_needless(capsys, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("n_gpus,collective,bytes,time_s\n4,all_reduce,8,1\n")
    assert run(capsys, "score", str(path))[0] == 2
    status, out, _ = run(capsys, "score", str(path), "--topology", "4gpu-pcie")
    assert status == 0
    assert "1 of 1 rows scored" in out


def test_machine_names_the_topology_of_one(capsys, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEADER + ROW.replace("4gpu-pcie", "mine"))
    assert "no topology of machine 'mine'" in run(capsys, "score", str(path))[1]
    assert "1 of 1 rows scored" in run(capsys, "score", str(path), "--machine", "mine=4gpu-pcie")[1]


# -- as a process ----------------------------------------------------------------------


def process(*arguments, stdin=b"", path=ROOT, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "validate", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        cwd=cwd or ROOT,
        env={**os.environ, "PYTHONPATH": str(path)},
        timeout=60,
    )


def test_standard_input():
    done = process("score", "-", stdin=b"device,op\n")
    assert done.returncode == 2
    assert done.stderr.startswith(b"<stdin>:1:1: no table of operators")


def test_works_where_configobj_has_put_its_own_validate(tmp_path):
    """configobj also has a package called validate: whichever is installed later owns __init__.py."""
    shutil.copytree(ROOT / "validate", tmp_path / "validate", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "validate" / "__init__.py").write_text("from configobj.validate import *\nraise_if_used = 1\n")
    (tmp_path / "configobj").mkdir()
    (tmp_path / "configobj" / "__init__.py").write_text("")
    (tmp_path / "configobj" / "validate.py").write_text("class Validator: pass\n")
    done = process("score", "--help", path=f"{tmp_path}{os.pathsep}{ROOT}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"TABLE.csv" in done.stdout


def test_help_does_not_import_what_it_does_not_need():
    code = "import sys, validate.cli; sys.exit(sum(name in sys.modules for name in ('simpy', 'numpy', 'matplotlib')))"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=60)
    assert done.returncode == 0
