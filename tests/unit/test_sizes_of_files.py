"""No file of the product is long: one concept a file (CONTRIBUTING.md)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 400  # lines


def test_no_file_is_long() -> None:
    files = [path for room in ("simulator", "validate", "reports") for path in (ROOT / room).rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = {name: lines for name, lines in lengths.items() if lines > MOST}
    assert not long, f"above {MOST} lines, split by concept: {long}"
