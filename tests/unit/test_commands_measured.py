"""Each command of documents and scenarios that asks for a step or an exchange is measured, or refused with a reason."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from simulator.cli.app import app as simulate
from simulator.cli.written import Written
from simulator.errors import InputError
from tests.unit.test_docs import commands
from tests.unit.test_own_workloads import options_of_run
from validate.cli.asking import NOT_MEASURED, ask
from validate.cli.asking_strategies import is_exchange

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "simulator" / "scenarios" / "files"
# Why torch alone does not do a step that has none but the options of validate run, in the words of the refusal.
REFUSED = re.compile(
    r"divides layers, as Megatron-LM does|is one process for all GPUs|is DeepSpeed's and Megatron-LM's"
    r"|torch's own exchanges are measured|one machine is measured|is torch's|whole numbers|on the first so many"
    r"|sums as gradients are stored"
)
SINGLE = ("op", "copy", "access", "launch", "disk", "message", "core")  # groups of --only, or said not to be measured


def lines() -> Iterator[tuple[str, str]]:
    """Yield where a command is, and the command."""
    for document, command in commands():
        if command.startswith("simulate --") and "|" not in command:
            yield document, command
    for file in sorted(SCENARIOS.glob("*.yaml")):
        runs = yaml.safe_load(file.read_text(encoding="utf-8"))["runs"]
        for run in runs.values() if isinstance(runs, dict) else ():
            yield file.name, str(run if isinstance(run, str) else run.get("command", ""))


def written(command: str, monkeypatch: pytest.MonkeyPatch) -> Written | None:
    """Return the options of *command*; None where it lists something, or has what scenarios fill in."""
    if "{" in command or not command.startswith("simulate --"):
        return None
    seen: list[Written] = []
    monkeypatch.setattr("simulator.cli.ask.run", seen.append)
    words = shlex.split(command, comments=True)[1:]
    typer.main.get_command(simulate).main(words, standalone_mode=False)
    return seen[0] if seen else None


def test_every_step_and_exchange_has_a_twin_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = options_of_run()
    defaults = Written()
    monkeypatch.chdir(SCENARIOS)
    found: Counter[str] = Counter()
    for where, command in lines():
        asked = written(command, monkeypatch)
        if asked is None or asked.workload.partition(":")[0] in SINGLE or asked.kind == "program":
            continue
        given = [f.name for f in fields(Written) if getattr(asked, f.name) != getattr(defaults, f.name)]
        apart = [name for name in given if name not in offered]
        assert all(NOT_MEASURED.get(name) for name in apart), (where, command)
        if apart:
            found["an option that says why"] += 1
            continue
        if is_exchange(asked) or (asked.batch is None and asked.global_batch is None):
            found["an exchange"] += 1
            continue
        try:
            steps: Any = ask(asked, None)
        except InputError as error:
            if "cannot be read" in str(error) or "is not there" in str(error) or "no such" in str(error):
                continue  # a file that the document makes first
            found["refused" if REFUSED.search(str(error)) else f"{where}: {command}: {error}"] += 1
            continue
        assert steps
        found["a step"] += 1
    assert set(found) == {"a step", "an exchange", "refused", "an option that says why"}
    assert found["a step"] >= 20
    assert found["an exchange"] >= 10
