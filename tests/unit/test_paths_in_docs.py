"""Paths and names of code in the documents are those of this repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("simulator", "validate", "reports", "tests", "docs", "topologies")
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
# Files of other projects and of users, which the pages name too.
OTHERS = {
    "run_squad.py",
    "router.py",
    "train_gpt2.py",
    "train_shakespeare_char.py",
    "finetune_shakespeare.py",
    "stage_1_and_2.py",
    "stage3.py",
    "_fsdp_collectives.py",
    "bench_gemm_turbo.py",
    "models.py",
    "json.py",
    "tests/data/",
    "network/README.md",
}


@cache
def files() -> frozenset[Path]:
    return frozenset(path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file())


def named(page: Path) -> Iterator[str]:
    """Yield the paths below a folder of this repository, and the names of Python files, outside blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`([\w.*-]+(?:/[\w.*-]*)*)`", text):
        first, _, rest = name.partition("/")
        starts = [ROOT / first, ROOT / "simulator" / first, ROOT / "validate" / first]
        if (any(start.is_dir() for start in starts) if rest else name.endswith(".py")) and "NAME" not in name:
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_paths_are_there(page: Path) -> None:
    bare = {path.name for path in files()}
    roots = (ROOT, ROOT / "simulator", ROOT / "validate", page.parent)
    for name in set(named(page)) - OTHERS:
        found = any(any(root.glob(name)) for root in roots) if "/" in name else name in bare
        assert found, f"{page.name}: {name}"


def test_functions_that_head_a_paragraph_are_there() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in files() if path.suffix == ".py")
    defined = set(re.findall(r"^\s*(?:(?:def|class) )?(\w+)", code, re.MULTILINE))
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        for name in re.findall(r"^`(\w+)`:", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert name in defined, f"{page.name}: {name}"
