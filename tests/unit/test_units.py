"""Quantities: what is refused, word for word, and how values are shown."""

from __future__ import annotations

import pytest

from simulator.units import format_bandwidth, format_duration, format_size, parse_quantity
from tests.calls import at_most_calls

_UNITS_OF_BANDWIDTH = (
    "allowed: B/s, GB/s, Gbit/s, GiB/s, Gibit/s, KB/s, Kbit/s, MB/s, Mbit/s, MiB/s, Mibit/s, TB/s, ... (16 in all)"
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("16 GB/s", "bandwidth", 16e9),
        ("16GB/s", "bandwidth", 16e9),
        (" 16 GB/s\n", "bandwidth", 16e9),
        ("25 Gbit/s", "bandwidth", 3.125e9),
        ("1 GiB/s", "bandwidth", 1073741824.0),
        ("5 us", "time", 5e-06),
        ("5 µs", "time", 5e-06),
        (".5 us", "time", 5e-07),
        ("5. us", "time", 5e-06),
        ("+5e+3 ns", "time", 5e-06),
        ("0 s", "time", 0.0),
        ("-0 s", "time", 0.0),
        ("160 MB", "size", 160e6),
        ("160 MiB", "size", 167772160.0),
        ("8 bit", "size", 1.0),
        ("15.7 TFLOP/s", "flop rate", 15.7e12),
        ("1.53 GHz", "frequency", 1.53e9),
        ("300 W", "power", 300.0),
        ("100 kIOP/s", "rate", 100e3),
        ("9.6 GT/s", "rate", 9.6e9),
    ],
)
def test_accepted(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        ("16 Gb/s", "bandwidth", "'Gb/s' is no unit of bandwidth; did you mean Gbit/s or GB/s?"),
        ("16 Gbps", "bandwidth", "'Gbps' is no unit of bandwidth; did you mean Gbit/s or GB/s?"),
        ("16 b/s", "bandwidth", "'b/s' is no unit of bandwidth; did you mean bit/s or B/s?"),
        ("16 Mb", "size", "'Mb' is no unit of size; did you mean Mbit or MB?"),
        ("16 gb/s", "bandwidth", "'gb/s' is no unit of bandwidth; did you mean GB/s?"),
        ("16 GB", "bandwidth", "'GB' is no unit of bandwidth; that is a unit of size; write for example \"16 GB/s\""),
        ("16 GB/s", "size", "'GB/s' is no unit of size; that is a unit of bandwidth; write for example \"160 MB\""),
        ("5 us", "size", "'us' is no unit of size; that is a unit of time; write for example \"160 MB\""),
        ("5 GHz", "time", "'GHz' is no unit of time; that is a unit of frequency; write for example \"5 us\""),
        ("5 US", "time", "'US' is no unit of time; did you mean us?"),
        ("5 parsecs", "bandwidth", f"'parsecs' is no unit of bandwidth; {_UNITS_OF_BANDWIDTH}"),
        ("5 parsecs", "power", "'parsecs' is no unit of power; allowed: MW, W"),
        ("5 GB/s/s", "bandwidth", "'GB/s/s' is no unit of bandwidth; did you mean 'GB/s'?"),
        ("5 G B/s", "bandwidth", "'G B/s' is no unit of bandwidth; did you mean 'GB/s'?"),
        ("16", "bandwidth", 'bandwidth needs a unit, for example "16 GB/s"; got the bare number 16'),
        ("1e3", "time", 'time needs a unit, for example "5 us"; got the bare number 1e3'),
        (16, "bandwidth", 'bandwidth needs a unit, for example "16 GB/s"; got the bare number 16'),
        (1.5, "size", 'size needs a unit, for example "160 MB"; got the bare number 1.5'),
        (True, "size", 'size needs a unit, for example "160 MB"; got the value True'),
        (None, "time", 'time needs a unit, for example "5 us"; got the value None'),
        (["1 s"], "time", "time needs a unit, for example \"5 us\"; got the value ['1 s']"),
        ("", "time", "time is a number and a unit, for example \"5 us\"; got ''"),
        ("fast", "time", "time is a number and a unit, for example \"5 us\"; got 'fast'"),
        ("us 5", "time", "time is a number and a unit, for example \"5 us\"; got 'us 5'"),
        ("1,5 us", "time", None),
        ("1_000 us", "time", None),
        ("1e us", "time", None),
        ("nan s", "time", "time is a number and a unit, for example \"5 us\"; got 'nan s'"),
        ("inf s", "time", "time is a number and a unit, for example \"5 us\"; got 'inf s'"),
        ("-inf s", "time", "time is a number and a unit, for example \"5 us\"; got '-inf s'"),
        ("0x10 s", "time", None),
        ("1e999 s", "time", "time must be at least zero and finite; got '1e999 s'"),
        ("1e308 GB/s", "bandwidth", "bandwidth must be at least zero and finite; got '1e308 GB/s'"),
        ("-1 us", "time", "time must be at least zero and finite; got '-1 us'"),
        ("-16 GB/s", "bandwidth", "bandwidth must be at least zero and finite; got '-16 GB/s'"),
        ("٣ us", "time", "time is a number and a unit, for example \"5 us\"; got '٣ us'"),
        ("５ us", "time", "time is a number and a unit, for example \"5 us\"; got '５ us'"),
        ("5 μs", "time", None),  # the Greek letter, not the micro sign
    ],
)
def test_refused(text: object, dimension: str, message: str | None) -> None:
    with pytest.raises(ValueError, match=dimension) as caught:
        parse_quantity(text, dimension)
    if message is not None:
        assert str(caught.value) == message


@pytest.mark.parametrize("text", ["0 GB/s", "0.000 B/s", "-1 GB/s", "1e-400 B/s"])
def test_what_must_be_more_than_zero(text: str) -> None:
    with pytest.raises(ValueError, match="more than zero") as caught:
        parse_quantity(text, "bandwidth", positive=True)
    assert str(caught.value) == f"bandwidth must be more than zero; got '{text}'"


def test_a_minimum_is_kept() -> None:
    assert parse_quantity("2 B", "size", minimum=2.0) == 2.0
    with pytest.raises(ValueError, match="got '1 B'"):
        parse_quantity("1 B", "size", minimum=2.0)


@pytest.mark.parametrize(
    "text",
    ["1e999999999 s", "1e-999999999 s", "1e" + "9" * 10_000 + " s", "9" * 100_000 + " s", "0." + "0" * 100_000 + "1 q"],
)
def test_huge_numbers_are_refused_at_once(text: str) -> None:
    with at_most_calls(2_000_000), pytest.raises(ValueError, match="time"):  # expanded, they would not end
        parse_quantity(text, "time")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (1.0, "1 s"),
        (90.0, "90 s"),
        (0.005185, "5.185 ms"),
        (5.1854e-3, "5.185 ms"),
        (1e-6, "1 us"),
        (2.5e-9, "2.5 ns"),
        (1e-12, "0.001 ns"),
        (0.99999, "1 s"),
        (0.9994, "999.4 ms"),
        (-0.005, "-5 ms"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (54e9, "54 GB/s"),
        (12.35e9, "12.35 GB/s"),
        (999.99e6, "1 GB/s"),
        (3.125e9, "3.125 GB/s"),
        (1e3, "1 kB/s"),
        (0.0, "0 B/s"),
    ],
)
def test_bandwidths(value: float, shown: str) -> None:
    assert format_bandwidth(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(160e6, "160 MB"), (8, "8 B"), (1.5e12, "1.5 TB"), (1024, "1.024 kB"), (0, "0 B")]
)
def test_sizes(value: float, shown: str) -> None:
    assert format_size(value) == shown


def test_digits_are_chosen() -> None:
    assert format_duration(0.0051854321, digits=6) == "5.18543 ms"
    assert format_bandwidth(54.123456e9, digits=2) == "54 GB/s"


def test_long_runs_of_spaces_are_refused_at_once() -> None:
    with at_most_calls(2_000_000), pytest.raises(ValueError, match="is a number and a unit"):
        parse_quantity("5 x" + " " * 200_000 + "y", "time")  # in the square of their number, it would take minutes


def test_what_was_found_is_cut_to_a_line() -> None:
    with pytest.raises(ValueError, match="time") as caught:
        parse_quantity("9" * 10_000 + " s", "time")
    assert len(str(caught.value)) < 200
