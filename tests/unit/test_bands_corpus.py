"""Coverage of bands on published measurements: devices and machines left out, and a later collection.

In CI, ``test_validate_bands.py`` asks the same of the measurements in the project.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from validate.bands.make import BandRow, Coverage, coverage, held_by, make_evidence, measured, thinned
from validate.kinds import COLLECTIVES, OPERATORS
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.table import read_table

pytestmark = [
    *(pytest.mark.slow, pytest.mark.corpus),
    pytest.mark.skipif("TOPOCAST_LONG" not in os.environ, reason="takes long: TOPOCAST_LONG=1 runs it"),
]

OWN = Path(__file__).resolve().parents[2] / "validate" / "measurements" / "published-nvidia"
KINDS = {"ops.csv": OPERATORS, "collectives.csv": COLLECTIVES}


def rows_of(tables: Iterable[Path]) -> list[BandRow]:
    """Return a sample of the operator and collective rows of *tables*."""
    scoring = Scoring(ScoringOptions())
    found: list[BandRow] = []
    for path in tables:
        kind = KINDS[path.name]
        table = read_table(path.read_bytes(), str(path), kind.needed, kind.columns, kind.name)
        found += measured(scoring.score(table, kind, ("A", "B")), scoring.names.session)
    return thinned(found)


@pytest.fixture(scope="module")
def first(corpus: Path) -> list[BandRow]:
    return rows_of([*(corpus / name for name in KINDS), *sorted(OWN.glob("*/*.csv"))])


@pytest.fixture(scope="module")
def held(first: list[BandRow]) -> dict[str, Coverage]:
    return {each.group: each for each in coverage(first)}


@pytest.mark.parametrize(
    "group",
    ["products fp32", "products half", "conv2d fp32", "softmax fp32", "elementwise fp32", "layer_norm fp32",
     "attention half", "lstm fp32"],
)  # fmt: skip
def test_bands_of_operators_hold_four_in_five_on_devices_left_out(held: dict[str, Coverage], group: str) -> None:
    assert held[group].rows > 200
    assert 0.75 <= held[group].held <= 0.87


@pytest.mark.parametrize(
    ("group", "least_rows", "least"),
    [
        ("collective full node nvlink", 500, 0.75),
        ("collective middle node nvlink", 500, 0.75),
        ("collective small node nvlink", 500, 0.75),
        ("collective full few infiniband", 30, 0.65),
        ("collective full few ethernet", 20, 0.75),
    ],
)
def test_bands_of_collectives_do_on_machines_left_out(
    held: dict[str, Coverage], group: str, least_rows: int, least: float
) -> None:
    assert held[group].rows > least_rows
    assert held[group].held >= least


def test_no_band_is_narrower_than_a_percent_either_way(held: dict[str, Coverage]) -> None:
    assert all(each.half_width >= 0.01 for each in held.values())


def test_bands_of_one_collection_hold_the_next(corpus: Path, first: list[BandRow]) -> None:
    later = corpus.parent / "corpus-2" / "collectives.csv"
    if not later.is_file():
        pytest.skip(f"no published measurements at {later}")
    found = list(held_by(make_evidence([row for row in first if row.chain[-1] == "collective"]), rows_of([later])))
    for size, least in (("small", 0.75), ("large", 0.7)):
        mine = [inside for row, inside, _ in found if row.chain[-2] == f"collective {size}"]
        assert len(mine) > 200
        assert sum(mine) >= least * len(mine)
    assert all(half >= 0.01 for _, _, half in found)
