"""Quantities: error messages, word for word, and how values are shown."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from simulator import units
from simulator.units import (
    format_bandwidth,
    format_binary,
    format_duration,
    format_size,
    in_si,
    parse_quantity,
    unit_names,
)
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
        ("16 Gb/s", "bandwidth", "'Gb/s' is not a unit of bandwidth; did you mean Gbit/s or GB/s?"),
        ("16 Gbps", "bandwidth", "'Gbps' is not a unit of bandwidth; did you mean Gbit/s or GB/s?"),
        ("16 b/s", "bandwidth", "'b/s' is not a unit of bandwidth; did you mean bit/s or B/s?"),
        ("16 Mb", "size", "'Mb' is not a unit of size; did you mean Mbit or MB?"),
        ("16 GBps", "bandwidth", "'GBps' is not a unit of bandwidth; did you mean GB/s?"),
        ("16 MBytes/sec", "bandwidth", "'MBytes/sec' is not a unit of bandwidth; did you mean MB/s?"),
        ("16 gbit", "bandwidth", "'gbit' is not a unit of bandwidth; did you mean Gbit/s?"),
        ("16 Mbits/s", "bandwidth", "'Mbits/s' is not a unit of bandwidth; did you mean Mbit/s?"),
        ("16 KBytes", "size", "'KBytes' is not a unit of size; did you mean KB?"),
        ("16 gb", "size", "'gb' is not a unit of size; did you mean GB?"),
        ("16 TFLOPS", "flop rate", "'TFLOPS' is not a unit of flop rate; did you mean TFLOP/s?"),
        ("16 GF", "flop rate", "'GF' is not a unit of flop rate; did you mean GFLOP/s?"),
        ("16 msec", "time", "'msec' is not a unit of time; did you mean ms?"),
        ("16 hours", "time", "'hours' is not a unit of time; did you mean h?"),
        ("300 watts", "power", "'watts' is not a unit of power; did you mean W?"),
        ("16 gb/s", "bandwidth", "'gb/s' is not a unit of bandwidth; did you mean GB/s?"),
        (
            "16 GB",
            "bandwidth",
            "'GB' is not a unit of bandwidth; that is a unit of size; write for example \"16 GB/s\"",
        ),
        ("16 GB/s", "size", "'GB/s' is not a unit of size; that is a unit of bandwidth; write for example \"160 MB\""),
        ("5 us", "size", "'us' is not a unit of size; that is a unit of time; write for example \"160 MB\""),
        ("5 GHz", "time", "'GHz' is not a unit of time; that is a unit of frequency; write for example \"5 us\""),
        ("5 US", "time", "'US' is not a unit of time; did you mean us?"),
        ("5 parsecs", "bandwidth", f"'parsecs' is not a unit of bandwidth; {_UNITS_OF_BANDWIDTH}"),
        ("5 parsecs", "power", "'parsecs' is not a unit of power; allowed: MW, W"),
        ("5 GB/s/s", "bandwidth", "'GB/s/s' is not a unit of bandwidth; did you mean 'GB/s'?"),
        ("5 G B/s", "bandwidth", "'G B/s' is not a unit of bandwidth; did you mean 'GB/s'?"),
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


def test_more_than_zero_may_be_little() -> None:
    assert parse_quantity("0.5 B/s", "bandwidth", positive=True) == 0.5


@pytest.mark.parametrize(
    "text",
    ["1e999999999 s", "1e-999999999 s", "1e" + "9" * 10_000 + " s", "9" * 100_000 + " s", "0." + "0" * 100_000 + "1 q"],
)
def test_huge_numbers_are_refused_at_once(text: str) -> None:
    with at_most_calls(2_000_000), pytest.raises(ValueError, match="time"):  # written out, they would not end
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
        (0.99996, "1 s"),
        (0.9999, "999.9 ms"),
        (9999.0, "9999 s"),
        (9999.4, "9999 s"),
        (9999.5, "2.778 h"),
        (90_000.0, "25 h"),
        (9999 * 3600.0, "9999 h"),
        (10_000 * 3600.0, "10,000 h"),
        (1_234_567 * 3600.0, "1,234,567 h"),
        (-90_000.0, "-25 h"),
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
        (8e12, "8000 GB/s"),
        (9999.6e9, "10 TB/s"),
        (1e15, "1 PB/s"),
    ],
)
def test_bandwidths(value: float, shown: str) -> None:
    assert format_bandwidth(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1e18, "1 EB"),
        (8.92e18, "8.92 EB"),
        (160e6, "160 MB"),
        (8, "8 B"),
        (1.5e12, "1.5 TB"),
        (12e9, "12 GB"),
        (1024, "1.024 kB"),
        (0, "0 B"),
    ],
)
def test_sizes(value: float, shown: str) -> None:
    assert format_size(value) == shown


def test_digits_are_chosen() -> None:
    assert format_duration(0.0051854321, digits=6) == "5.18543 ms"
    assert format_bandwidth(54.123456e9, digits=2) == "54 GB/s"
    assert format_duration(20 * 3600.0, digits=1) == "20 h"  # no exponent
    assert format_size(1234.5) == "1.234 kB"


def test_two_sums_that_differ_by_the_last_bit_read_the_same() -> None:
    sums = 0.020014999999999998, 0.020015
    assert [format_duration(seconds) for seconds in sums] == ["20.02 ms", "20.02 ms"]


def test_long_runs_of_spaces_are_refused_at_once() -> None:
    with at_most_calls(2_000_000), pytest.raises(ValueError, match="is a number and a unit"):
        parse_quantity("5 x" + " " * 200_000 + "y", "time")  # in quadratic time, it would take minutes


def test_what_was_found_is_cut_to_a_line() -> None:
    with pytest.raises(ValueError, match="time") as caught:
        parse_quantity("9" * 10_000 + " s", "time")
    assert len(str(caught.value)) < 200


_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY_SCALES = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


@pytest.mark.parametrize(("prefix", "scale"), [("", 1.0), *_SCALES.items(), *_BINARY_SCALES.items()])
def test_prefixes_of_bytes_and_bits(prefix: str, scale: float) -> None:
    assert parse_quantity(f"3 {prefix}B", "size") == 3 * scale
    assert parse_quantity(f"3 {prefix}bit", "size") == 3 * scale / 8
    assert parse_quantity(f"3 {prefix}B/s", "bandwidth") == 3 * scale
    assert parse_quantity(f"3 {prefix}bit/s", "bandwidth") == 3 * scale / 8


@pytest.mark.parametrize(("prefix", "scale"), [("", 1.0), *_SCALES.items()])
def test_prefixes_of_what_is_counted(prefix: str, scale: float) -> None:
    assert parse_quantity(f"1 {prefix}IOP/s", "rate") == scale
    assert parse_quantity(f"0.5 {prefix}T/s", "rate") == scale / 2
    if prefix != "k":  # in FLOP/s it is a capital K
        assert parse_quantity(f"7 {prefix}FLOP/s", "flop rate") == 7 * scale
    if prefix != "K":
        assert parse_quantity(f"1 {prefix}Hz", "frequency") == scale


def test_units_of_time_and_power() -> None:
    seconds = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12, "min": 60.0, "h": 3600.0}
    assert {unit: parse_quantity(f"1 {unit}", "time") for unit in seconds} == seconds
    watts = {"W": 1.0, "kW": 1e3, "MW": 1e6}
    assert {unit: parse_quantity(f"1 {unit}", "power") for unit in watts} == watts


@pytest.mark.parametrize(
    ("dimension", "least", "below", "most", "above"),
    [
        ("bandwidth", "1 bit/s", "0.9 bit/s", "1000 PB/s", "1001 PB/s"),
        ("size", "1e-300 B", None, "1000 PB", "1001 PB"),
        ("time", "1e-300 s", None, "1e9 s", "1.001e9 s"),
        ("flop rate", "1 FLOP/s", "0.9 FLOP/s", "1e6 PFLOP/s", "1.001e6 PFLOP/s"),
        ("frequency", "1 Hz", "0.9 Hz", "1 PHz", "1.001 PHz"),
        ("power", "1e-3 W", "0.9e-3 W", "1000 MW", "1001 MW"),
        ("rate", "1e-3 IOP/s", "0.9e-3 IOP/s", "1 PIOP/s", "1.001 PIOP/s"),
    ],
)
def test_ranges(dimension: str, least: str, below: str | None, most: str, above: str) -> None:
    assert parse_quantity(least, dimension) > 0
    assert parse_quantity(most, dimension) > 0
    for text in filter(None, (below, above)):
        with pytest.raises(ValueError, match=f"{dimension} must be from .* to .*; got '{re.escape(text)}'"):
            parse_quantity(text, dimension)


def test_the_longest_text() -> None:
    assert parse_quantity("5" + " " * 78 + "s", "time") == 5.0
    with pytest.raises(ValueError, match="is a number and a unit"):
        parse_quantity("5" + " " * 79 + "s", "time")


def test_names_of_units_stand_longest_first() -> None:
    """A pattern in this order matches a whole unit and not its beginning."""
    names = unit_names()
    assert set(names) == {unit for table in units._UNITS.values() for unit in table}
    assert list(names) == sorted(names, key=lambda unit: (-len(unit), unit))


def test_units_of_any_dimension_in_si() -> None:
    assert in_si("16", "GB/s") == 16e9
    assert in_si("5", "us") == 5e-06
    assert in_si("2", "Gibit") == 2**28
    with pytest.raises(KeyError, match="parsec"):
        in_si("5", "parsec")


@pytest.mark.parametrize(
    ("kind", "unit", "zero"),
    [
        ("Bandwidth", "GB/s", False),
        ("Size", "MB", True),
        ("Duration", "us", True),
        ("FlopRate", "TFLOP/s", False),
        ("Frequency", "GHz", False),
        ("Length", "cm", False),
        ("Density", "Tbit/in2", False),
        ("Power", "W", False),
        ("Rate", "kIOP/s", False),
    ],
)
def test_what_a_file_may_say_of_each(kind: str, unit: str, zero: bool) -> None:
    adapter = TypeAdapter(getattr(units, kind))
    assert adapter.validate_python(f"2 {unit}") > 0
    if zero:
        assert adapter.validate_python(f"0 {unit}") == 0.0
    else:
        with pytest.raises(ValidationError, match="must be more than zero"):
            adapter.validate_python(f"0 {unit}")
    pattern = adapter.json_schema()["pattern"]
    assert re.search(pattern, f"2 {unit}")
    assert not re.search(pattern, "2 parsec")
    # longer units come before their prefixes, for readers of the schema that take the first match
    names = re.findall(r"\(([^()]*)\)\\s\*\$", pattern)[0].split("|")
    assert names == sorted(names, key=lambda name: (-len(name), name))


def test_what_is_rounded_up_to_the_next_unit_is_shown_in_it() -> None:
    """999.95 rounded to four digits is 1000, which is 1 of the next unit."""
    half_up = 1e3 * (1 - 0.5 * 10**-4)
    assert format_bandwidth(half_up) == "1 kB/s"
    assert format_bandwidth(half_up * (1 - 1e-9)) == "999.9 B/s"


def test_binary_sizes_have_no_exponent() -> None:
    assert [format_binary(n, 3) for n in (1, 1000, 1023, 1024, 1536, 1e6)] == [
        "1 B", "1000 B", "1023 B", "1 KiB", "1.5 KiB", "977 KiB"
    ]  # fmt: skip
