"""CSV with positions: split like the standard library does, with faults where it fails."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError
from validate.tables import cells
from validate.tables.cells import read_records
from validate.tables.table import read_table


def fields(text: str) -> list[tuple[str, ...]]:
    return [record.fields for record in read_records(text.encode(), "t.csv")]


def test_fields_are_split_at_commas_and_quotes_resolved():
    assert fields('a,b\n1,"x, ""y"""\n,\n') == [("a", "b"), ("1", 'x, "y"'), ("", "")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark_leave_no_trace(end):
    text = "\ufeff" + end.join(["a,b", "", "1,2", '"3",4'])
    assert fields(text) == [("a", "b"), ("1", "2"), ("3", "4")]


def test_a_carriage_return_inside_a_line_is_text():
    assert fields('a,b\r\n1\r,"2\r\n"\r\n"3",4\r') == [("a", "b"), ("1\r", "2\r\n"), ("3", "4")]


def test_records_know_their_first_line():
    records = read_records(b'a,b\n\n"1\n2",3\n4,5\n', "t.csv")
    assert [record.line for record in records] == [1, 3, 5]


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6), min_size=2, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_what_the_standard_library_writes_is_read_back(rows):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    text = out.getvalue()
    if not text.strip() or text.startswith("\ufeff"):
        return
    assert fields(text) == [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "t.csv:1:1: is empty; a table starts with a line of column names"),
        (b" \n\n", "t.csv:1:1: is empty"),
        (b"a,b\n\x00", "t.csv:2:1: is not UTF-8 text"),
        (b"a,b\n1,\xff", "t.csv:2:3: is not UTF-8 text"),
        (b'a,b\n1,"x', "t.csv:2:3: the quote that opens here never closes"),
        (b'a,b\n1,"x"y,2\n', "t.csv:2:6: text after a closing quote"),
        (b'a,b\n"1\n2"y', "t.csv:3:3: text after a closing quote"),
    ],
)
def test_faults_have_a_place(raw, words):
    with pytest.raises(InputError) as caught:
        read_records(raw, "t.csv")
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(cells, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="larger than"):
        read_records(b"a" * 11, "t.csv")


def test_ten_megabytes_without_a_comma_are_refused_at_once():
    with pytest.raises(InputError, match=r"^t\.csv:1:1: a cell has more than 1,000,000 characters$") as caught:
        read_table(b"x" * 10_000_000, "t.csv", ["bytes", "time_s"], [])
    assert len(str(caught.value)) < 250


def test_columns_are_found_by_name_in_any_order_and_case():
    table = read_table(b" Time_S ,bytes,mine\n 1 ,2,x\n", "t.csv", ["bytes", "time_s"], ["bytes", "time_s"])
    row = table.rows[0]
    assert (table.cell(row, "time_s"), table.cell(row, "bytes"), table.cell(row, "trust")) == ("1", "2", "")


def test_missing_columns_are_named_at_once():
    with pytest.raises(InputError, match=r"missing columns bytes, time_s; found: device, op$"):
        read_table(b"device,op\n", "t.csv", ["bytes", "time_s"], [])
    with pytest.raises(InputError, match="fields are separated by commas"):
        read_table(b"bytes;time_s\n", "t.csv", ["bytes", "time_s"], [])


def test_a_column_that_is_read_stands_once_others_may_repeat():
    read_table(b"bytes,note,note\n", "t.csv", ["bytes"], ["bytes"])
    with pytest.raises(InputError, match="'bytes' is there twice"):
        read_table(b"bytes,Bytes\n", "t.csv", ["bytes"], ["bytes"])


def test_a_thousand_columns_are_enough():
    with pytest.raises(InputError, match="has 2001 columns"):
        read_table(b"," * 2000, "t.csv", [], [])
