"""The committed sample of published measurements: complete, held out, scored, and within the stated errors."""

import csv
import os
import re
import shlex
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import median

import pytest

from simulator.console.run import run_app
from validate.cli import app
from validate.kinds.kind import MeasuredRow, recognise
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.cells import read_records
from validate.tables.table import tabulate

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_bands")]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "validate" / "measurements" / "published-nvidia"
TABLES = sorted(FOLDER.glob("*/*.csv"))
WHEEL = os.environ.get("TOPOCAST_AICONFIGURATOR", "")

# Allowed median of the absolute error, by folder: products, attention, collectives.
PINS = {
    "a100-sxm4-80gb": {"linear": 0.08, "attention": 0.18, "collectives": 0.10},
    "b200": {"linear": 0.09, "attention": 0.18, "collectives": 0.10},
    "h100-sxm5-80gb": {"linear": 0.06, "attention": 0.16, "collectives": 0.10},
    "h200-sxm": {"linear": 0.06, "attention": 0.18, "collectives": 0.10},
    "l40s": {"linear": 0.10, "attention": 0.19},
}


@cache
def scored(path: Path) -> list[MeasuredRow]:
    records = read_records(path.read_bytes(), path.name)
    scoring = Scoring(ScoringOptions())
    kind = recognise(records[0].fields, scoring.kinds)
    table = tabulate(records, path.name, kind.needed, kind.columns, kind.name)
    return list(scoring.score(table, kind, ["A", "B"]))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def errors() -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for path in TABLES:
        for row in scored(path):
            if not row.skipped and row.error is not None:
                found.setdefault((path.parent.name, row.labels.get("op", "collectives")), []).append(abs(row.error))
    return found


def test_there_is_what_is_pinned() -> None:
    assert {path.parent.name for path in TABLES} == set(PINS)
    assert set(errors()) == {(device, what) for device, pins in PINS.items() for what in pins}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rows_are_scored(path: Path) -> None:
    rows = scored(path)
    reasons = [row.skipped for row in rows if row.skipped]
    assert len(reasons) <= 0.05 * len(rows), set(reasons)
    assert all(reason == "context: trust C" for reason in reasons)


@pytest.mark.parametrize(("device", "what"), [(device, what) for device, pins in PINS.items() for what in pins])
def test_the_error_is_within_its_pin(device: str, what: str) -> None:
    found = errors()[device, what]
    assert len(found) > 300
    assert median(found) < PINS[device][what]


def test_every_shape_is_of_the_sample_and_there_once() -> None:
    for path in TABLES:
        if path.stem != "ops":
            continue
        seen = set()
        for row in read(path):
            if row["op"] == "linear":
                sizes, divisor = [row["m"], row["n"], row["k"]], 16
            else:
                batch = str(int(row["batch"]) // int(row["heads"]))
                sizes, divisor = [batch, row["m"], row["heads"], row["kv_heads"], row["k"]], 32
                assert row["m"] == row["n"]
            assert int(sha256(",".join(sizes).encode()).hexdigest(), 16) % divisor == 0, sizes
            key = (row["op"], row["software"], *sizes)
            assert key not in seen
            seen.add(key)
            assert row["device"] == path.parent.name


def test_the_products_are_of_the_same_shapes_on_every_device() -> None:
    shapes = {
        (row["software"].split()[0], path.parent.name): 0 for path in TABLES if path.stem == "ops" for row in read(path)
    }
    found: dict[tuple[str, str], set[tuple[str, ...]]] = {key: set() for key in shapes}
    for path in TABLES:
        if path.stem == "ops":
            for row in read(path):
                if row["op"] == "linear":
                    found[row["software"].split()[0], path.parent.name].add((row["m"], row["n"], row["k"]))
    assert len(found) == 15
    assert {len(of) for of in found.values()} == {596}
    assert len({frozenset(of) for of in found.values()}) == 1


def test_it_stays_small() -> None:
    assert sum(path.stat().st_size for path in TABLES) < 1_500_000


def test_nothing_in_the_wheel() -> None:
    assert 'exclude = ["validate/measurements"]' in (ROOT / "pyproject.toml").read_text()


def regenerate(out: Path, source: str) -> list[str]:
    """Return the arguments of the command in the folder's README, with another *out* and *source*."""
    text = (FOLDER / "README.md").read_text()
    command = re.search(r"^validate (import .*)$", text, re.MULTILINE)
    assert command is not None
    words = shlex.split(command[1])
    words[words.index("--out") + 1] = str(out)
    words[2] = source
    return words


def test_the_readme_gives_a_command_that_reads(capsys, tmp_path) -> None:
    assert run_app(app, "validate", regenerate(tmp_path, str(tmp_path / "absent.whl"))) == 2
    assert "absent.whl: cannot be read" in capsys.readouterr().err


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.skipif(not WHEEL, reason="no wheel of aiconfigurator 0.8.0 in TOPOCAST_AICONFIGURATOR")
def test_the_same_files_come_again_to_the_byte(tmp_path) -> None:
    assert sha256(Path(WHEEL).read_bytes()).hexdigest() in (FOLDER / "README.md").read_text()
    assert run_app(app, "validate", regenerate(tmp_path, WHEEL)) == 0
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.glob("*/*.csv")}
    assert made == {path.relative_to(FOLDER): path.read_bytes() for path in TABLES}
