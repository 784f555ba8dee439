"""gloo: a ring in closed form, and a broadcast whose sends share the sender's link."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.collectives.registry import find_strategy, strategy_names
from simulator.collectives.scheduled import binomial_children
from simulator.errors import InputError
from simulator.network.machine import Machine
from tests.asked import exchange_on
from tests.machines import machine_from

S = 8e6
B = 1e7  # B/s of each link


def hosts(n: int) -> Machine:
    return machine_from(
        f"""
schema_version: 1
name: hosts
parts:
  wire: {{kind: link, of: ethernet, bandwidth: {B:.0f} B/s, source: test}}
cluster: {{node: linux-host, nodes: {n}, fabric: wire}}
"""
    )


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_all_reduce_is_a_ring(n: int) -> None:
    assert exchange_on(hosts(n), "gloo", S).sync_time_s == pytest.approx(2 * (n - 1) / n * S / B, rel=2e-3)


@pytest.mark.parametrize(
    ("n", "units"),
    # By hand, in S/B.  4: the root sends to 1 and 2 at half the rate (2), then 1 sends to 3 (1).
    # 6: the root sends to 1, 2 and 4 at a third (3), then 1 sends to 3 and 5 at half (2).
    # 8: three at a third (3); 1 to 3 and 5 at half and 2 to 6 (2 and 1); 3 to 7 (1).
    [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (8, 6)],
)
def test_broadcast_starts_all_sends_of_a_rank_at_once(n: int, units: float) -> None:
    result = exchange_on(hosts(n), "gloo", S, collective="broadcast")
    assert result.sync_time_s == pytest.approx(units * S / B, rel=2e-3)


def test_broadcast_from_another_root_takes_as_long() -> None:
    times = [exchange_on(hosts(5), "gloo", S, collective="broadcast", root=r).sync_time_s for r in range(5)]
    assert times == pytest.approx([times[0]] * 5)


@pytest.mark.parametrize("n", range(1, 40))
def test_every_rank_but_the_root_receives_once_and_from_one_that_has_it(n: int) -> None:
    children = binomial_children(n)
    received = [child for rank in range(n) for child in children[rank]]
    assert sorted(received) == list(range(1, n))
    assert all(child > rank and (child ^ rank).bit_count() == 1 for rank in range(n) for child in children[rank])


def test_what_is_not_modelled_is_said() -> None:
    with pytest.raises(InputError, match="gloo is modelled for all-reduce and broadcast, not for all-gather"):
        exchange_on(hosts(2), "gloo", S, collective="all-gather")


def test_gloo_is_found_by_name_and_not_among_those_compared() -> None:
    assert find_strategy("gloo").name == "gloo"
    assert "gloo" not in strategy_names()
    assert "gloo" in strategy_names(named_only=True)
    assert len(set(strategy_names(named_only=True))) == len(strategy_names(named_only=True))
    assert load_machine("linux-host").gpus
