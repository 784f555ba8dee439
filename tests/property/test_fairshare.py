"""Max-min fair shares: their defining properties, and a comparison with exact water-filling."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.network.fairshare import fair_rates
from tests.calls import at_most_calls
from tests.examples import few

INFINITE = float("inf")
Loads = list[list[tuple[int, float]]]
Case = tuple[Loads, list[float], list[float]]

_CAPACITIES = st.one_of(st.sampled_from([1.0, 2.0, 3.0, 10.0, 12.8e9, 50e9]), st.floats(1e-3, 1e12))
_WEIGHTS = st.one_of(st.sampled_from([1.0, 1.0, 2.0, 0.5, 3.0]), st.floats(0.01, 16))
_CAPS = st.one_of(st.just(INFINITE), st.sampled_from([0.5, 1.0, 2.0, 2e9]), st.floats(1e-3, 1e12))


@st.composite
def cases(draw: st.DrawFn, max_flows: int = 10, max_resources: int = 6) -> Case:
    """Draw flows over a few resources; a flow that loads none has a cap."""
    capacities = draw(st.lists(_CAPACITIES, min_size=1, max_size=max_resources))
    loads, caps = [], []
    for _ in range(draw(st.integers(1, max_flows))):
        used = draw(st.lists(st.sampled_from(range(len(capacities))), unique=True, max_size=4))
        loads.append([(resource, draw(_WEIGHTS)) for resource in used])
        caps.append(draw(_CAPS) if used else draw(_CAPS.filter(lambda cap: cap < INFINITE)))
    return loads, caps, capacities


def water_filling(loads: Loads, caps: list[float], capacities: list[float]) -> list[Fraction]:
    """Return the exact max-min rates: raise all rates together, freeze each flow that meets a bound."""
    weights = [{r: Fraction(w) for r, w in load} for load in loads]
    left = [Fraction(c) for c in capacities]
    rates: dict[int, Fraction] = {}
    level = Fraction(0)
    while len(rates) < len(loads):
        growing = [i for i in range(len(loads)) if i not in rates]
        sums = {r: sum(weights[i].get(r, Fraction(0)) for i in growing) for r in range(len(left))}
        steps = [left[r] / total for r, total in sums.items() if total]
        steps += [Fraction(caps[i]) - level for i in growing if caps[i] < INFINITE]
        step = min(steps)
        level += step
        for r, total in sums.items():
            left[r] -= step * total
        for i in growing:
            at_cap = caps[i] < INFINITE and level == Fraction(caps[i])
            if at_cap or any(left[r] == 0 for r in weights[i]):
                rates[i] = level
    return [rates[i] for i in range(len(loads))]


@settings(max_examples=few(100))
@given(cases())
def test_equals_exact_water_filling(case: Case) -> None:
    loads, caps, capacities = case
    expected = [float(rate) for rate in water_filling(loads, caps, capacities)]
    assert fair_rates(loads, caps, capacities) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=few(80))
@given(cases())
def test_no_capacity_and_no_cap_is_passed(case: Case) -> None:
    loads, caps, capacities = case
    rates = fair_rates(loads, caps, capacities)
    used = [0.0] * len(capacities)
    for load, cap, rate in zip(loads, caps, rates, strict=True):
        assert 0 < rate <= cap
        for resource, weight in load:
            used[resource] += rate * weight
    for n_bytes, capacity in zip(used, capacities, strict=True):
        assert n_bytes <= capacity * (1 + 1e-9)


@settings(max_examples=few(80))
@given(cases())
def test_each_flow_has_a_bottleneck(case: Case) -> None:
    """Each flow is at its cap, or on a full resource on which no flow is faster."""
    loads, caps, capacities = case
    rates = fair_rates(loads, caps, capacities)
    used = [0.0] * len(capacities)
    fastest = [0.0] * len(capacities)
    for load, rate in zip(loads, rates, strict=True):
        for resource, weight in load:
            used[resource] += rate * weight
            fastest[resource] = max(fastest[resource], rate)
    for load, cap, rate in zip(loads, caps, rates, strict=True):
        assert rate >= cap * (1 - 1e-9) or any(
            used[r] >= capacities[r] * (1 - 1e-9) and rate >= fastest[r] * (1 - 1e-9) for r, _ in load
        )


@given(cases(), st.sampled_from([2.0**-20, 0.5, 8.0, 2.0**30]))
def test_rates_scale_with_capacities_and_caps(case: Case, factor: float) -> None:
    loads, caps, capacities = case
    scaled = fair_rates(loads, [cap * factor for cap in caps], [c * factor for c in capacities])
    assert scaled == [rate * factor for rate in fair_rates(loads, caps, capacities)]


@given(cases(), st.sampled_from([0.25, 2.0, 1024.0]))
def test_weights_divide_rates(case: Case, factor: float) -> None:
    loads, caps, capacities = case
    heavier = [[(r, w * factor) for r, w in load] for load in loads]
    rates = fair_rates(heavier, [cap / factor for cap in caps], capacities)
    assert rates == [rate / factor for rate in fair_rates(loads, caps, capacities)]


@given(cases(), st.data())
def test_order_of_flows_and_names_of_resources_do_not_matter(case: Case, data: st.DataObject) -> None:
    loads, caps, capacities = case
    order = data.draw(st.permutations(range(len(loads))))
    names = data.draw(st.permutations(range(len(capacities))))
    renamed = {names[r]: capacity for r, capacity in enumerate(capacities)}
    moved = [[(names[r], w) for r, w in reversed(loads[i])] for i in order]
    rates = fair_rates(loads, caps, capacities)
    again = fair_rates(moved, [caps[i] for i in order], renamed)
    assert again == pytest.approx([rates[i] for i in order], rel=1e-9)


@given(cases(max_flows=6), st.integers(2, 5))
def test_copies_of_a_flow_are_one_of_their_joint_weight(case: Case, count: int) -> None:
    """The basis of folding: ``count`` equal flows get the rate of one that loads ``count`` times as much."""
    loads, caps, capacities = case
    stepped = fair_rates([*loads, *[loads[0]] * (count - 1)], [*caps, *[caps[0]] * (count - 1)], capacities)
    bundle = [(r, w * count) for r, w in loads[0]]
    folded = fair_rates([bundle, *loads[1:]], caps, capacities)
    assert stepped[: len(loads)] == pytest.approx(folded, rel=1e-9)
    assert stepped[len(loads) :] == pytest.approx([folded[0]] * (count - 1), rel=1e-9)


def test_known_shares() -> None:
    # The middle flow crosses both links; each of the others gets the rest.
    assert fair_rates([[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0)]], [INFINITE] * 3, [10.0, 4.0]) == [8.0, 2.0, 2.0]
    # A capped flow leaves the rest to the others; a weight of two takes twice the rate.
    assert fair_rates([[(0, 1.0)], [(0, 1.0)], [(0, 2.0)]], [1.0, INFINITE, INFINITE], [10.0]) == [1.0, 3.0, 3.0]


def test_alone_a_flow_has_its_narrowest() -> None:
    assert fair_rates([[(0, 2.0), (1, 1.0)]], [INFINITE], [10.0, 7.0]) == [5.0]
    assert fair_rates([[(0, 2.0), (1, 1.0)]], [4.0], [10.0, 7.0]) == [4.0]


def test_nothing_bounds_a_flow_without_loads_and_cap() -> None:
    assert fair_rates([[]], [INFINITE], []) == [INFINITE]
    assert fair_rates([[], [(0, 1.0)], []], [INFINITE, INFINITE, 3.0], [2.0]) == [INFINITE, 2.0, 3.0]


def test_no_flow_no_rate() -> None:
    assert fair_rates([], [], [1.0]) == []


def test_many_flows_that_share_little_are_soon_done() -> None:
    """Each of 20,000 links fills at a level of its own, but not every level looks at all links."""
    n = 20_000
    links = [[(i, 1.0), (i + 1, 0.5)] for i in range(n)]
    with at_most_calls(100 * n):
        rates = fair_rates(links, [INFINITE] * n, [1e9 + i for i in range(n + 1)])
    assert all(6e8 < rate <= 1e9 + n for rate in rates)
