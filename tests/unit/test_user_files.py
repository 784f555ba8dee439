"""Files that users name are read for what they hold, not for what they may hold."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.user_files import read_user_file


def test_a_short_file_takes_little_memory_whatever_the_limit(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"few bytes")
    tracemalloc.start()
    try:
        assert read_user_file(tmp_path / "short", 1 << 30) == b"few bytes"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_files_up_to_the_limit_are_read_whole(tmp_path: Path, size: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert read_user_file(tmp_path / "file", 3_000_000) == content[:size]
    if size:
        with pytest.raises(InputError, match="is larger than"):
            read_user_file(tmp_path / "file", size - 1)
