"""Max-min fair shares calculated by hand: caps met one after another, links filled one after another."""

from __future__ import annotations

import pytest

from simulator.network.fairshare import fair_rates
from tests.calls import at_most_calls

INFINITE = float("inf")


@pytest.mark.parametrize(
    ("caps", "rates"),
    [
        ([1.0, 2.0, 10.0], [1.0, 2.0, 4.0]),  # the fast flow gets what the slow ones leave
        ([10.0, 2.0, 1.0], [4.0, 2.0, 1.0]),
        ([2.0, 2.0, INFINITE], [2.0, 2.0, 3.0]),  # two caps at once
        ([1.0, 3.0, 3.0], [1.0, 3.0, 3.0]),  # caps that the link just carries
        ([1.0, 1.5, 2.0], [1.0, 1.5, 2.0]),  # and caps that leave some of it
        ([7 / 3, 7 / 3, 7 / 3], [7 / 3, 7 / 3, 7 / 3]),
    ],
)
def test_caps_on_one_link(caps: list[float], rates: list[float]) -> None:
    assert fair_rates([[(0, 1.0)]] * 3, caps, [7.0]) == pytest.approx(rates, rel=1e-12)


def test_links_fill_one_after_another() -> None:
    """Links of 4, 12 and 30: the first fills at 2 each; the second at 5, for flows that the first does not hold."""
    loads = [[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0)], [(1, 1.0), (2, 1.0)], [(2, 1.0)]]
    assert fair_rates(loads, [INFINITE] * 5, [4.0, 12.0, 30.0]) == [2.0, 2.0, 5.0, 5.0, 25.0]


def test_links_that_fill_at_once() -> None:
    loads = [[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0)], [(2, 3.0)], [(2, 3.0)]]
    assert fair_rates(loads, [INFINITE] * 5, [6.0, 6.0, 18.0]) == [3.0, 3.0, 3.0, 3.0, 3.0]


def test_a_link_that_a_cap_makes_room_on_is_looked_at_again() -> None:
    """The capped flow crosses both links; the level of each rises when the flow is held back."""
    loads = [[(0, 1.0), (1, 1.0)], [(0, 1.0)], [(1, 1.0)], [(1, 1.0)]]
    assert fair_rates(loads, [0.5, INFINITE, INFINITE, INFINITE], [4.0, 6.5]) == [0.5, 3.5, 3.0, 3.0]


def test_weights_on_links() -> None:
    """A flow that is written and read takes twice its rate of a memory of 12, leaving the rest to the other."""
    loads = [[("memory", 2.0), ("link", 1.0)], [("memory", 1.0)], [("link", 0.5)]]
    assert fair_rates(loads, [INFINITE, INFINITE, INFINITE], {"memory": 12.0, "link": 5.0}) == pytest.approx(
        [5 / 1.5, 12 - 2 * 5 / 1.5, 5 / 1.5]
    )


def test_a_flow_that_loads_nothing_has_its_cap_beside_others() -> None:
    assert fair_rates([[], [(0, 1.0)], []], [3.0, INFINITE, INFINITE], [2.0]) == [3.0, 2.0, INFINITE]


def test_a_resource_of_nothing_gives_nothing() -> None:
    assert fair_rates([[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0)]], [INFINITE] * 3, [0.0, 5.0]) == [0.0, 0.0, 5.0]


def test_what_differs_by_rounding_fills_at_once() -> None:
    """A third, a sixth and a half of one link: one level, whatever the last bit of each."""
    loads = [[(0, 1 / 3)], [(0, 1 / 6)], [(0, 1 / 2)], [(1, 0.1)], [(1, 0.2)], [(1, 0.7)]]
    rates = fair_rates(loads, [INFINITE] * 6, [1.0, 1.0])
    assert rates == pytest.approx([1.0] * 6, rel=1e-12)
    assert max(rates) <= 1.0 + 1e-12


def test_levels_that_rounding_parts_are_one() -> None:
    """Two caps and a link that differ by less than the tolerance are met together."""
    near = 1.0 + 1e-13
    rates = fair_rates([[(0, 1.0)], [(0, 1.0)], [(0, 1.0)]], [1.0, near, INFINITE], [3.0])
    assert rates == pytest.approx([1.0, 1.0, 1.0], rel=1e-12)


def test_many_equal_flows_are_one_step() -> None:
    with at_most_calls(60_000):
        assert fair_rates([[(0, 1.0)]] * 2_000, [INFINITE] * 2_000, [4_000.0]) == [2.0] * 2_000


def test_shares_of_a_whole() -> None:
    """Works share a resource of 1: a small one leaves less than that."""
    assert fair_rates([[(0, 1.0)], [(0, 1.0)]], [0.25, 1.0], [1.0]) == [0.25, 0.75]
    assert fair_rates([[(0, 0.5)], [(0, 1.0)], [(0, 0.25)]], [0.5, 1.0, 1.0], [1.0]) == [0.5, 0.6, 0.6]


def test_who_is_stopped_leaves_all_to_the_others() -> None:
    assert fair_rates([[(0, 1.0)], [(0, 1.0)], [(0, 1.0)]], [0.0, 5.0, 0.0], [4.0]) == [0.0, 4.0, 0.0]
