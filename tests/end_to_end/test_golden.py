"""Every example in ``tests/golden`` still prints its recorded output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.run import example_files, printed


@pytest.mark.parametrize("file", example_files(), ids=lambda file: file.stem)
def test_an_example_prints_what_it_printed(file: Path) -> None:
    assert printed(file) == file.read_text(encoding="utf-8")
