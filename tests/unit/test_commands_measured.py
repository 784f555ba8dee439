"""Each command in documents and scenarios that asks for a step or an exchange is measured, or refused with a reason."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.cli.app import app as simulate
from simulator.cli.output import Asked
from simulator.cli.written import DEFAULTS, CommandOptions
from simulator.errors import InputError
from simulator.questions.words import KINDS
from tests.unit.test_docs import DOCUMENTS, tables
from tests.unit.test_own_workloads import options_of_run
from validate.cli.asking import NOT_MEASURED, WITHOUT_TWIN, asked_steps, check_twin, is_exchange

pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from validate.machine.measure.case import GROUPS

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "simulator" / "scenarios" / "files"
# Refusals of steps that only have options of validate run, but that torch alone cannot run.
REFUSED = re.compile(
    r"divides layers, as Megatron-LM does|one process drives all GPUs|only DeepSpeed and Megatron-LM have it"
    r"|a step uses torch's own exchanges|one machine is measured|is torch's|torch does not have nf4"
    r"|torch alone updates|multiplies integers"
    r"|is measured on the first GPUs"
    r"|sums as gradients are stored|torch's own loss is measured"
)

# Options that validate run does not accept, with which the step that is run is the same.
RUN_ALIKE = {"verbose", "json", "gpu_clock"}

# simulate commands that ask no question about a single machine, and why they are not measured.
OTHERS = {
    "scenario": "asks the commands of its file, which stand here one by one",
    "best": "ranks layouts; the one that is chosen is measured in its own words",
    "run": "asks a run of days; its step is measured in its own words",
    "sweep": "asks every combination of values; each is measured in its own words",
    "scale": "asks a step on machines of many sizes; validate.measure --gpus does it on the one that is there",
    "machines": "lists",
    "list": "lists",
    "strategies": "lists",
    "workloads": "lists",
}


def lines() -> Iterator[tuple[str, str]]:
    """Yield the location and the text of every simulate command in documents and scenarios."""
    for document, text in DOCUMENTS.items():
        for kind, _, body in tables.blocks(text):
            if kind in ("sh", "console"):
                for line in body.replace("\\\n", " ").splitlines():
                    if kind == "sh" or line.startswith("$ "):
                        last = line.removeprefix("$ ").split("&&")[-1].partition("|")[0].partition(" > ")[0].strip()
                        last = last.removeprefix(".venv/bin/")
                        if last.startswith("simulate "):
                            yield document, " ".join(last.split())
    for file in sorted(SCENARIOS.glob("*.yaml")):
        for run in yaml.safe_load(file.read_text(encoding="utf-8"))["runs"].values():
            yield file.name, " ".join(run.split())


def written(command: str) -> CommandOptions | None:
    """Return the options of *command*; None where it only prints information about itself."""
    words = shlex.split(command, comments=True)[1:]
    asked = simulate.main(words, standalone_mode=False)
    return asked.written if isinstance(asked, Asked) else None


@pytest.mark.slow
def test_every_step_and_exchange_has_a_twin_or_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offered = options_of_run()
    found: Counter[str] = Counter()
    for where, command in lines():
        if where.endswith(".md"):  # with the document's own files
            folder = tmp_path / where.replace("/", "-")
            folder.mkdir(exist_ok=True)
            tables.write_files(DOCUMENTS[where], folder)
        monkeypatch.chdir(folder if where.endswith(".md") else SCENARIOS)
        word = command.split()[1]
        if not word.startswith("-"):
            assert word in OTHERS, (where, command)
            found[f"of another kind: {word}"] += 1
            continue
        asked = written(command)
        if asked is None:
            found["about the command itself"] += 1
            continue
        if asked.kind in ("single", "program"):
            with pytest.raises(InputError, match="measure"):
                check_twin(asked)
            found["what --only or another command measures"] += 1
            continue
        check_twin(asked)
        given = [name for name, value in vars(asked).items() if value != DEFAULTS[name]]
        apart = [name for name in given if name not in offered]
        assert all(NOT_MEASURED.get(name) for name in apart), (where, command)
        if not RUN_ALIKE.issuperset(apart):
            found["an option that says why"] += 1
            continue
        if is_exchange(asked) or (asked.batch is None and asked.global_batch is None):
            found["an exchange"] += 1
            continue
        try:
            steps: Any = asked_steps(asked, None)
        except InputError as error:
            found["refused" if REFUSED.search(str(error)) else f"{where}: {command}: {error}"] += 1
            continue
        assert steps
        found["a step"] += 1
    known = {"a step", "an exchange", "refused", "an option that says why", "about the command itself"}
    known |= {"what --only or another command measures"}
    known |= {f"of another kind: {word}" for word in OTHERS}
    assert set(found) <= known
    assert found["a step"] >= 40
    assert found["an exchange"] >= 40


def test_what_is_no_step_and_no_exchange_says_what_measures_the_like_of_it() -> None:
    assert set(WITHOUT_TWIN) == {*KINDS, "program"}
    named = {
        name
        for why in WITHOUT_TWIN.values()
        for names in re.findall(r"--only ([\w,]+)", why)
        for name in names.split(",")
    }
    assert named <= set(GROUPS)
