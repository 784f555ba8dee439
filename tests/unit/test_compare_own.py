"""Requested steps, and the memory of steps, compared with their prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.api import Session
from simulator.cli.written import CommandOptions
from simulator.workload.described import network_document
from tests.measured_folders import DEVICE, TOPOLOGY, write
from validate.cli.asking import asked_steps
from validate.compare.comparison import Comparison, ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_document, comparison_page, comparison_text

BATCHES = (2, 4, 8)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Return three steps that took a tenth longer than predicted, and a quarter more memory."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "networks").mkdir()
    session, rows = Session(), []
    for batch in BATCHES:
        written = CommandOptions(
            topology=TOPOLOGY, workload="gpt2", seq_len="64", batch=str(batch), gpus="1", recompute=True
        )
        (asked,) = asked_steps(written, 1)
        name = f"networks/gpt2-{batch}.network.json"
        (folder / name).write_text(json.dumps(network_document(asked.network)), encoding="utf-8")
        row: dict[str, Any] = {
            "row_id": f"own-{batch}", "machine": DEVICE, "n_nodes": 1, "n_gpus": 1, "framework": "torch",
            "model": "gpt2", "network": name, "phase": "train", "dtype": "amp-bf16", "policy": "amp-bf16",
            "batch_per_gpu": batch, "global_batch": batch, "recompute": "full", "optimizer": "adam",
            "issue": "eager", "trust": "A", "interval": 0.01,
            "step_time_s": 1.1 * session.time_s(asked.question),
            "max_allocated_bytes": round(1.25 * session.memory(asked.question).allocated_bytes),
            "max_reserved_bytes": round(2.0 * session.memory(asked.question).reserved_bytes),
            "smi_bytes": round(0.8 * session.memory(asked.question).process_bytes),
        }  # fmt: skip
        rows.append(row)
    write(folder, {"training.csv": rows})
    return compared(read_folder(str(folder)), ComparisonOptions())


@pytest.mark.slow
def test_what_was_asked_is_predicted_from_the_file_that_was_measured(found: Comparison) -> None:
    assert len(found.own) == len(BATCHES)
    for row in found.own:
        assert row.error == pytest.approx(1 / 1.1 - 1, rel=1e-6)
    errors = {each.name: each.error for _, each in found.held}
    assert errors == pytest.approx({"allocated": 1 / 1.25 - 1, "reserved": -0.5, "process": 0.25}, rel=1e-6)
    assert len(found.held) == 3 * len(BATCHES)


def test_both_stand_side_by_side_with_their_memory(found: Comparison) -> None:
    text = comparison_text(found)
    assert max(map(len, text.splitlines())) <= 80
    lines = [line for line in text.splitlines() if line.startswith("gpt2, batch ")]
    assert len(lines) == len(BATCHES)
    assert all("-9.1 %" in line for line in lines)
    assert "memory: peak tensor memory" in text
    for what, error in (("tensor", "20.0 %"), ("that the allocator holds", "50.0 %"), ("of the process", "25.0 %")):
        assert what in text
        assert f"median error {error}" in text
    assert "networks/" not in text


def test_the_document_holds_them_with_their_units(found: Comparison) -> None:
    document = comparison_document(found)
    tensors = [row for row in document["held"] if row["figure"] == "allocated"]
    assert [row["predicted_bytes"] for row in document["asked"]] == [row["predicted_bytes"] for row in tensors]
    for row in document["asked"]:
        assert row["measured_s"] == pytest.approx(1.1 * row["predicted_s"])
        assert row["measured_bytes"] == pytest.approx(1.25 * row["predicted_bytes"])
    json.dumps(document, allow_nan=False)


def test_a_network_that_is_missing_or_outside_the_folder_is_said_and_not_scored(tmp_path: Path) -> None:
    row: dict[str, Any] = {"machine": DEVICE, "n_gpus": 1, "model": "gpt2", "policy": "fp32", "batch_per_gpu": 2}
    row |= {"phase": "train", "step_time_s": 1.0, "issue": "eager", "trust": "A"}
    rows = [{**row, "network": name} for name in ("networks/none.network.json", "../../x.network.json")]
    write(tmp_path, {"training.csv": rows})
    found = compared(read_folder(str(tmp_path)), ComparisonOptions())
    assert "cannot be read" in found.rows[0].skipped
    assert "not in the folder" in found.rows[1].skipped


def test_the_page_shows_them_before_everything_else(found: Comparison) -> None:
    page = comparison_page(found, "again")
    assert page.index("asked for") < page.index("error by class")
    assert page.count("gpt2, batch 4") >= 1
    assert ">memory<" in page


def test_the_page_has_no_column_that_nothing_stands_in(found: Comparison) -> None:
    assert ">memory<" not in comparison_page(
        replace(found, rows=[replace(row, memory=()) for row in found.rows]), "again"
    )
