"""The table of a sweep has nccl-tests' columns."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.results.sweep import element_count, fit, sweep_table
from simulator.workload.parse import parse_workload
from tests.asked import exchange_on

# src/util.cu of nccl-tests, writeResultHeader
LEFT = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}"
SIDE = "  {:>7}  {:>6}  {:>6}  {:>6}"
HEADER = [
    LEFT.format("", "", "", "", "") + "           out-of-place                       in-place          ",
    LEFT.format("size", "count", "type", "redop", "root") + 2 * SIDE.format("time", "algbw", "busbw", "#wrong") + " ",
    LEFT.format("(B)", "(elements)", "", "", "") + 2 * SIDE.format("(us)", "(GB/s)", "(GB/s)", "") + " ",
]


def table(collective: str = "all-reduce", text: str = "sweep:8B-8GB:64", **asked_besides: str) -> list[str]:
    machine = load_machine("4gpu-pcie")
    results = [exchange_on(machine, "ring", size, collective=collective) for size in parse_workload(text).sizes]
    asked = CollectiveQuestion(where=Where("4gpu-pcie"), size_bytes=0.0, **asked_besides)
    return sweep_table(results, asked).splitlines()


def test_the_header_is_that_of_nccl_tests() -> None:
    lines = table()
    assert lines[2:5] == HEADER


def test_rows_have_the_columns_of_nccl_tests() -> None:
    rows = [line for line in table() if not line.startswith("#")]
    assert len(rows) == 6  # 8 B to 134 MB and 8 GB, the end that was named
    for row in rows:
        fields = row.split()
        assert len(fields) == 13
        size, count, kind, redop, root = fields[:5]
        assert int(count) == int(size) // 4
        assert (kind, redop, root) == ("float", "sum", "-1")
        assert fields[5:9] == fields[9:13]
        assert fields[8] == "N/A"
        assert re.fullmatch(
            r" {0,11}\d+  .{12}  .{8}  .{6}  .{6}  .{7}  .{6}  .{6}    N/A  .{7}  .{6}  .{6}    N/A", row
        )
    algbw, busbw = (float(fields) for fields in rows[-1].split()[6:8])
    assert busbw == pytest.approx(1.5 * algbw, abs=0.02)


def test_the_footer_says_the_average_and_that_nothing_was_checked() -> None:
    lines = table()
    assert lines[-3] == "# Out of bounds values : N/A"
    assert re.fullmatch(r"# Avg bus bandwidth    : [\d.]+ ", lines[-2])


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 6, "  0.00"),
        (9.994, 6, "  9.99"),
        (999.99, 6, "999.99"),
        (1234.5, 6, "1234.5"),
        (12345.0, 6, " 12345"),
        (123456.0, 6, "123456"),
        (1234567.0, 6, " 1e+06"),
        (12345.678, 7, "12345.7"),
        (1234567.0, 7, "1234567"),
        (12345678.0, 7, "1.2e+07"),
    ],
)
def test_numbers_lose_digits_to_fit(value: float, width: int, text: str) -> None:
    assert fit(value, width) == text


def test_collectives_over_parts_count_the_part() -> None:
    assert element_count(1024, "all-reduce", 4, 4) == 256
    assert element_count(1024, "all-gather", 4, 4) == 64
    assert element_count(1024, "reduce-scatter", 4, 2) == 128
    assert element_count(1024, "broadcast", 4, 4) == 256


def test_type_and_reduction_are_those_asked_for() -> None:
    line = table(text="sweep:8B-8B", dtype="bf16", reduction="max")[5]
    assert line.split()[:5] == ["8", "4", "bfloat16", "max", "-1"]


def test_a_switch_reduces_what_nccl_lets_it() -> None:
    """ncclNvlsSupported: sums of floating-point numbers, minimum and maximum of 16 bits; no products."""
    asked = CollectiveQuestion(where=Where("dgx-h100"), size_bytes=64e6, dtype="bf16")
    sums_s, most_s, product_s = (Session().time_s(replace(asked, reduction=r)) for r in ("sum", "max", "prod"))
    assert sums_s == most_s < product_s
    assert not replace(asked, dtype="fp32", reduction="max").in_switch


def test_a_sweep_doubles_from_the_first_size() -> None:
    assert parse_workload("sweep:8B-64B").sizes == (8, 16, 32, 64)
    assert parse_workload("sweep:1KiB-4KiB").sizes == (1024, 2048, 4096)
    assert parse_workload("sweep:1kB-1MB:10").sizes == (1000, 10_000, 100_000, 1_000_000)
    assert parse_workload("sweep:8B-18B:1.5").sizes == (8, 12, 18)
    assert parse_workload("sweep:8B-8B").is_sweep


def test_a_sweep_ends_at_the_size_that_it_names() -> None:
    assert parse_workload("sweep:8B-100B").sizes == (8, 16, 32, 64, 100)
    assert parse_workload("sweep:8B-8GB").sizes[-2:] == (8 * 2**29, 8_000_000_000)
    assert parse_workload("sweep:8B-20B:1.5").sizes == (8, 12, 18, 20)


def test_resnet50_is_its_parameters_in_fp32() -> None:
    assert parse_workload("resnet50").sizes == (102_228_128,)
    assert parse_workload("bytes:160MB").sizes == (160_000_000,)
    assert parse_workload("bytes:1 GiB").sizes == (2**30,)
