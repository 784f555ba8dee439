"""A short run of the fuzzer with a fixed seed, and all inputs on which it ever failed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.fuzz.inputs import KINDS, command
from tests.fuzz.run import CRASHES, fault_of

pytestmark = pytest.mark.slow
_FOUND = sorted(path.parent for path in CRASHES.glob("*/command.json"))


@pytest.mark.parametrize("kind", KINDS)
def test_random_inputs_are_answered_or_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(12):
        words = command(seed, tmp_path, [kind])
        assert not fault_of(words), (seed, words)


@pytest.mark.parametrize("folder", _FOUND, ids=[path.name for path in _FOUND])
def test_what_was_found_once_is_mended(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = shutil.copytree(folder, tmp_path / "case")  # some write beside what they read
    monkeypatch.chdir(here)
    words = json.loads((here / "command.json").read_text(encoding="utf-8"))["words"]
    assert not fault_of([word.replace("{folder}", str(here)) for word in words])
