"""The README's tables of operators and of steps against the program; and how they are written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from validate.kinds import OPERATORS, STEPS, Kind
from validate.score.groups import group_rows, whole
from validate.score.markdown import operator_table, percent, published_table, step_table
from validate.score.score import ScoredRow
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.csv_text import Record
from validate.tables.table import read_table

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
AGAIN = "run python docs/make_tables.py"


def _make_tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = _make_tables()


def shown(what: str) -> dict[str, list[str]]:
    """Return the cells of a table of the README by their label."""
    body = README.partition(f"<!-- {what} -->\n")[2].partition(f"<!-- /{what} -->")[0]
    return {cells[0]: cells[1:] for cells in tables._cells(body)}


def scored(kind: Kind, file: Path, trust: list[str], baselines: Path | None = None) -> list[ScoredRow]:
    table = read_table(file.read_bytes(), file.name, kind.needed, kind.columns, kind.name)
    scoring = Scoring(ScoringOptions(baselines=str(baselines) if baselines is not None else None))
    return scoring.score(table, kind, trust)


def test_every_table_has_rows() -> None:
    for what in ("operators", "devices", "steps", "published"):
        assert len(shown(what)) > 2, (what, AGAIN)


def test_the_tables_of_what_is_part_of_the_project_are_current() -> None:
    """Of all but the devices left out of a fit, which needs the whole of what was published."""
    texts = [README, (ROOT / "docs" / "published.md").read_text(encoding="utf-8")]
    old = {match["what"]: match["body"] for text in texts for match in tables._MARKED.finditer(text)}
    found = tables.nvidia_tables(old, None) | {"own-steps": tables.own_step_table()}
    for what, table in found.items():
        places = [m["body"] for text in texts for m in tables._MARKED.finditer(text) if m["what"] == what]
        assert places, what
        assert places == [table] * len(places), AGAIN


@pytest.mark.corpus
def test_the_tables_of_operators_are_current(corpus: Path) -> None:
    rows = scored(OPERATORS, corpus / "ops.csv", ["A"])
    for what, axis in (("operators", "op"), ("devices", "device")):
        found = {"all": whole(rows), **{f"`{g.by[axis]}`": g for g in group_rows(rows, (axis,))}}
        for label, cells in shown(what).items():
            group = found[label]
            expected = [str(group.errors.n), percent(group.errors.median_ape), percent(group.errors.mean_ape)]
            assert cells[:3] == expected, (label, AGAIN)
            assert cells[7:] == [percent(group.baseline.median_ape), percent(group.baseline.mean_ape)], (label, AGAIN)


@pytest.mark.corpus
@pytest.mark.slow
def test_the_tables_of_steps_are_current(corpus: Path) -> None:
    rows = scored(STEPS, corpus / "training.csv", ["A", "B"], corpus / "baselines.csv")
    for what, text in (("steps", step_table(rows, tables.STEPS)), ("published", published_table(rows))):
        assert shown(what) == {cells[0]: cells[1:] for cells in tables._cells(text)}, AGAIN
    assert tables.TRUST.read_text(encoding="utf-8") == tables.trust_json(rows), AGAIN


# -- how they are written --------------------------------------------------------------


def row(op: str, error: float, device: str = "t4", **more) -> ScoredRow:
    labels = {"op": op, "device": device, **more}
    return ScoredRow(Record(2, ()), labels, predicted_s=1.0, error=error, baseline_error=2 * error)


def test_operators_stand_by_their_number_of_rows() -> None:
    plain = [row("a", 0.1)] * 5 + [row("b", -0.2)] * 6 + [row("rare", 9.0)]
    after = [row("a", 0.05)] * 5 + [row("b", 0.1)]
    text = operator_table(plain, after, {"all": ("1 %", "2 %"), "`a`": ("3 %", "4 %")}, "op")
    cells = {line[0]: line[1:] for line in tables._cells(text)}
    assert list(cells) == ["all", "`b`", "`a`"]
    assert cells["`a`"] == ["5", "10.0 %", "10.0 %", "3 %", "4 %", "5.0 %", "5.0 %", "20.0 %", "20.0 %"]
    assert cells["`b`"] == ["6", "20.0 %", "20.0 %", "-", "-", "-", "-", "40.0 %", "40.0 %"]  # one row left is too few
    assert cells["all"][:5] == ["12", "20.0 %", "89.2 %", "1 %", "2 %"]


def test_steps_stand_by_their_labels() -> None:
    rows = [row("x", 0.1, family="CNN"), row("x", 0.3, family="CNN"), row("x", 5.0, family="other")]
    text = step_table(rows, [("CNNs", {"family": "CNN"}), ("none", {"family": "no such"})])
    cells = {line[0]: line[1:] for line in tables._cells(text)}
    assert cells["CNNs"][:4] == ["2", "20.0 %", "20.0 %", "28.0 %"]
    assert cells["none"][:2] == ["0", "-"]


def test_columns_of_devices_left_out_stay_where_they_are_not_computed_anew(tmp_path: Path) -> None:
    file = tmp_path / "ops.csv"
    file.write_text(
        "device,op,variant,dtype,rows,cols,time_s\n"
        + "".join(f"t4,elementwise,relu,fp32,{1000 + n},1000,1e-4\n" for n in range(12))
    )
    head = "| op |\n|---|\n"
    old = {"operators": head + "| `elementwise` | 9 | 1 % | 1 % | 7 % | 8 % | 1 % | 1 % | 1 % | 1 % |\n"}
    found = tables.operator_tables(file, old, leave_one_out=False)
    cells = {line[0]: line[1:] for line in tables._cells(found["operators"])}
    assert cells["`elementwise`"][3:5] == ["7 %", "8 %"]
    assert cells["all"][3:5] == ["-", "-"]
