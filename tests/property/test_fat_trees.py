"""All-reduces on fat trees of 64, 256 and 1,024 hosts take what they take on SimGrid's, to a percent.

Here SimGrid has the platform, the routes and the schedules of its own (``tests/simgrid_fat_tree.py``): it sends all
that goes to a host by one spine, where we share a flow among the spines.  Cases that take it long are in
``benchmarks/test_fat_trees.py``, such as the direct exchange of 256 hosts.  The direct exchange of 1,024 hosts is a
million flows, which SimGrid does not simulate; ours folds them (``tests/unit/test_all_pairs.py``).
"""

from __future__ import annotations

import pytest

from tests.fat_trees import FatTree, python_of_simgrid

pytestmark = pytest.mark.simgrid

_WITHIN = 0.01
_FULL = {64: FatTree(8, 8, 8), 256: FatTree(16, 16, 16), 1024: FatTree(32, 32, 32)}
_HALF = {64: FatTree(8, 8, 4), 256: FatTree(16, 16, 8)}  # spines carry half of what the hosts send


@pytest.fixture(scope="module")
def simgrid() -> str:
    return python_of_simgrid()


@pytest.mark.parametrize(
    ("strategy", "n_hosts"), [("ring", 64), ("ring", 1024), ("halving-doubling", 64), ("halving-doubling", 256)]
)
def test_as_long_as_on_the_fat_tree_of_simgrid(simgrid: str, n_hosts: int, strategy: str) -> None:
    tree = _FULL[n_hosts]
    if strategy == "ring" and n_hosts == 1024:  # all rounds of a ring are equal
        theirs_s = tree.theirs_s(simgrid, strategy, rounds=3) * 2 * (n_hosts - 1) / 3
    else:
        theirs_s = tree.theirs_s(simgrid, strategy)
    assert tree.ours_s(strategy) == pytest.approx(theirs_s, rel=_WITHIN)


@pytest.mark.parametrize("strategy", ["ring", "halving-doubling", "sharded"])
@pytest.mark.parametrize("tree", [_FULL[64], _HALF[64]], ids=["full", "half"])
def test_a_tree_of_64_with_too_few_spines_too(simgrid: str, tree: FatTree, strategy: str) -> None:
    assert tree.ours_s(strategy) == pytest.approx(tree.theirs_s(simgrid, strategy), rel=_WITHIN)


def test_too_few_spines_take_their_time(simgrid: str) -> None:
    """Of a host's neighbours 56 in 63 are below other leaves: eight hosts send that over four links."""
    through_spines = 8 * 56 * 4e6 / 40e9
    assert _HALF[64].ours_s("sharded") == pytest.approx(2 * through_spines, rel=_WITHIN)
    assert _HALF[64].theirs_s(simgrid, "sharded") == pytest.approx(2 * through_spines, rel=_WITHIN)


def test_halves_of_256_hosts_share_too_few_spines(simgrid: str) -> None:
    tree = _HALF[256]
    assert tree.ours_s("halving-doubling") == pytest.approx(tree.theirs_s(simgrid, "halving-doubling"), rel=_WITHIN)
