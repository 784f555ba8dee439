"""Every example in ``tests/golden`` still prints its recorded output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.run import example_files, printed
from tests.remembered import remember_steps


@pytest.mark.parametrize("file", example_files(), ids=lambda file: file.stem)
def test_an_example_prints_what_it_printed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if file.stem == "measured-steps":  # minutes of steps, which test_docs_errors.py asks too
        remember_steps(monkeypatch)
    assert printed(file) == file.read_text(encoding="utf-8")
