"""All-reduces on fat trees that take SimGrid long, compared with ours.

See ``benchmarks/test_engine.py`` for how to run it, and ``tests/property/test_fat_trees.py`` for the shorter ones.
"""

from __future__ import annotations

import pytest

from tests.fat_trees import FatTree, python_of_simgrid

_WITHIN = 0.01


@pytest.fixture(scope="module")
def simgrid() -> str:
    return python_of_simgrid()


def test_all_rounds_of_a_ring_of_1024(simgrid: str) -> None:
    tree = FatTree(32, 32, 32)
    assert tree.ours_s("ring") == pytest.approx(tree.theirs_s(simgrid, "ring"), rel=_WITHIN)


def test_a_direct_exchange_of_256(simgrid: str) -> None:
    """65,280 flows at once.  Of 1,024 hosts it would be a million, too many for SimGrid."""
    tree = FatTree(16, 16, 16)
    assert tree.ours_s("sharded") == pytest.approx(tree.theirs_s(simgrid, "sharded"), rel=_WITHIN)
