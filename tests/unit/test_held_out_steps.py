"""Published steps that are held out: each is asked, or says why not, and every column is read."""

import csv
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.questions.step import StepQuestion
from validate.kinds import STEPS
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.table import Table, read_table

FILE = Path("validate/measurements/published-steps/held-out.csv")
SEEN = FILE.with_name("training.csv")
FREE = {"row_id", "dataset", "source", "note"}  # read by nobody, or for grouping alone
NAMES = RowNames()


def held_out() -> Table:
    return read_table(FILE.read_bytes(), FILE.name, STEPS.needed, STEPS.columns, STEPS.name)


def rows() -> list[dict[str, str]]:
    with FILE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def questions() -> dict[str, StepQuestion]:
    table, found = held_out(), {}
    for row in table.rows:
        seen = {column: table.cell(row, column) for column in STEPS.asked}
        question = STEPS.read(seen.__getitem__, NAMES).question
        assert isinstance(question, StepQuestion)
        found[table.cell(row, "row_id")] = question
        assert STEPS.measured_s(lambda column, row=row: table.cell(row, column), NAMES) > 0
    return found


def test_every_row_asks_for_a_step() -> None:
    asked = questions()
    assert 60 <= len(asked) == len(rows())
    assert len(set(asked.values())) == len(asked)


def test_every_column_is_read_and_every_row_says_where_it_comes_from() -> None:
    assert set(rows()[0]) - FREE <= set(STEPS.columns)
    for row in rows():
        assert row["source"]
        assert row["trust"] in ("A", "B", "C")


def test_no_row_is_among_those_that_were_seen() -> None:
    with SEEN.open(newline="") as stream:
        seen = {row["source"] for row in csv.DictReader(stream)}
    assert not seen & {row["source"] for row in rows()}


def test_throughputs_are_those_of_the_times() -> None:
    table = held_out()
    for row in rows():
        if row["throughput"]:
            implied = STEPS.measured_s(
                lambda column, row=row: "" if column == "step_time_s" else row.get(column, ""), NAMES
            )
            assert float(row["step_time_s"]) == pytest.approx(implied, rel=0.02), row["row_id"]
    assert table.rows


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("llama-1b", "inner", 4096),
        ("llama-1b", "tied", 1),
        ("qwen3-0.6b", "kv_heads", 8),
        ("qwen-7b", "lora_layers", "all"),
    ],
)
def test_sizes_of_networks_come_from_their_columns(model: str, name: str, value: int | str) -> None:
    asked = questions()
    row = next(each for each in rows() if each["model"] == model and each[name])
    assert dict(asked[row["row_id"]].sizes)[name] == value


def test_layers_of_adapters_that_do_not_exist_are_not_scored() -> None:
    row = next(each for each in rows() if each["lora"])
    with pytest.raises(NotScored, match="lora_layers 'most' is not modelled; attention, all"):
        STEPS.read(lambda column: {**row, "lora_layers": "most"}.get(column, ""), NAMES)


@pytest.mark.slow
def test_the_wider_network_takes_longer() -> None:
    """A row's own width reaches the prediction."""
    row = next(each for each in rows() if each["model"] == "qwen3-0.6b") | {"seq_len": "512"}
    session = Session()
    narrow, wide = (
        STEPS.read(lambda column, inner=inner: {**row, "inner": inner}.get(column, ""), NAMES).time_s(session)
        for inner in ("3072", "6144")
    )
    assert wide > 1.05 * narrow
