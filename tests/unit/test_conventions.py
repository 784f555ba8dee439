"""Tables are completed by rules of their authors: which cells, with which sources, and which rules are refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from simulator.console.run import run_app
from simulator.errors import InputError
from validate.cli import app
from validate.kinds import KINDS
from validate.kinds.kind import read_measurements
from validate.tables.table import PUBLISHED, is_incomplete, read_conventions

TABLE = """machine,model,framework,dtype,batch_per_gpu,step_time_s,dataset,note
p3.2xlarge,resnet18,pytorch,fp16,32,0.1,lab,"vp 4, warm"
p3.2xlarge,resnet18,pytorch,fp16,,0.1,lab,
p3.2xlarge,resnet18,pytorch,fp16,32,0.1,others,vp 8
p3.2xlarge,vgg16,pytorch,fp16,,0.1,lab,
"""
RULES = """training:
  - when: {dataset: "^lab$", policy: "^amp-fp16$"}
    set: {policy: master-fp16, compiled: 1}
    source: the lab's page
  - when: {dataset: "^lab$"}
    set: {batch_per_gpu: {model: {ResNet18: 8}}}
    source: the lab's configurations
  - when: {note: "vp [0-9]"}
    unless: {dataset: others}
    set: {vp: "{note:vp ([0-9]+)}"}
    source: the note
"""


def complete(folder: Path, table: str = TABLE, rules: str = RULES) -> list[dict[str, str]]:
    (folder / "t.csv").write_text(table, encoding="utf-8")
    (folder / "r.yaml").write_text(rules, encoding="utf-8")
    words = [str(folder / "t.csv"), "--conventions", str(folder / "r.yaml"), "--out", str(folder / "u.csv")]
    assert run_app(app, "validate", ["table", "complete", *words, "--quiet"]) == 0
    return list(csv.DictReader(io.StringIO((folder / "u.csv").read_text(encoding="utf-8"))))


def test_empty_cells_get_what_the_authors_say_and_its_source(tmp_path: Path) -> None:
    rows = complete(tmp_path)
    # amp-fp16 is what every table of PyTorch means: rules of a table see it, and are stronger
    assert [row["compiled"] for row in rows] == ["1", "1", "", "1"]
    assert [row["batch_per_gpu"] for row in rows] == ["32", "8", "32", ""]
    assert [row["vp"] for row in rows] == ["4", "", "", ""]
    assert rows[0]["completed"] == "compiled: the lab's page; vp: the note"
    assert rows[1]["completed"] == "compiled: the lab's page; batch_per_gpu: the lab's configurations"
    assert rows[2]["completed"] == ""
    original = list(csv.DictReader(io.StringIO(TABLE)))
    assert [{k: row[k] for k in before if before[k]} for row, before in zip(rows, original, strict=True)] == [
        {k: v for k, v in before.items() if v} for before in original
    ]


def test_completing_twice_adds_nothing(tmp_path: Path) -> None:
    complete(tmp_path)
    once = (tmp_path / "u.csv").read_text(encoding="utf-8")
    complete(tmp_path, table=once)
    assert (tmp_path / "u.csv").read_text(encoding="utf-8") == once
    table, _ = read_measurements(str(tmp_path / "u.csv"), KINDS)
    assert not is_incomplete(table, read_conventions(str(tmp_path / "r.yaml")))


def test_a_published_table_that_was_not_completed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collectives = "machine,n_gpus,collective,bytes,time_s\np4de.24xlarge,2,all_reduce,1048576,0.0001\n"
    products = "device,op,dtype,m,n,k,time_s,dataset\nt4,matmul,fp32,512,512,512,1e-4,{}\n"
    of_published, of_others = (products.format(name) for name in ("deepbench_ops", "mine"))
    # what is added to the first is a weight, which no prediction reads
    for table, told in ((collectives, False), (of_published, True), (of_others, False)):
        (tmp_path / "t.csv").write_text(table, encoding="utf-8")
        assert run_app(app, "validate", ["score", str(tmp_path / "t.csv")]) == 0
        assert (f"validate table complete --conventions {PUBLISHED}" in capsys.readouterr().err) == told


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("training:\n  - when: {a: b}\n    sets: {vp: 1}\n", r"r.yaml:3:5: a rule has no 'sets'; did you mean 'set'\?"),
        ("training:\n  - when: {a: '('}\n    set: {vp: 1}\n    source: s\n", "r.yaml:2:12: is no regular expression"),
        ("training:\n  - when: {a: b}\n    set: {vp: 1}\n", "r.yaml:2:5: the rule lacks 'source'"),
        ("training: {}\n", "r.yaml:1:11: a list of rules is needed"),
        ("[1]\n", "conventions need the kind of table"),
        ("training:\n  - [1]\n", "r.yaml:2:5: a rule with when, set and source is needed"),
        ("training:\n  - when: x\n    set: {vp: 1}\n    source: s\n", "r.yaml:2:5: 'when' needs columns"),
        (
            "training:\n  - when: {a: b}\n    set: {vp: {model: 1}}\n    source: s\n",
            "r.yaml:3:11: a value, or one column with its values, is needed",
        ),
    ],
)
def test_rules_that_say_nothing_are_refused_with_their_place(tmp_path: Path, rules: str, message: str) -> None:
    (tmp_path / "r.yaml").write_text(rules, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_conventions(str(tmp_path / "r.yaml"))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            "training:\n  - when: {model: b}\n    set: {vpp: 1}\n    source: s\n",
            "tables of training have no column 'vpp'; did",
        ),
        (
            "trainings:\n  - when: {model: b}\n    set: {vp: 1}\n    source: s\n",
            "no kind of tables 'trainings'; did you mean",
        ),
        (
            "training:\n  - when: {datset: b}\n    set: {vp: 1}\n    source: s\n",
            "tables of training have no column 'datset'; did you mean 'dataset'?",
        ),
        (
            "training:\n  - when: {dataset: b}\n    set: {vp: '{nots}'}\n    source: s\n",
            "tables of training have no column 'nots'; did you mean 'note'?",
        ),
        (
            "training:\n  - when: {model: b}\n    set: {vpp: 1}\n    source: s\n",
            "r.yaml:3:11: tables of training have no column 'vpp'",
        ),
        (
            "training:\n  - when: {dataset: lab}\n    set: {issue: grph, compiled: 1}\n    source: s\n",
            "r.yaml:3:11: issue 'grph' is not modelled; eager, graph",
        ),
        (
            "training:\n  - when: {note: vp}\n    set: {seq_len: '{note}'}\n    source: s\n",
            "r.yaml:3:11: seq_len 'vp 4, warm': seq_len is not a number",
        ),
        ("- when: {dataset: b}\n", "r.yaml:1:1: conventions need the kind of table, and rules"),
        ("[]", "found a list"),
    ],
)
def test_columns_that_there_are_not_are_refused(
    tmp_path: Path, rules: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "r.yaml").write_text(rules, encoding="utf-8")
    words = [str(tmp_path / "t.csv"), "--conventions", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "u.csv")]
    assert run_app(app, "validate", ["table", "complete", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "u.csv").exists()


def test_a_row_that_does_not_fit_the_header_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TABLE + "a,b\n", encoding="utf-8")
    words = [str(tmp_path / "t.csv"), "--conventions", PUBLISHED, "--out", str(tmp_path / "u.csv")]
    assert run_app(app, "validate", ["table", "complete", *words]) == 2
    assert "t.csv:6:1: 2 fields where the header has 8" in capsys.readouterr().err


def test_published_rules_are_found_in_spite_of_a_slip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    words = [str(tmp_path / "t.csv"), "--conventions", "publishd", "--out", str(tmp_path / "u.csv")]
    assert run_app(app, "validate", ["table", "complete", *words]) == 2
    assert "--conventions publishd: no such file; did you mean 'published'?" in capsys.readouterr().err


def test_all_gathers_that_a_published_table_calls_all_reduces_are_not_scored(tmp_path: Path) -> None:
    head = "machine,n_nodes,n_gpus,collective,bytes,time_s,source\n"
    mistaken = "gcp-a3-high,2,16,{},67108864,0.0014326,{}\n"
    page = "dstackai/dstack@511c318c:mkdocs/docs/examples/clusters/gcp.md"
    cases = ((mistaken.format("all_reduce", page), False), (mistaken.format("all_gather", page), True))
    for row, scored in (*cases, (mistaken.format("all_reduce", "mine"), True)):
        (tmp_path / "t.csv").write_text(head + row, encoding="utf-8")
        words = [str(tmp_path / "t.csv"), "--conventions", PUBLISHED, "--out", str(tmp_path / "u.csv")]
        assert run_app(app, "validate", ["table", "complete", *words]) == 0
        assert ("an all-gather" in (tmp_path / "u.csv").read_text(encoding="utf-8")) == (not scored)


def test_score_completes_tables_as_the_command_does(tmp_path: Path) -> None:
    table = (
        "machine,n_nodes,n_gpus,collective,bytes,time_s,dataset,fabric\n"
        '8x-mi300x,2,16,all_reduce,1073741824,0.01,fresh_amd,"RoCE, 8 x 400 Gbit/s"\n'
    )
    (tmp_path / "t.csv").write_text(table, encoding="utf-8")
    given, plain, out, alone = (str(tmp_path / name) for name in ("t.csv", "u.csv", "one.csv", "two.csv"))
    assert run_app(app, "validate", ["table", "complete", given, "--conventions", PUBLISHED, "--out", plain]) == 0
    assert run_app(app, "validate", ["score", plain, "--out", out, "--quiet"]) == 0
    assert run_app(app, "validate", ["score", given, "--conventions", PUBLISHED, "--out", alone, "--quiet"]) == 0
    assert Path(alone).read_bytes() == Path(out).read_bytes()
    assert "roce-400g" in Path(alone).read_text(encoding="utf-8")


def test_rules_that_cannot_be_read_are_refused_by_score_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    assert run_app(app, "validate", ["score", str(tmp_path / "t.csv"), "--conventions", "publshed"]) == 2
    assert "no such file; did you mean 'published'?" in capsys.readouterr().err
