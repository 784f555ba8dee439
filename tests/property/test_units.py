"""Every accepted spelling of a quantity agrees with pint; all else is refused with a message."""

from __future__ import annotations

import re
from decimal import Decimal

import pint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.units import _DIMENSIONS, _UNITS, format_bandwidth, format_duration, format_size, in_si, parse_quantity
from tests.examples import few

_REGISTRY = pint.UnitRegistry(non_int_type=Decimal, cache_folder=None)
_REGISTRY.define("FLOP = []")
_REGISTRY.define("IOP = []")
_REGISTRY.define("transfer = []")
_BASE = {
    "bandwidth": "byte / second",
    "size": "byte",
    "time": "second",
    "flop rate": "FLOP / second",
    "frequency": "1 / second",
    "power": "watt",
    "length": "meter",
    "density": "bit / meter ** 2",
    "rate": "1 / second",
    "share": "dimensionless",
}
_SPELLINGS = [(dimension, unit) for dimension, table in _UNITS.items() for unit in table]


def by_pint(unit: str, dimension: str) -> Decimal:
    """Return one *unit* in the base unit of *dimension*, according to pint."""
    name, slash, per = unit.partition("/")
    if unit == "%":
        return Decimal(_REGISTRY.Quantity(Decimal(1), "percent").to(_BASE[dimension]).magnitude)
    prefix, stem = re.fullmatch(r"([kKMGTP]i?|[mµunpc])??(B|bit|s|min|h|FLOP|Hz|W|IOP|T|m|in)", name).groups()  # type: ignore[union-attr]
    stem = {"B": "byte", "T": "transfer", "min": "minute", "h": "hour", "in": "inch"}.get(stem, stem)
    if prefix == "K":  # pint knows Ki, and k for 1000; K is common usage for k
        prefix = "k"
    quantity = _REGISTRY.Quantity(Decimal(1), f"{prefix or ''}{stem}{slash}{per.replace('in2', 'inch ** 2')}")
    if dimension == "rate":
        quantity = quantity / _REGISTRY.Quantity(Decimal(1), stem)
    if dimension == "frequency":  # pint reads Hz as 1/s
        return Decimal(quantity.to("hertz").magnitude)
    return Decimal(quantity.to(_BASE[dimension]).magnitude)


def test_the_table_holds_what_is_expected() -> None:
    assert {dimension: len(table) for dimension, table in _UNITS.items()} == {
        "bandwidth": 22,
        "size": 22,
        "time": 8,
        "flop rate": 6,
        "frequency": 6,
        "power": 3,
        "length": 4,
        "density": 3,
        "rate": 14,
        "share": 1,
    }


@pytest.mark.parametrize(("dimension", "unit"), _SPELLINGS)
def test_one_of_each_unit_is_what_pint_says(dimension: str, unit: str) -> None:
    assert parse_quantity(f"1 {unit}", dimension) == float(by_pint(unit, dimension))


@settings(max_examples=few(500))
@given(
    st.sampled_from(_SPELLINGS),
    st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False, places=6),
    st.sampled_from(["{:f} {}", "{:f}{}", "  {:f}   {} ", "+{:f} {}", "{:.6e} {}", "{:.6E}\t{}"]),
)
def test_numbers_with_units_are_what_pint_says(spelling: tuple[str, str], number: Decimal, form: str) -> None:
    dimension, unit = spelling
    text = form.format(number, unit)
    written = Decimal(text.strip().removesuffix(unit).strip())
    value = float(written * by_pint(unit, dimension))
    _, _, least, most = _DIMENSIONS[dimension]
    low, high = (in_si(*end.split(" ")) for end in (least, most))
    if value and not low <= value <= high:
        with pytest.raises(ValueError, match=f"^{dimension} must be from "):
            parse_quantity(text, dimension)
    else:
        assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize("dimension", _DIMENSIONS)
def test_the_ends_of_a_range_are_in_it_and_what_is_beyond_is_refused(dimension: str) -> None:
    _, _, least, most = _DIMENSIONS[dimension]
    assert [parse_quantity(end, dimension) for end in (least, most)] == [
        in_si(*end.split(" ")) for end in (least, most)
    ]
    number, _, unit = most.partition(" ")
    with pytest.raises(ValueError, match=f"^{dimension} must be from {least} to {re.escape(most)}; got"):
        parse_quantity(f"{float(number) * 1.01:g} {unit}", dimension)


@given(st.sampled_from(_SPELLINGS), st.decimals(min_value=0, max_value=1000, places=3))
def test_units_of_one_dimension_are_no_units_of_another(spelling: tuple[str, str], number: Decimal) -> None:
    _, unit = spelling
    for other, table in _UNITS.items():
        if unit not in table:
            with pytest.raises(ValueError, match=re.escape(f"'{unit}' is not a unit of {other}; ")):
                parse_quantity(f"{number} {unit}", other)


@settings(max_examples=few(400))
@given(st.text(max_size=40), st.sampled_from(list(_UNITS)))
def test_any_text_is_a_number_or_refused_in_one_line(text: str, dimension: str) -> None:
    try:
        value = parse_quantity(text, dimension)
    except ValueError as error:
        message = str(error)
        assert message.startswith(dimension) or " is not a unit of " in message
        assert message.isprintable()
    else:
        assert 0 <= value < float("inf")


@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.lists(st.integers()), st.binary()),
    st.sampled_from(list(_UNITS)),
)
def test_what_is_no_text_is_refused(value: object, dimension: str) -> None:
    with pytest.raises(ValueError, match=f"^{dimension} needs a unit, for example "):
        parse_quantity(value, dimension)


@given(st.floats(1e-9, 1e4), st.integers(4, 12))
def test_formatted_durations_read_back(seconds: float, digits: int) -> None:
    assert parse_quantity(format_duration(seconds, digits), "time") == pytest.approx(seconds, rel=10.0 ** (1 - digits))


@given(st.floats(1, 1e15), st.integers(4, 12))
def test_formatted_sizes_and_bandwidths_read_back(value: float, digits: int) -> None:
    rel = 10.0 ** (1 - digits)
    assert parse_quantity(format_bandwidth(value, digits), "bandwidth") == pytest.approx(value, rel=rel)
    assert parse_quantity(format_size(value, digits), "size") == pytest.approx(value, rel=rel)
