"""Whole groups run on two simulated GPUs: every row fits its table, and missing cases are reported."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clocked_cuda import ClockedBench, clocked_bench  # noqa: E402
from validate.machine.measure import run  # noqa: E402
from validate.machine.measure.case import Unavailable  # noqa: E402
from validate.machine.measure.cases import copies, memory  # noqa: E402
from validate.machine.measure.table import COLUMNS  # noqa: E402
from validate.machine.measure.timing import Effort  # noqa: E402

pytestmark = pytest.mark.torch
QUICK = Effort(interval=0.5, sample_s=1e-6, warmup_s=0.0, longest_s=0.01, most_samples=6)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ClockedBench:
    found = clocked_bench(monkeypatch, tmp_path, count=2)
    small = ClockedBench(found.device, "clocked", 1 << 20, 64 << 10, tmp_path)
    monkeypatch.setattr(run, "open_bench", lambda device, scratch: small)
    monkeypatch.setattr(run, "environment", lambda bench: {"device": bench.name})
    monkeypatch.setattr(memory, "_GATHERED", 16 << 10)
    monkeypatch.setattr(copies, "_SIZES", (64 << 10, 16 << 10))
    for name in ("_SIDE", "_SMALL_SIDE", "_VECTOR", "_SMALL_VECTOR"):
        monkeypatch.setattr(copies, name, 16)
    return small


def _rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / table).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_rows_fit_their_tables_and_a_second_run_finds_them_there(
    gpu: ClockedBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_kernel(device: str) -> Any:
        raise Unavailable("no libnvrtc.so.12")

    monkeypatch.setattr(memory, "_kernel", no_kernel)
    monkeypatch.setattr(copies, "random_bytes", lambda size, *_, **__: torch.ones(size, dtype=torch.uint8))
    out = tmp_path / "out"
    said: list[str] = []
    settings = run.Settings(out, ("launch", "memory", "copies", "overlap", "collectives"), "cuda:0", effort=QUICK)
    assert run.measure(settings, said.append) == 0
    left = json.loads((out / "run.json").read_text())["left"]
    reasons = Counter((row["group"], row["reason"].split("; ")[0]) for row in left)
    assert ("memory", "no libnvrtc.so.12") in reasons
    assert {group for group, _ in reasons} == {"memory", "collectives"}  # CPU builds of torch lack NCCL
    for table in ("launch.csv", "memory.csv", "copies.csv"):
        rows = _rows(out, table)
        assert rows
        assert tuple(rows[0]) == COLUMNS[table]
        assert all(float(row["time_s"]) > 0 for row in rows)
    kinds = {row["kind"] for row in _rows(out, "copies.csv")}
    assert kinds >= {"h2d", "d2h", "d2d", "bidir", "h2h", "p2p", "p2p_bidir"}
    captured = [row for row in _rows(out, "memory.csv") if row["bench"] == "torch stream"]
    assert {row["note"] for row in captured} == {"captured graph"}  # so that small sizes show device time
    before = (out / "copies.csv").read_bytes()
    assert run.measure(settings, said.append) == 0
    assert (out / "copies.csv").read_bytes() == before
