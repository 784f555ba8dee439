"""Sets of measurements made with the own code: every table is read and scored, and no host is named."""

import csv
import json
import re
from pathlib import Path

import pytest

from simulator.console.run import run_app
from validate.cli import app

SETS = Path(__file__).parents[2] / "validate" / "measurements"
RUNS = sorted(path.parent for path in SETS.glob("*-20*/**/run.json") if [*path.parent.glob("*.csv")])
TABLES = sorted(SETS.glob("*-20*/**/*.csv"))
SCORED = ("ops.csv", "training.csv", "launch.csv", "copies.csv", "memory.csv")
UNSCORED = ("clocks.csv", "allocations.csv", "kernels.csv")  # what calibrates, and what is only looked at


def shown(path: Path) -> str:
    return str(path.relative_to(SETS))


@pytest.mark.parametrize("folder", RUNS, ids=shown)
def test_every_folder_is_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology = next(parent / "topology.yaml" for parent in folder.parents if (parent / "topology.yaml").exists())
    assert run_app(app, "validate", ["compare", str(folder), "--topology", str(topology), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = json.loads((folder / "run.json").read_text()).get("rows", {})
    assert told["rows_scored"] == sum(count for table, count in rows.items() if table not in UNSCORED)


@pytest.mark.parametrize("table", [table for table in TABLES if table.name in SCORED], ids=shown)
def test_every_table_is_scored(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "validate", ["score", str(table)]) == 0
    assert f"{table.name}: " in capsys.readouterr().out


def test_every_table_is_one_of_these() -> None:
    assert {table.name for table in TABLES} <= {*SCORED, *UNSCORED}


@pytest.mark.parametrize("table", [table for table in TABLES if table.name == "kernels.csv"], ids=shown)
def test_kernels_of_a_step_take_as_long_as_the_step_in_one_graph(table: Path) -> None:
    """A graph has no host between its kernels, so its time is that of the kernels in the profile of the same step."""
    with table.open(newline="") as lines:
        kernels = list(csv.DictReader(lines))
    for steps in table.parent.glob("**/training.csv"):
        with steps.open(newline="") as lines:
            graphs = [row for row in csv.DictReader(lines) if row["issue"] == "graph"]
        assert graphs
        for row in graphs:
            whole_s = sum(float(kernel["time_s"]) for kernel in kernels if kernel["step"] == row["model"])
            assert whole_s == pytest.approx(float(row["step_time_s"]), rel=0.02)


def test_no_place_of_a_machine_is_told() -> None:
    """Neither paths nor names of hosts are kept, and a set stays below 1 MB."""
    for folder in {SETS / path.relative_to(SETS).parts[0] for path in TABLES}:
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 1e6
        for path in files:
            assert not re.search(r"(?<![\w.])/(?:root|home|tmp|work|mnt|usr)/", path.read_text()), path
