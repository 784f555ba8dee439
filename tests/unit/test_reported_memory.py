"""Peak memory of whole steps as public reports state it; the reports lie outside the project."""

from __future__ import annotations

import csv
import os
import statistics
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.cli import read
from simulator.cli.step_questions import ask_steps
from simulator.step.memory import MemoryNeed

FOLDER = Path(os.environ.get("TOPOCAST_REPORTS") or Path(__file__).resolve().parents[3] / "shared" / "corpus-3")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no reports in TOPOCAST_REPORTS ({FOLDER})"),
]


def predicted(words: list[str]) -> MemoryNeed:
    """Return the memory of the fullest device."""
    session, (question,) = ask_steps(read(words).written, Session())
    return session.memory(question)


def test_steps_of_megatron_lm_as_launched() -> None:
    """Dense, experts, pipelines and context parallelism on eight B200: tensors at their peak, as torch counted them."""
    errors = []
    for row in csv.DictReader((FOLDER / "launched_steps.csv").read_text(encoding="utf-8").splitlines()):
        found = predicted(["--topology", row["machine"], "--launch", row["launch"]])
        errors.append(abs(found.allocated_bytes / (float(row["max_allocated_gib"]) * 2**30) - 1.0))
    assert len(errors) == 16
    assert statistics.median(errors) < 0.01
    assert max(errors) < 0.03


def test_steps_of_other_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face's trainer, torchtitan, llm.c: each by the figure that it states."""
    monkeypatch.chdir(FOLDER)
    errors: dict[str, list[float]] = {"allocated": [], "reserved": []}
    for row in csv.DictReader((FOLDER / "memory_steps.csv").read_text(encoding="utf-8").splitlines()):
        figure = row["what"].split()[0].rstrip(",")
        if figure in errors:
            found = predicted(row["arguments"].split())
            errors[figure].append(getattr(found, f"{figure}_bytes") / (float(row["measured_gb"]) * 1e9) - 1.0)
    assert {figure: len(found) for figure, found in errors.items()} == {"allocated": 6, "reserved": 3}
    assert statistics.median(map(abs, errors["allocated"])) < 0.04
    assert max(map(abs, errors["allocated"])) < 0.15  # llm.c, which has a program of its own
    assert max(map(abs, errors["reserved"])) < 0.08
