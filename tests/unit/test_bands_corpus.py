"""What bands hold of published measurements, each device and machine left out of its own band's rows."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from validate.bands.judge import Coverage, coverage
from validate.bands.material import Measured, measured
from validate.kinds import COLLECTIVES, OPERATORS
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.table import read_table

pytestmark = [pytest.mark.slow, pytest.mark.corpus]

_MOST = 100  # rows of a class on a place


def rows_of(folder: Path) -> list[Measured]:
    """Return some of the rows of operators and collectives of *folder*."""
    scoring = Scoring(ScoringOptions())
    found: list[Measured] = []
    for name, kind in (("ops.csv", OPERATORS), ("collectives.csv", COLLECTIVES)):
        table = read_table((folder / name).read_bytes(), name, kind.needed, kind.columns, kind.name)
        counts: Counter[tuple[str, str]] = Counter()
        rows = measured(scoring.score(table, kind, ("A", "B")), scoring.names.session)
        for row in sorted(rows, key=lambda row: sha256(repr(row.question).encode()).digest()):
            counts[row.place, row.chain[0]] += 1
            if counts[row.place, row.chain[0]] <= _MOST:
                found.append(row)
    return found


@pytest.fixture(scope="module")
def held(corpus: Path) -> dict[str, Coverage]:
    return {each.group: each for each in coverage(rows_of(corpus))}


@pytest.mark.parametrize(
    "group", ["products fp32", "conv2d fp32", "softmax fp32", "elementwise fp32", "layer_norm fp32"]
)
def test_bands_of_operators_hold_four_in_five_on_devices_left_out(held: dict[str, Coverage], group: str) -> None:
    assert held[group].rows > 200
    assert 0.72 <= held[group].held <= 0.88


@pytest.mark.parametrize("group", ["collective large node", "collective large nodes", "collective small node"])
def test_bands_of_collectives_do_on_machines_left_out(held: dict[str, Coverage], group: str) -> None:
    assert held[group].rows > 100
    assert 0.65 <= held[group].held <= 0.88  # of ten machines; each is held or not as a whole


def test_no_band_is_narrower_than_a_percent_either_way(held: dict[str, Coverage]) -> None:
    assert all(each.half_width >= 0.01 for each in held.values())
