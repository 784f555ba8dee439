"""A table of any width: what is wrapped, what leaves and is named, and what never leaves."""

from __future__ import annotations

from simulator.cli.table import Column, table_lines, widths_of
from simulator.console import Style, fold

WAY = Column("way", ["ring", "tree"], right=False)
TIME = Column("time", ["1 ms", "20 ms"])
USE = Column("use", ["99 %", "3 %"], spare=2)
RATE = Column("samples a second", ["12", "3.5"], spare=1)
WHY = Column("why", ["it is bound by memory in 11 % of its time", "-"], right=False)


def shown(width: int | None) -> list[str]:
    return table_lines([WAY, TIME, USE, RATE, WHY], Style(width), {1: "bounds"})


def test_a_wide_screen_has_all_columns():
    assert shown(None) == shown(100)
    assert shown(100)[0] == "way    time   use  samples a second  why"
    assert shown(100)[2] == "bounds"
    assert not any("not shown" in line for line in shown(100))


def test_headings_and_text_are_wrapped_before_a_column_leaves():
    assert shown(72)[:4] == [
        "                    samples a",
        "way    time   use      second  why",
        "ring   1 ms  99 %          12  it is bound by memory in 11 % of its time",
        "bounds",
    ]
    assert shown(60)[2:5] == [
        "way    time   use   second  why",
        "ring   1 ms  99 %       12  it is bound by memory in 11 % of",
        "                            its time",
    ]


def test_the_least_important_leaves_first_and_is_named_last():
    assert [line.strip() for line in shown(44)[:2]] == ["samples", "a"]
    assert shown(44)[2].split() == ["way", "time", "second", "why"]
    assert shown(44)[-1] == "not shown at 44 columns: use"
    assert shown(34)[0].split() == ["way", "time", "why"]
    assert shown(34)[-2:] == ["not shown at 34 columns: use,", "  samples a second"]
    assert all(len(line) <= width for width in range(20, 100) for line in shown(width))


def test_key_columns_stay_at_any_width_at_last_as_records():
    for width in range(20, 100):
        text = " ".join(" ".join(shown(width)).split())
        assert "20 ms" in text
        assert text.replace(" ", "").count("boundbymemory") == 1
    assert shown(20)[:4] == ["way", "  ring", "    time 1 ms, use", "    99 %, samples a"]


def test_the_first_row_may_be_marked_at_any_width():
    for width in (20, 34, None):
        lines = table_lines([WAY, TIME, WHY], Style(width, colour=True), first=("green",))
        marked = [line for line in lines if line.startswith("\x1b[32m")]
        assert marked
        assert "ring" in marked[0]


def test_what_fits_is_known():
    assert widths_of([WAY, TIME], 11)
    assert not widths_of([WAY, TIME], 10)
    assert widths_of([WAY, TIME], None)


def test_a_unit_is_not_torn_from_its_figure():
    assert fold("within 11 % of it", 9) == ["within", "11 % of", "it"]
    assert fold("takes 20 ms", 8) == ["takes", "20 ms"]


def test_a_word_longer_than_a_line_is_broken():
    assert fold("a/very/long/path/to/a/file", 12) == ["a/very/long/", "path/to/a/fi", "le"]
