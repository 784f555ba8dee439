"""A table fits 80 columns: it drops columns in a given order, then wraps its last."""

from __future__ import annotations

import pytest

from simulator.cli import run
from simulator.cli.table import table_lines
from simulator.console.style import Style, fold

HEADER = ("way", "time", "use", "why")
COLUMNS = (["ring", "tree"], ["1 ms", "20 ms"], ["99 %", "3 %"], ["it is bound by memory in 11 % of its time", "-"])
RIGHT = (False, True, True, False)


def shown(width: int | None, spare: tuple[int, ...] = (2,)) -> list[str]:
    return table_lines(HEADER, COLUMNS, RIGHT, Style(width), spare, {1: "bounds"})


def test_a_wide_screen_has_all_columns():
    assert shown(None) == shown(80)
    assert shown(80)[0] == "way    time   use  why"
    assert shown(80)[2] == "bounds"


def test_columns_go_first_then_the_last_is_wrapped_then_it_is_a_list():
    assert shown(58)[0] == "way    time  why"
    narrow = shown(45)
    assert narrow[:3] == ["way    time  why", "ring   1 ms  it is bound by memory in 11 % of", "             its time"]
    assert all(len(line) <= 45 for line in narrow)
    assert narrow[3:] == ["bounds", "tree  20 ms  -"]
    listed = shown(20)
    assert listed[0].startswith("way: time")
    assert listed[1].startswith("  ring: 1 ms")


def test_a_unit_is_not_torn_from_its_figure():
    assert fold("within 11 % of it", 9) == ["within", "11 % of", "it"]
    assert fold("takes 20 ms", 8) == ["takes", "20 ms"]


@pytest.mark.parametrize(
    "words",
    [
        "--topology p3.16xlarge --nodes 4 --strategy nccl,ring",
        "--topology p3.16xlarge --workload sweep:1kB-1MB:10 --strategy all",
        "--topology p3.16xlarge --workload gpt2 --batch 2 --parallel pp=8 --micro-batches 8",
        "--topology p3.8xlarge,dgx-h100 --workload alexnet --batch 8 --strategy nccl,ring",
        "--topology linux-host --nodes 2 --fabric ethernet-10g --workload message:4KiB",
        "best --topology p3.8xlarge --workload gpt2 --global-batch 16 --micro-batch 2 --top 2 --jobs 1",
        "machines --gpu a100",
        "strategies",
    ],
)
def test_no_line_is_wider_than_the_screen_and_tables_stay_tables(words: str, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert not [line for line in lines if line.startswith(("  nccl: ", "  compute: ", "  ring: "))]
